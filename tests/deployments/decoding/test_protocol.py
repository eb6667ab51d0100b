"""What goes over the socket and through the first page, and what is refused."""

import os

import pytest

from deployments.decoding.protocol import (
    PAGE_BYTES,
    ClipInSlot,
    Done,
    FreeSlot,
    Job,
    Message,
    Opened,
    Pulse,
    Ready,
    Refused,
    dump,
    load,
)
from deployments.frames import ClipHeader, ClipSpec, DecodeReport, DecodeRequest, Source, VideoInfo

HEADER = ClipHeader(part="b", index=3, pts_seconds=(0.1, 1 / 3), frame_indices=(2, 8))
INFO = VideoInfo(
    container="mp4",
    codec="h264",
    width=2,
    height=4,
    coded_width=4,
    coded_height=2,
    rotation_degrees=90,
    pixel_format="yuv420p",
    average_fps=None,
    duration_seconds_from_header=9.0,
    start_seconds_from_header=0.0,
)
SPECS = {
    "a": ClipSpec(length=1, stride=1, fps=1.0, size=(8, 8), fit="centre_crop"),
    "b": ClipSpec(length=100, stride=50, context=25, size=(27, 48)),
}
REQUEST = DecodeRequest(
    source=Source(path="/ä \n.mp4", start_seconds=1.5, end_seconds=None, name="ä"),
    specs=SPECS,
    first_clips={"a": 0, "b": 7},
    credits=2,
    slots=12,
)
MESSAGES: list[Message] = [
    Ready(backend="cpu"),
    Job.of(REQUEST),
    FreeSlot(slot=3),
    Opened(info=INFO),
    ClipInSlot(header=HEADER, slot=1),
    Done(
        report=DecodeReport(
            frames=3, duration_seconds=1 / 3, decode_seconds=0.1, warnings=("odd", "äö")
        )
    ),
    Refused(code="no_video", sentence="The file has no\nvideo stream."),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent_on_one_line(message: Message) -> None:
    line = dump(message)
    assert line.index(b"\n") == len(line) - 1
    assert load(line) == message


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"[]", b"null", b"{}", b'{"kind": "Exec"}', b'{"kind": "Ready"}', b"\xff\xfe",
     b'{"kind": "ClipInSlot", "header": 3, "slot": 0}', b"[" * 100_000],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_a_line_that_is_no_message_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        load(line)


def test_a_slot_holds_the_largest_clip_of_any_part() -> None:
    assert Job.of(REQUEST).slot_bytes == 100 * 27 * 48 * 3


def test_both_ends_see_one_pulse() -> None:
    memory_fd = os.memfd_create("pulse")
    os.ftruncate(memory_fd, PAGE_BYTES)
    ours, theirs = Pulse(memory_fd), Pulse(memory_fd)
    theirs.beat()
    theirs.state = "waiting_for_slot"
    theirs.pts_seconds = 12.5
    assert (ours.count, ours.state, ours.pts_seconds) == (2, "waiting_for_slot", 12.5)
    ours.close()
    theirs.close()
    os.close(memory_fd)
