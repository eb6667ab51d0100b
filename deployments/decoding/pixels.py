"""From a decoded frame to the RGB that a part asked for: right matrix, square, upright, sized.

The software way is one swscale call a size. Rotation and mirroring follow on the small picture,
where they cost nothing; scaling a frame and turning it commute.
"""

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

from deployments.frames import ClipSpec, Filter, Fit

# With these flags swscale is bit-exact with FFmpeg's own scaler told the chroma location; without
# them sharp saturated edges are up to 236 of 255 off.
_EXACT = Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP
_FILTERS: dict[Filter, Interpolation] = {
    "bilinear": Interpolation.BILINEAR | _EXACT,
    "bicubic": Interpolation.BICUBIC | _EXACT,
    "area": Interpolation.AREA | _EXACT,
}

_MATRIX_UNSPECIFIED = 2  # AVCOL_SPC_UNSPECIFIED


@dataclass(frozen=True, kw_only=True)
class Orientation:
    """How stored pixels are turned for show: first transposed, then flipped."""

    transpose: bool = False
    flip_x: bool = False
    flip_y: bool = False

    @classmethod
    def of(cls, display_matrix: bytes) -> "Orientation":
        """From 9 native int32 (x' = a x + c y, y' = b x + d y), to the nearest quarter turn."""
        if len(display_matrix) != 36:
            return cls()
        a, b, _, c, d, *_ = struct.unpack("=9i", display_matrix)
        if abs(a) >= abs(b):
            return cls(flip_x=a < 0, flip_y=d < 0)
        return cls(transpose=True, flip_x=c < 0, flip_y=b < 0)

    @property
    def rotation_degrees(self) -> int:
        """Clockwise. A mirrored picture is first flipped left to right, then rotated."""
        if self.transpose:
            return 270 if self.flip_y else 90
        return 180 if self.flip_y else 0

    def turn(self, rgb: np.ndarray) -> np.ndarray:
        """(H, W, 3) as stored -> as shown, a view."""
        if self.transpose:
            rgb = rgb.swapaxes(0, 1)
        return rgb[:: -1 if self.flip_y else 1, :: -1 if self.flip_x else 1]


def shown_size(
    width: int, height: int, sar: Fraction | None, turned: Orientation
) -> tuple[int, int]:
    """(height, width) with square pixels, upright. An aspect ratio beyond 4:1 is a mistake."""
    if sar and Fraction(1, 4) <= sar <= 4:
        width = max(1, round(width * sar))
    return (width, height) if turned.transpose else (height, width)


def scaled_size(shown: tuple[int, int], size: tuple[int, int], fit: Fit) -> tuple[int, int]:
    """(height, width) to scale to, before a centre crop cuts or a letterbox pads it to `size`."""
    if fit == "stretch":
        return size
    ratios = [wanted / has for wanted, has in zip(size, shown, strict=True)]
    ratio = max(ratios) if fit == "centre_crop" else min(ratios)
    bound = max if fit == "centre_crop" else min
    height, width = (
        bound(wanted, max(1, round(has * ratio))) for wanted, has in zip(size, shown, strict=True)
    )
    return height, width


def fit_into(rgb: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cut or pad (black) evenly on both sides: (h, w, 3) -> (*size, 3)."""
    for axis, wanted in enumerate(size):
        spare = rgb.shape[axis] - wanted
        if spare > 0:
            rgb = np.take(rgb, range(spare // 2, spare // 2 + wanted), axis=axis)
        elif spare < 0:
            padding = [(0, 0)] * 3
            padding[axis] = (-spare // 2, -spare - (-spare // 2))
            rgb = np.pad(rgb, padding)
    return rgb


class SoftwarePixels:
    """Converts the frames of one video, keeping one swscale context a size and filter."""

    def __init__(self, sar: Fraction | None) -> None:
        self._sar = sar
        self._reformatters: dict[tuple[tuple[int, int], Filter], VideoReformatter] = {}
        self._rotation: int | None = None  # of the frame that `_turned` was read from
        self._turned = Orientation()

    def rgb(self, frame: av.VideoFrame, spec: ClipSpec) -> np.ndarray:
        """uint8 (*spec.size, 3)."""
        turned = self._orientation(frame)
        shown = shown_size(frame.width, frame.height, self._sar, turned)
        height, width = scaled_size(shown, spec.size, spec.fit)
        stored = (width, height) if turned.transpose else (height, width)
        return fit_into(turned.turn(self._scale(frame, stored, spec.filter)), spec.size)

    def _orientation(self, frame: av.VideoFrame) -> Orientation:
        """Read again only when the frame turns: PyAV's `side_data` makes a cycle with its frame.

        Every frame would then live until the next garbage collection, and libav, which finds none
        of its frames free, would allocate each anew: 0.12 of the decode, and 3 MB a frame.
        """
        if frame.rotation != self._rotation:
            self._rotation, self._turned = frame.rotation, orientation(frame)
        return self._turned

    def _scale(self, frame: av.VideoFrame, size: tuple[int, int], filter: Filter) -> np.ndarray:
        reformatter = self._reformatters.setdefault((size, filter), VideoReformatter())
        scaled = reformatter.reformat(
            frame,
            height=size[0],
            width=size[1],
            format="rgb24",
            interpolation=_FILTERS[filter],
            src_colorspace=_assumed_matrix(frame),
            threads=1,
        )
        return scaled.to_ndarray()


def orientation(frame: av.VideoFrame) -> Orientation:
    """From the frame's display matrix."""
    try:
        matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:  # PyAV 18 knows no EXIF side data and fails on the whole frame
        return Orientation()
    return Orientation.of(bytes(matrix)) if matrix else Orientation()


def _assumed_matrix(frame: av.VideoFrame) -> Colorspace | None:
    """Untagged HD is BT.709; swscale by itself takes everything untagged for BT.601."""
    untagged = frame.colorspace == _MATRIX_UNSPECIFIED and not frame.format.is_rgb
    is_hd = frame.height >= 720 or frame.width >= 1280
    return Colorspace.ITU709 if untagged and is_hd else None
