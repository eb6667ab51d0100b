"""The contract of a part: what somebody writes to bring a model."""

from pathlib import Path
from typing import Any, Protocol

import torch

from deployments.frames import ClipOutput, ClipSpec, VideoFacts


class Part(Protocol):
    """One functionally independent part of a model. `options` of the settings go to `__init__`.

    Loading the weights, batching, devices and threads are ours; what the pixels mean is the part's.
    """

    clip_spec: ClipSpec
    checkpoint: Path
    """Weights that come along; `checkpoint` of the settings replaces it."""

    def build(self) -> torch.nn.Module:
        """The network, its weights not yet filled in (parameters are on the meta device)."""

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 (B, T, H, W, 3) RGB on the part's device -> what the network takes."""

    def to_outputs(self, raw: Any) -> list[Any]:
        """What the network returned for B clips -> B outputs, each plain JSON-able data."""

    def summarise(self, clips: list[ClipOutput], video: VideoFacts) -> dict[str, Any]:
        """All outputs of one video, in order of their index, -> what the answer says."""
