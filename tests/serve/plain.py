"""What the plain networks make of a video: the reader's pixels, no graph, no clips, no batches."""

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet

from deployments.decoding.reader import SoftwareReader
from deployments.models.shots import Shots
from deployments.models.tags import CLASSES, MEAN, STD, Tags

Begins = list[tuple[int, float | None]]
"""(frame at which a shot begins, probability of the cut before it)."""

ORIGINAL_TRANSNET = Path(__file__).parents[1] / "deployments/models/original_transnet.py"


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Of the frames of [0, end): all of them for shots, those on screen at k / fps for tags."""

    shots: np.ndarray  # uint8 (N, 27, 48, 3)
    tags: np.ndarray  # uint8 (M, 224, 224, 3)
    pts_seconds: list[float]  # of all N


def read(path: Path, *, end_seconds: float = float("inf"), fps: float = 1.0) -> Pixels:
    reader = SoftwareReader(str(path), beat=lambda: None)
    shots, tags, pts_seconds = [], [], []
    for picture in reader.pictures():
        if picture.pts_seconds >= end_seconds:
            break
        until_seconds = min(picture.pts_seconds + picture.duration_seconds, end_seconds)
        shots.append(picture.rgb(Shots.clip_spec))
        pts_seconds.append(picture.pts_seconds)
        while len(tags) / fps < until_seconds - 1e-6:
            tags.append(picture.rgb(Tags().clip_spec))
    reader.close()
    return Pixels(shots=np.stack(shots), tags=np.stack(tags), pts_seconds=pts_seconds)


def plain_shots(videos: dict[str, np.ndarray], folder: Path) -> dict[str, Begins]:
    """Of each video, uint8 (N, 27, 48, 3): what the package itself says, in a process of its own.

    Importing the package changes torch for the whole process.
    """
    np.savez(folder / "in.npz", **videos)
    command = [sys.executable, ORIGINAL_TRANSNET, folder / "in.npz", folder / "out.json"]
    subprocess.run(command, check=True, cwd=folder)
    answer = json.loads((folder / "out.json").read_text())
    return {name: _begins(answer[name], answer[f"scenes of {name}"]) for name in videos}


def _begins(probabilities: list[float], scenes: list[list[int]]) -> Begins:
    transitions = [(last, begin) for (_, last), (begin, _) in pairwise(scenes)]
    return [(0, None), *((begin, max(probabilities[last:begin])) for last, begin in transitions)]


def plain_tags(frames: np.ndarray) -> np.ndarray:
    """float32 (M, 1000): the probabilities of the package's own network."""
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(Tags().checkpoint)
    ).eval()
    rows = []
    with torch.inference_mode():
        for frame in frames:
            pixels = torch.from_numpy(frame[None]).permute(0, 3, 1, 2).float()
            rows.append(network((pixels - MEAN) / STD).softmax(1).numpy()[0])
    return np.stack(rows)


def difference_of_shots(answer: dict[str, Any], plain: Begins) -> float:
    """The same shots; returns the largest difference of a cut's probability."""
    shots = answer["shots"]
    assert [shot["start_frame"] for shot in shots] == [begin for begin, _ in plain]
    pairs = zip(shots[:-1], plain[1:], strict=True)
    return max((abs(shot["cut_probability"] - cut) for shot, (_, cut) in pairs), default=0.0)


def difference_of_tags(answer: dict[str, Any], plain: np.ndarray) -> float:
    """As many frames; returns the largest difference of a probability, overall ones included.

    Labels may change places where their probabilities are as good as equal.
    """
    assert len(answer["frames"]) == len(plain)
    rows = [*zip([f["tags"] for f in answer["frames"]], plain, strict=True)]
    rows.append((answer["top"], plain.mean(0)))
    return max(_difference(tags, row) for tags, row in rows)


def _difference(tags: list[dict[str, Any]], probabilities: np.ndarray) -> float:
    strongest = np.sort(probabilities)[::-1][: len(tags)]
    said = [tag["probability"] for tag in tags]
    of_labels = [probabilities[CLASSES.index(tag["label"])] for tag in tags]
    return float(max(np.abs(strongest - said).max(), np.abs(np.array(of_labels) - said).max()))
