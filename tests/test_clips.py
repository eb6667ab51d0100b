"""The media that other tests rely on are what they claim to be, read with PyAV itself."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest

from tests import clips


class Read(NamedTuple):
    numbers: list[int]  # as drawn on the frames, read at 48x27
    pts_seconds: list[float]
    frame: av.VideoFrame  # the first
    decode_order: list[int | None]  # pts of the packets


def read(path: Path, *, stream_index: int = 0) -> Read:
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(video=stream_index) if p.size]
        decode_order = [packet.pts for packet in packets]
        container.seek(0)
        frames = list(container.decode(video=stream_index))
        small = [frame.reformat(48, 27, "rgb24").to_ndarray() for frame in frames]
        pts_seconds = [float(frame.time) for frame in frames]
    return Read([clips.frame_number(rgb) for rgb in small], pts_seconds, frames[0], decode_order)


@pytest.mark.parametrize("size", [(48, 27), (97, 63), (320, 180)], ids=str)
def test_a_number_is_read_back_at_any_size(size: tuple[int, int]) -> None:
    for index in (0, 1, 254, 5301, 65535):
        assert clips.frame_number(clips.picture(index, scene=index % 7, size=size)) == index


def test_a_picture_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame number"):
        clips.frame_number(np.full((27, 48, 3), 128, np.uint8))


@pytest.mark.parametrize("num_frames", [1, 49, 101, 301])
def test_frames_are_as_many_as_asked_for(tmp_path: Path, num_frames: int) -> None:
    found = read(clips.write_video(tmp_path / "v.mp4", num_frames=num_frames))
    assert found.numbers == list(range(num_frames))
    assert found.pts_seconds == pytest.approx([k / 25 for k in range(num_frames)])


@pytest.mark.parametrize(
    ("codec", "suffix"),
    [
        ("mpeg4", "mp4"),
        ("mpeg4", "avi"),
        ("libx264", "mkv"),
        ("libx264", "ts"),
        ("libx265", "mp4"),
        ("libvpx-vp9", "webm"),
        ("libsvtav1", "mp4"),
        ("mpeg2video", "ts"),
        ("ffv1", "mkv"),
    ],
)
def test_codecs_and_containers(tmp_path: Path, codec: str, suffix: str) -> None:
    path = clips.write_video(tmp_path / f"v.{suffix}", codec=codec, num_frames=20)
    assert read(path).numbers == list(range(20))


def test_b_frames_come_out_of_order(tmp_path: Path) -> None:
    found = read(clips.write_video(tmp_path / "v.mp4", b_frames=3))
    assert found.numbers == list(range(50))
    assert found.decode_order != sorted(found.decode_order)
    assert read(clips.write_video(tmp_path / "w.mp4")).decode_order == sorted(found.decode_order)


@pytest.mark.parametrize("b_frames", [0, 2])
def test_given_times_are_kept(tmp_path: Path, b_frames: int) -> None:
    pts_seconds = [0, 0.04, 0.5, 0.51, 2, 2.04, 7.5]
    path = clips.write_video(tmp_path / "v.mp4", pts_seconds=pts_seconds, b_frames=b_frames)
    assert read(path).pts_seconds == pytest.approx(pts_seconds)


def test_ntsc_rate_is_exact(tmp_path: Path) -> None:
    rate = Fraction(30000, 1001)
    with av.open(str(clips.write_video(tmp_path / "v.mp4", fps=rate))) as container:
        assert container.streams.video[0].average_rate == rate


@pytest.mark.parametrize("degrees", [90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_display_matrix_sets_the_picture_right(
    tmp_path: Path, degrees: int, mirrored: bool
) -> None:
    path = clips.write_video(tmp_path / "v.mp4", rotation_degrees=degrees, mirrored=mirrored)
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        matrix = np.frombuffer(bytes(frame.side_data.get("DISPLAYMATRIX")), np.int32)
    a, b, c, d = matrix[[0, 1, 3, 4]] // 65536
    shown = _applied(frame.to_ndarray(format="rgb24"), a, b, c, d)
    assert clips.frame_number(shown) == 0
    scene = clips.picture(0, size=shown.shape[1::-1])
    assert np.abs(shown.astype(int) - scene).mean() < 12


def _applied(stored: np.ndarray, a: int, b: int, c: int, d: int) -> np.ndarray:
    """FFmpeg's matrix: column p and row q go to column a*p + c*q and row b*p + d*q."""
    height, width = stored.shape[:2]
    q, p = np.mgrid[0:height, 0:width]
    column, row = a * p + c * q, b * p + d * q
    shown = np.empty((np.ptp(row) + 1, np.ptp(column) + 1, 3), np.uint8)
    shown[row - row.min(), column - column.min()] = stored
    return shown


def test_shape_and_depth_flags(tmp_path: Path) -> None:
    wide = clips.write_video(tmp_path / "sar.mp4", sample_aspect_ratio=Fraction(2, 1))
    with av.open(str(wide)) as container:
        assert container.streams.video[0].sample_aspect_ratio == 2
    odd = read(clips.write_video(tmp_path / "o.mp4", size=(97, 63), pixel_format="yuv444p"))
    assert (odd.frame.width, odd.frame.height) == (97, 63)
    deep = read(clips.write_video(tmp_path / "d.mp4", pixel_format="yuv420p10le"))
    assert deep.frame.format.name == "yuv420p10le"
    assert odd.numbers == deep.numbers == list(range(50))


def test_several_video_streams(tmp_path: Path) -> None:
    path = clips.write_two_videos(tmp_path / "v.mp4", sizes=[(96, 64), (192, 128)])
    assert read(path).numbers == list(range(25))
    assert read(path, stream_index=1).numbers == list(range(1000, 1025))


def test_a_video_track_without_frames(tmp_path: Path) -> None:
    with av.open(str(clips.write_without_frames(tmp_path / "v.mp4"))) as container:
        assert [(s.type, s.frames) for s in container.streams] == [("video", 0)]
        assert [packet for packet in container.demux() if packet.size] == []


def test_audio_only(tmp_path: Path) -> None:
    with av.open(str(clips.write_audio(tmp_path / "a.mp4"))) as container:
        assert [s.type for s in container.streams] == ["audio"]
        assert sum(f.samples for f in container.decode(audio=0)) >= 16_000


@pytest.mark.parametrize(("name", "codec"), [("s.png", "png"), ("s.jpg", "mjpeg")])
def test_a_still(tmp_path: Path, name: str, codec: str) -> None:
    path = clips.write_still(tmp_path / name)
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.name == codec
    assert read(path).numbers == [0]


def test_cut_off_with_its_index_in_front_the_first_half_decodes(tmp_path: Path) -> None:
    path = clips.cut_off(clips.write_video(tmp_path / "v.mp4", movflags="faststart"), share=0.6)
    frames = []
    with av.open(str(path)) as container, pytest.raises(av.error.InvalidDataError):
        frames.extend(container.decode(video=0))
    numbers = [clips.frame_number(frame.to_ndarray(format="rgb24")) for frame in frames]
    assert 10 < len(numbers) < 40
    assert numbers == list(range(len(numbers)))


def test_cut_off_with_its_index_at_the_end_nothing_opens(tmp_path: Path) -> None:
    path = clips.cut_off(clips.write_video(tmp_path / "v.mp4"))
    with pytest.raises(av.error.InvalidDataError):
        av.open(str(path))


def test_corrupt_in_the_middle_frames_are_damaged(tmp_path: Path) -> None:
    path = clips.corrupt(clips.write_video(tmp_path / "v.mp4", movflags="faststart"))
    with av.open(str(path)) as container, pytest.raises(av.error.InvalidDataError):
        list(container.decode(video=0))


def test_two_hours_at_a_low_frame_rate_are_small(tmp_path: Path) -> None:
    path = clips.write_video(tmp_path / "v.mp4", num_frames=1440, fps=0.2)
    found = read(path)
    assert found.numbers == list(range(1440))
    assert found.pts_seconds[-1] == 7195
    assert path.stat().st_size < 300_000


def test_scenes_change_at_the_cuts(tmp_path: Path) -> None:
    path = clips.write_video(tmp_path / "v.mp4", num_frames=60, cuts=(20, 45))
    with av.open(str(path)) as container:
        frames = [f.to_ndarray(format="rgb24").astype(int) for f in container.decode(video=0)]
    scenes = [frame[:40] for frame in frames]
    changes = [np.abs(b - a).mean() for a, b in pairwise(scenes)]
    assert [k + 1 for k, change in enumerate(changes) if change > 30] == [20, 45]
