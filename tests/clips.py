"""Real media for tests, made by PyAV's encoders: every frame carries its own number.

+-----------------------+
|  the scene: colour,   |    changes at each index in `cuts`
|  stripes that drift   |
|-----------------------|
|##..##..               |    16 bits, black or white, most significant first:
|##..##..               |    `frame_number` reads them at any size from 48x27 on
+-----------------------+
"""

import colorsys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

ROWS, COLUMNS = 2, 8  # of the bits
FINE_TIME_BASE = Fraction(1, 90_000)


def picture(index: int, *, scene: int = 0, size: tuple[int, int] = (96, 64)) -> np.ndarray:
    """RGB (H, W, 3) of frame `index`; `size` is (width, height)."""
    width, height = size
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    stripes = np.sin(2 * np.pi * ((x if scene % 2 else y) * (2 + scene % 3) + index / 100))
    hue = colorsys.hsv_to_rgb(scene * 0.382 % 1, 0.8, 1)
    rgb = (150 + 60 * stripes)[..., None] * np.array(hue)
    bits = [(index >> bit) & 1 for bit in reversed(range(ROWS * COLUMNS))]
    row = np.minimum((3 * y - 2) * ROWS, ROWS - 1).astype(int)
    column = np.minimum(x * COLUMNS, COLUMNS - 1).astype(int)
    white = np.array(bits)[np.maximum(row, 0) * COLUMNS + column]
    return np.where((3 * y >= 2)[..., None], 255 * white[..., None], rgb).astype(np.uint8)


def frame_number(rgb: np.ndarray) -> int:
    """The index that `picture` drew, from RGB (H, W, 3). ValueError where a bit is neither."""
    height, width = rgb.shape[:2]
    rows = [int(height * (2 + (row + 0.5) / ROWS) / 3) for row in range(ROWS)]
    columns = [int(width * (column + 0.5) / COLUMNS) for column in range(COLUMNS)]
    grey = rgb[np.ix_(rows, columns)].mean(axis=-1).ravel()
    if np.any((grey > 90) & (grey < 165)):
        raise ValueError(f"no frame number in {grey.round()}")
    return int("".join("1" if value > 127 else "0" for value in grey), 2)


def write_video(
    path: Path,
    *,
    num_frames: int = 50,
    fps: Fraction | float = 25,
    pts_seconds: Sequence[float] | None = None,
    cuts: Sequence[int] = (),
    size: tuple[int, int] = (96, 64),
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    b_frames: int = 0,
    gop: int = 25,
    rotation_degrees: int = 0,
    mirrored: bool = False,
    sample_aspect_ratio: Fraction | None = None,
    movflags: str = "",
    title: str = "",
) -> Path:
    """Numbered frames at `fps`, or one at each of `pts_seconds`.

    `size` is (width, height) as stored. A player turns it by `rotation_degrees` clockwise, then
    mirrors it if `mirrored`, and then the number reads right.
    """
    options = {"movflags": movflags} if movflags else {}
    num_frames = num_frames if pts_seconds is None else len(pts_seconds)
    with av.open(str(path), "w", options=options) as container:
        if title:
            container.metadata["title"] = title
        stream = _add_stream(container, codec, size, pixel_format, fps, gop, b_frames)
        if pts_seconds is not None:
            stream.codec_context.time_base = FINE_TIME_BASE
        if sample_aspect_ratio:
            stream.codec_context.sample_aspect_ratio = sample_aspect_ratio
        if rotation_degrees or mirrored:
            stream.set_display_rotation(-rotation_degrees, mirrored)
        container.start_encoding()
        for index in range(num_frames):
            rgb = _stored(index, cuts, size, rotation_degrees, mirrored)
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            if pts_seconds is not None:
                frame.time_base = FINE_TIME_BASE
                frame.pts = round(pts_seconds[index] / FINE_TIME_BASE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_two_videos(path: Path, *, sizes: Sequence[tuple[int, int]], num_frames: int = 25) -> Path:
    """Several video streams in one file; the numbers of stream k start at 1000 * k."""
    with av.open(str(path), "w") as container:
        streams = [_add_stream(container, "libx264", size, "yuv420p", 25, 25, 0) for size in sizes]
        container.start_encoding()
        for k, (stream, size) in enumerate(zip(streams, sizes, strict=True)):
            for index in range(num_frames):
                rgb = picture(1000 * k + index, scene=k, size=size)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
            container.mux(stream.encode(None))
    return path


def write_without_frames(path: Path) -> Path:
    """A video track that has no samples. Only a fragmented MP4 keeps such a track."""
    return write_video(path, num_frames=0, movflags="empty_moov+frag_keyframe")


def write_audio(path: Path, *, seconds: float = 1) -> Path:
    """A tone, no picture."""
    rate = 16_000
    tone = np.sin(np.arange(int(seconds * rate)) / 8, dtype=np.float32)[None]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_still(path: Path) -> Path:
    """A PNG or a JPEG, whatever `path` is called."""
    av.VideoFrame.from_ndarray(picture(0), format="rgb24").save(str(path))
    return path


def cut_off(path: Path, *, share: float = 0.5) -> Path:
    """Keep the first `share` of the bytes. Without movflags="faststart" the index is gone."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def corrupt(path: Path, *, at: float = 0.5, num_bytes: int = 400) -> Path:
    """Overwrite bytes from the share `at` of the file on."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    data[start : start + num_bytes] = np.random.default_rng(0).bytes(num_bytes)
    path.write_bytes(data)
    return path


def _add_stream(
    container: Any,
    codec: str,
    size: tuple[int, int],
    pixel_format: str,
    fps: Fraction | float,
    gop: int,
    b_frames: int,
) -> Any:
    rate = Fraction(fps).limit_denominator(1001)
    stream = container.add_stream(codec, rate=rate, options=QUIET_AND_FAST.get(codec, {}))
    stream.width, stream.height = size
    stream.pix_fmt = pixel_format
    stream.codec_context.gop_size = gop
    stream.codec_context.max_b_frames = b_frames
    return stream


QUIET_AND_FAST = {
    "libx264": {"preset": "veryfast", "sc_threshold": "0", "b_strategy": "0"},
    "libx265": {"preset": "ultrafast", "x265-params": "log-level=none"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8"},
    "libsvtav1": {"preset": "8", "crf": "10"},
}


def _stored(
    index: int, cuts: Sequence[int], size: tuple[int, int], rotation_degrees: int, mirrored: bool
) -> np.ndarray:
    turns = rotation_degrees // 90
    shown_size = size if turns % 2 == 0 else size[::-1]
    shown = picture(index, scene=sum(cut <= index for cut in cuts), size=shown_size)
    return np.ascontiguousarray(np.rot90(shown[:, ::-1] if mirrored else shown, turns))
