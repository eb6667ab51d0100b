"""What travels between the rooms: sources, clip specs, clips, and what a decode reports.

Leaf: everything here is a frozen value, and this module imports nothing of ours.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Fit = Literal["stretch", "centre_crop", "letterbox"]
Filter = Literal["bilinear", "bicubic", "area"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A video file on this machine, and the half-open range of it that is asked for."""

    path: str
    start_seconds: float = 0.0
    end_seconds: float | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ClipSpec:
    """What a part wants to see.

    Sample n is frame n (`fps=None`), or the frame on screen at n / fps seconds. Clip k is the
    `length` samples around its core, the samples [k * stride, k * stride + core):

        context=2, length=8, stride=4        ..####..            clip 0
        # core   . context                       ..####..        clip 1

    Where a clip reaches over an edge of the video, the first or last sample is repeated.
    """

    length: int
    stride: int
    size: tuple[int, int]  # (height, width) in pixels
    fps: float | None = None
    context: int = 0
    fit: Fit = "stretch"
    filter: Filter = "bicubic"

    def __post_init__(self) -> None:
        if self.length < 1 or self.stride < 1 or min(self.size) < 1:
            raise ValueError(f"length, stride and size must be at least 1, not {self}")
        if not 0 <= 2 * self.context < self.length:
            raise ValueError(f"context {self.context} leaves no core in a clip of {self.length}")
        if self.fps is not None and self.fps <= 0:
            raise ValueError(f"fps must be above 0 or None, not {self.fps}")

    @property
    def core(self) -> int:
        """Samples of a clip that are its own."""
        return self.length - 2 * self.context

    @property
    def clip_bytes(self) -> int:
        height, width = self.size
        return self.length * height * width * 3


@dataclass(frozen=True, kw_only=True)
class ClipHeader:
    """Which clip this is, without its pixels.

    `frame_indices` count the frames of the whole video in presentation order; repeated samples
    repeat their index and their time. `pts_seconds` count from the video's first frame.
    """

    part: str
    index: int
    pts_seconds: tuple[float, ...]
    frame_indices: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A run of frames that a part sees at once: uint8 (T, H, W, 3), RGB."""

    header: ClipHeader
    frames: np.ndarray

    def __repr__(self) -> str:
        return f"Clip({self.header.part}[{self.header.index}], frames{self.frames.shape})"


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What the container and the first look at the stream say. None where they don't."""

    container: str
    codec: str
    width: int  # as shown: square pixels, rotated upright
    height: int
    coded_width: int
    coded_height: int
    rotation_degrees: int  # clockwise, applied
    pixel_format: str
    average_fps: float | None
    duration_seconds_from_header: float | None
    start_seconds_from_header: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A sign of life from a decode: where it is, whatever it waits for."""

    pts_seconds: float
    state: str


@dataclass(frozen=True, kw_only=True)
class DecodeReport:
    """What one pass did, once it is over.

    `decode_seconds` is the child's own CPU time; waiting for slots does not count.
    """

    frames: int  # decoded, in the range or before it
    duration_seconds: float  # from the content: the end of the last frame that was decoded
    decode_seconds: float
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DecodeStarted:
    """First item of every decode stream: who decodes, and where its credits are granted."""

    replica: str
    pid: int
    backend: str
    credit_address: tuple[str, int]
    credit_token: str


@dataclass(frozen=True, kw_only=True)
class DecodeRequest:
    """One pass over a source.

    `first_clips[part]` is the index of the first clip of that part that is still wanted.
    `credits` clips may be made before the first grant, and never more than `slots` be on their way.
    """

    source: Source
    specs: dict[str, ClipSpec]
    first_clips: dict[str, int]
    credits: int
    slots: int


@dataclass(frozen=True, kw_only=True)
class ClipOutput:
    """What a part made of one clip: plain JSON-able data, and what it cost."""

    header: ClipHeader
    output: Any
    queue_seconds: float
    forward_seconds: float  # this clip's share of its batch
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class VideoFacts:
    """What a part may want to know when it summarises the outputs of one video."""

    info: VideoInfo
    start_seconds: float
    end_seconds: float  # of what was analysed
