"""What one analysis remembers: what to ask the next decoder for, and whom to blame."""

import pytest

from deployments.analysis import MOST_FAILURES_AT_ONE_PLACE, Analysis, Attempt
from deployments.errors import (
    DecodeCrashed,
    DecodeHung,
    DecoderError,
    DecoderUnavailable,
    VideoHangsDecoders,
)
from deployments.frames import (
    ClipHeader,
    ClipOutput,
    ClipSpec,
    DecodeReport,
    DecodeStarted,
    Source,
    VideoInfo,
)

SPEC = ClipSpec(length=1, stride=1, size=(1, 1))
INFO = VideoInfo(
    container="mp4",
    codec="h264",
    width=2,
    height=2,
    coded_width=2,
    coded_height=2,
    rotation_degrees=0,
    pixel_format="yuv420p",
    average_fps=25.0,
    duration_seconds_from_header=9.0,
    start_seconds_from_header=0.0,
)
REPORT = DecodeReport(frames=200, duration_seconds=8.0, decode_seconds=0.5, warnings=("odd",))


@pytest.fixture
def analysis() -> Analysis:
    return Analysis(
        source=Source(path="/v.mp4", name="v.mp4"), specs={"a": SPEC, "b": SPEC}, slots=4
    )


def header(part: str, index: int) -> ClipHeader:
    return ClipHeader(part=part, index=index, pts_seconds=(float(index),), frame_indices=(index,))


def output(part: str, index: int) -> ClipOutput:
    return ClipOutput(
        header=header(part, index), output=index, queue_seconds=1, forward_seconds=2, batch_size=1
    )


def begun(analysis: Analysis, deployment: str = "CpuDecoder", pid: int = 1) -> Attempt:
    attempt = analysis.attempt(deployment)
    attempt.begin(
        DecodeStarted(
            replica="r", pid=pid, backend="cpu", credit_address=("h", 1), credit_token="t"
        )
    )
    return attempt


def test_the_next_decoder_begins_with_the_first_clip_of_each_part_not_received(analysis) -> None:
    begun(analysis)
    for part, index in (("a", 0), ("a", 1), ("b", 0)):
        analysis.receive(header(part, index))
    assert analysis.attempt("CpuDecoder").first_clips == {"a": 2, "b": 1}


def test_clips_that_are_held_take_credits_from_the_next_decoder(analysis) -> None:
    for index in range(3):
        analysis.receive(header("a", index))
    analysis.done(output("a", 0))
    request = analysis.request(analysis.attempt("CpuDecoder"))
    assert (request.credits, request.slots) == (4 - 2, 4)


@pytest.mark.parametrize("error", [DecodeHung, DecodeCrashed], ids=lambda error: error.reason)
def test_a_video_is_blamed_when_enough_children_fail_at_one_place(
    analysis: Analysis, error: type[DecoderError]
) -> None:
    most = MOST_FAILURES_AT_ONE_PLACE[error.reason]
    for pid in range(most - 1):
        analysis.fail(begun(analysis, pid=pid), error("no progress"))
    with pytest.raises(VideoHangsDecoders, match=f"{most} decoders {error.reason}"):
        analysis.fail(begun(analysis, pid=most), error("no progress"))


def test_children_that_fail_at_different_places_blame_no_video(analysis: Analysis) -> None:
    for index in range(5):
        analysis.fail(begun(analysis, pid=index), DecodeHung("no progress"))
        analysis.receive(header("a", index))
    assert [attempt.failure for attempt in analysis.attempts] == ["hung"] * 5


def test_replicas_that_are_gone_blame_no_video(analysis: Analysis) -> None:
    for pid in range(10):
        analysis.fail(begun(analysis, pid=pid), DecoderUnavailable("gone"))
    assert analysis.fallback_reason == "unavailable"


def test_the_fallback_reason_is_that_of_the_first_failure(analysis: Analysis) -> None:
    assert analysis.fallback_reason is None
    analysis.fail(begun(analysis, "Decoder"), DecodeHung("no progress"))
    analysis.fail(begun(analysis, pid=2), DecoderUnavailable("gone"))
    assert analysis.fallback_reason == "hung"


def test_progress_is_that_of_the_part_that_is_behind(analysis: Analysis) -> None:
    analysis.info = INFO
    for index in range(3):
        analysis.done(output("a", index))
    analysis.done(output("b", 1))
    assert analysis.progress_event() == {
        "event": "progress",
        "pts_seconds": 1.0,
        "duration_seconds": 9.0,
        "clips_done": {"a": 3, "b": 1},
    }


def test_the_answer_tells_who_decoded_and_what_each_stage_took(analysis: Analysis) -> None:
    analysis.fail(begun(analysis, "Decoder", pid=7), DecodeCrashed("died"))
    begun(analysis, pid=8)
    analysis.info, analysis.report = INFO, REPORT
    analysis.summarise_seconds = {"a": 0.1, "b": 0.2}
    for index in (1, 0):
        analysis.done(output("a", index))
    answer = analysis.answer({"a": {"seen": 2}, "b": {}})
    assert answer["a"] == {"seen": 2}
    assert answer["video"]["warnings"] == ["odd"]
    assert answer["video"]["duration_seconds"] == 8.0
    assert answer["decode"]["deployment"] == "CpuDecoder"
    assert answer["decode"]["fallback_reason"] == "crashed"
    assert [attempt["pid"] for attempt in answer["decode"]["attempts"]] == [7, 8]
    assert answer["timing"]["a"]["forward_seconds"] == 4
    assert answer["timing"]["video_seconds"] == 8.0
    assert answer["timing"]["realtime_factor"] > 0
    assert [one.header.index for one in analysis.in_order("a")] == [0, 1]


def test_what_was_analysed_ends_where_the_caller_or_the_video_ends(analysis: Analysis) -> None:
    analysis.info, analysis.report = INFO, REPORT
    assert analysis.facts.end_seconds == 8.0
    analysis.source = Source(path="/v.mp4", start_seconds=1.0, end_seconds=3.0)
    assert (analysis.facts.start_seconds, analysis.facts.end_seconds) == (1.0, 3.0)
