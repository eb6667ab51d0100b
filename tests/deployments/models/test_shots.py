"""Our TransNetV2 and our shots against the package's own."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from deployments.models.shots import Shots, core
from deployments.models.weights import load
from tests.deployments.models.conftest import FIRST_FRAME, FPS, answered, facts, sampled

LENGTHS = (1, 49, 50, 101, 301)


def random_probabilities() -> np.ndarray:
    """Rows of 40: blocks above and below the threshold, short and long, and the special rows."""
    random = np.random.default_rng(0)
    rows = [np.repeat(random.random(40), random.integers(1, 6, 40))[:40] for _ in range(500)]
    rows += [np.zeros(40), np.ones(40), np.eye(40)[0], np.eye(40)[-1], 1 - np.eye(40)[0]]
    return np.stack(rows).astype(np.float32)


@pytest.fixture(scope="module")
def videos(small_frames):
    random = np.random.default_rng(0)
    return {str(length): small_frames[:length] for length in LENGTHS} | {
        "random": random.integers(0, 256, (50, 27, 48, 3), np.uint8)
    }


@pytest.fixture(scope="module")
def original(videos, tmp_path_factory):
    """What the package makes of the same videos, and of the random probabilities."""
    folder = tmp_path_factory.mktemp("original")
    np.savez(folder / "in.npz", **videos, scenes=random_probabilities())
    program = Path(__file__).with_name("original_transnet.py")
    files = [str(folder / "in.npz"), str(folder / "out.json")]
    subprocess.run([sys.executable, str(program), *files], check=True, cwd=folder)
    return json.loads((folder / "out.json").read_text())


@pytest.fixture(scope="module")
def outputs(videos) -> dict[str, list[list[float]]]:
    """What our part makes of each clip of the same videos."""
    part = Shots()
    network = load(part.build, part.checkpoint, device=torch.device("cpu"))
    answers: dict[str, list[list[float]]] = {name: [] for name in videos}
    for name, frames in videos.items():
        for samples in sampled(part.clip_spec, len(frames)):
            clip = torch.from_numpy(frames[samples][None])
            with torch.inference_mode():
                answers[name] += part.to_outputs(network(part.to_input(clip)))
    return answers


@pytest.mark.parametrize("name", [*map(str, LENGTHS), "random"])
def test_our_network_equals_the_package_in_its_windows(name, outputs, original):
    ours = np.concatenate(outputs[name])[: len(original[name])]
    np.testing.assert_allclose(ours, original[name], rtol=0, atol=1e-6)


def test_shots_of_a_real_video_begin_where_the_scenes_of_the_package_begin(outputs, original):
    part = Shots()
    answer = part.summarise(answered(part.clip_spec, 301, outputs["301"]), facts(301))
    scenes = original["scenes of 301"]
    assert len(scenes) > 3
    assert [shot["start_frame"] for shot in answer["shots"]] == [
        FIRST_FRAME,
        *(FIRST_FRAME + start for start, _ in scenes[1:]),
    ]


def test_shots_of_any_probabilities_map_onto_the_scenes_of_the_package(original):
    for probabilities, scenes in zip(random_probabilities(), original["scenes"], strict=True):
        shots = summarised(probabilities)
        begins = [shot["start_frame"] - FIRST_FRAME for shot in shots]
        assert begins == [0, *(start for start, _ in scenes[1:])]
        for shot, (_, last) in zip(shots[:-1], scenes[:-1], strict=True):
            assert probabilities[last] > 0.5 >= probabilities[last - 1]
            transition = probabilities[last : shot["end_frame"] - FIRST_FRAME]
            assert transition.min() > 0.5
            assert shot["cut_probability"] == transition.max()


def test_shots_follow_on_one_another_from_the_first_frame_to_the_end_of_the_video():
    for probabilities in random_probabilities():
        shots = summarised(probabilities)
        assert shots[0]["start_frame"] == FIRST_FRAME
        assert shots[0]["start_seconds"] == FIRST_FRAME / FPS
        for shot, following in pairwise(shots):
            assert shot["end_frame"] == following["start_frame"] > shot["start_frame"]
            assert shot["end_seconds"] == following["start_seconds"] == shot["end_frame"] / FPS
        assert shots[-1]["end_frame"] == FIRST_FRAME + len(probabilities)
        assert shots[-1]["end_seconds"] == (FIRST_FRAME + len(probabilities)) / FPS
        assert shots[-1]["cut_probability"] is None


@pytest.mark.parametrize("probability", [0.1, 0.9])
def test_a_video_of_one_frame_is_one_shot(probability):
    assert summarised(np.array([probability], np.float32)) == [
        {
            "start_seconds": FIRST_FRAME / FPS,
            "end_seconds": (FIRST_FRAME + 1) / FPS,
            "start_frame": FIRST_FRAME,
            "end_frame": FIRST_FRAME + 1,
            "cut_probability": None,
        }
    ]


def test_a_higher_threshold_finds_fewer_cuts():
    probabilities = np.tile([0.1, 0.6, 0.1, 0.9], 10).astype(np.float32)
    assert len(summarised(probabilities, threshold=0.8)) < len(summarised(probabilities))


def summarised(probabilities: np.ndarray, **options) -> list[dict]:
    """The shots, when the clips of a video say these probabilities."""
    part = Shots(**options)
    num_frames = len(probabilities)
    clips = sampled(part.clip_spec, num_frames)
    outputs = [probabilities[samples[core(part.clip_spec)]].tolist() for samples in clips]
    answer = part.summarise(answered(part.clip_spec, num_frames, outputs), facts(num_frames))
    json.dumps(answer)
    return answer["shots"]
