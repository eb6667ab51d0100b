"""`reelserve sample`: a small video with hard cuts at known times, for whoever has none at hand."""

import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import av
import numpy as np

Array = np.ndarray
WIDTH_PX, HEIGHT_PX, FPS = 640, 360, 25
Y, X = np.mgrid[0:HEIGHT_PX, 0:WIDTH_PX].astype(np.float32)


def run(out: Path) -> int:
    """Write the video to `out` and say where its cuts are."""
    try:
        write(out)
    except OSError as error:
        print(f"Cannot write {out}: {error.strerror}.", file=sys.stderr)
        return 1
    times = ", ".join(f"{seconds:.1f}" for seconds in CUTS_SECONDS)
    kilobytes = out.stat().st_size / 1000
    print(f"{out}: {DURATION_SECONDS:.1f} s, {kilobytes:.0f} kB, cuts at {times} s")
    return 0


def write(out: Path) -> None:
    """Encode all scenes as H.264 in MP4."""
    with av.open(str(out), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream = container.add_stream(
            "libx264", rate=FPS, options={"preset": "veryfast", "crf": "20"}
        )
        stream.width, stream.height, stream.pix_fmt = WIDTH_PX, HEIGHT_PX, "yuv420p"
        for picture in _pictures():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def _pictures() -> Iterator[Array]:
    for scene, duration_seconds in SCENES:
        for frame in range(round(duration_seconds * FPS)):
            yield np.clip(scene(frame / FPS), 0, 255).astype(np.uint8)


def _stripes(t: float) -> Array:
    wave = 0.5 + 0.5 * np.sin((X + 0.5 * Y + 60 * t) / 28)
    return _mix(wave, dark=(40, 60, 20), light=(220, 120, 40))


def _ball(t: float) -> Array:
    ball = np.hypot(X - (160 + 80 * t), Y - 180) < 90
    return _mix(ball, dark=(30, 90, 185), light=(250, 220, 60))


def _board(t: float) -> Array:
    squares = ((X + 30 * t) // 80 + (Y + 15 * t) // 80) % 2
    return _mix(squares, dark=(60, 90, 60), light=(230, 220, 220))


def _hills(t: float) -> Array:
    along = X + 40 * t
    horizon = 220 + 50 * np.sin(along / 90) + 15 * np.sin(along / 23)
    return _mix(horizon < Y, dark=(150, 180, 240), light=(30, 110, 40))


def _rings(t: float) -> Array:
    wave = 0.5 + 0.5 * np.sin(np.hypot(X - 320, Y - 180) / 16 - 3 * t)
    return _mix(wave, dark=(0, 20, 40), light=(120, 50, 240))


def _mix(share: Array, *, dark: tuple[int, int, int], light: tuple[int, int, int]) -> Array:
    """(H, W) shares of `light` over `dark` -> RGB (H, W, 3)."""
    part = share[..., None].astype(np.float32)
    return part * np.array(light, np.float32) + (1 - part) * np.array(dark, np.float32)


# Differing in colour, shape and motion, and slow within: TransNetV2 sees every cut and no other.
SCENES: tuple[tuple[Callable[[float], Array], float], ...] = (
    (_stripes, 2.0),
    (_ball, 2.4),
    (_board, 1.6),
    (_hills, 3.2),
    (_rings, 2.8),
)
*CUTS_SECONDS, DURATION_SECONDS = accumulate(seconds for _, seconds in SCENES)
