"""The software reader over real files: every frame once, upright, at its time, or a sentence."""

import gc
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition

from deployments.decoding.reader import SoftwareReader
from deployments.errors import (
    NoFrames,
    NotAVideo,
    NoVideoStream,
    StillImage,
    UnreadableVideo,
    VideoError,
)
from deployments.frames import ClipSpec, VideoInfo
from tests import clips

SPEC = ClipSpec(length=1, stride=1, size=(54, 96))


def beat() -> None: ...


def read(path: Path) -> tuple[VideoInfo, list[int], list[float], list[str]]:
    """(info, the number drawn on each frame, its time, warnings)."""
    with closing(SoftwareReader(str(path), beat=beat)) as reader:
        pictures = [(clips.frame_number(p.rgb(SPEC)), p.pts_seconds) for p in reader.pictures()]
        return reader.info, [n for n, _ in pictures], [pts for _, pts in pictures], reader.warnings


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("h264.mp4", {}),
        ("b_frames.mp4", {"b_frames": 3}),
        ("odd.mp4", {"size": (97, 65), "pixel_format": "yuv444p"}),
        ("ten_bit.mkv", {"codec": "libx265", "pixel_format": "yuv420p10le"}),
        ("mpeg4.avi", {"codec": "mpeg4"}),
        ("mpeg2.ts", {"codec": "mpeg2video"}),
        ("vp9.webm", {"codec": "libvpx-vp9"}),
        ("ffv1.mkv", {"codec": "ffv1"}),
        ("fragmented.mp4", {"movflags": "frag_keyframe+empty_moov"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_frame_comes_once_in_order_at_its_time(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    info, numbers, times, warnings = read(clips.write_video(tmp_path / name, **options))
    assert numbers == list(range(50))
    assert times == pytest.approx([n / 25 for n in range(50)], abs=2e-3)
    assert warnings == []
    assert info.average_fps == pytest.approx(25)


def test_a_variable_frame_rate_keeps_each_frame_s_own_time(tmp_path: Path) -> None:
    asked = [0.0, 0.04, 0.5, 0.52, 3.0, 7.25]
    _, numbers, times, _ = read(clips.write_video(tmp_path / "vfr.mp4", pts_seconds=asked))
    assert numbers == list(range(6))
    assert times == pytest.approx(asked, abs=1e-4)


def test_times_count_from_the_first_frame_and_the_header_s_start_is_kept(tmp_path: Path) -> None:
    asked = [5.0 + n / 25 for n in range(10)]
    info, _, times, _ = read(clips.write_video(tmp_path / "late.mkv", pts_seconds=asked))
    assert times == pytest.approx([n / 25 for n in range(10)], abs=2e-3)
    assert info.start_seconds_from_header == pytest.approx(5.0, abs=2e-3)


@pytest.mark.parametrize("mirrored", [False, True], ids=["plain", "mirrored"])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_a_turned_video_is_shown_upright(tmp_path: Path, degrees: int, mirrored: bool) -> None:
    path = tmp_path / "turned.mp4"
    clips.write_video(path, num_frames=8, rotation_degrees=degrees, mirrored=mirrored)
    info, numbers, _, _ = read(path)
    assert numbers == list(range(8))
    turned = degrees in (90, 270)
    assert (info.width, info.height) == ((64, 96) if turned else (96, 64))
    assert (info.coded_width, info.coded_height) == (96, 64)


def test_pixels_that_are_not_square_are_made_so(tmp_path: Path) -> None:
    path = clips.write_video(tmp_path / "sar.mp4", sample_aspect_ratio=Fraction(2))
    info, numbers, _, _ = read(path)
    assert (info.width, info.height) == (192, 64)
    assert numbers == list(range(50))


def test_a_file_that_breaks_off_is_read_up_to_there(tmp_path: Path) -> None:
    whole = clips.write_video(tmp_path / "v.mp4", num_frames=250, movflags="faststart")
    _, numbers, _, warnings = read(clips.cut_off(whole, share=0.6))
    assert numbers == list(range(len(numbers)))
    assert 50 < len(numbers) < 250
    assert "promises 10.00 s, but the video breaks off at" in warnings[-1]


def test_damage_in_the_middle_costs_no_frame_after_the_next_key_frame(tmp_path: Path) -> None:
    whole = clips.write_video(tmp_path / "v.mkv", num_frames=250)
    with closing(SoftwareReader(str(clips.corrupt(whole)), beat=beat)) as reader:
        pictures = list(reader.pictures())
        last = pictures[-1]
        assert clips.frame_number(last.rgb(SPEC)) == 249
        assert last.pts_seconds == pytest.approx(249 / 25, abs=2e-3)


def test_of_several_videos_the_one_that_players_show_is_read(tmp_path: Path) -> None:
    path = clips.write_two_videos(tmp_path / "v.mp4", sizes=[(96, 64), (192, 128)])
    info, numbers, _, _ = read(path)
    assert info.width == 96  # the first is marked as the default
    assert numbers == list(range(25))


def test_a_frame_is_freed_when_the_next_one_comes(tmp_path: Path) -> None:
    """Without the garbage collector: a cycle would keep every frame for thousands more."""
    path = clips.write_video(tmp_path / "v.mp4", rotation_degrees=90)
    gc.collect()
    gc.disable()
    try:
        with closing(SoftwareReader(str(path), beat=beat)) as reader:
            for picture in reader.pictures():
                picture.rgb(SPEC)
                alive = sum(isinstance(thing, av.VideoFrame) for thing in gc.get_objects())
        assert alive < 10
    finally:
        gc.enable()


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
def test_a_title_that_is_not_utf8_hides_no_frame(tmp_path: Path, suffix: str) -> None:
    path = clips.write_video(tmp_path / f"v.{suffix}", title="NINE BYTES")
    path.write_bytes(path.read_bytes().replace(b"NINE BYTES", b"NINE BYT\xe9S"))
    assert read(path)[1] == list(range(50))


def text(path: Path) -> Path:
    path.write_text("this is no video\n" * 100)
    return path


def cover_art(path: Path) -> Path:
    """A song with its picture."""
    with av.open(str(path), "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=16_000, layout="mono")
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 96, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        silence = av.AudioFrame.from_ndarray(
            np.zeros((1, 16_000), np.float32), format="fltp", layout="mono"
        )
        silence.sample_rate = 16_000
        container.mux([*sound.encode(silence), *sound.encode(None)])
        picture = av.VideoFrame.from_ndarray(clips.picture(0), format="rgb24")
        container.mux([*cover.encode(picture), *cover.encode(None)])
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def without_index(path: Path) -> Path:
    return clips.cut_off(clips.write_video(path), share=0.7)


def playlist(path: Path) -> Path:
    path.write_text("#EXTM3U\n#EXTINF:1,\nv.mp4\n#EXT-X-ENDLIST\n")
    return path


def concat(path: Path) -> Path:
    clips.write_video(path.with_name("v.mp4"), num_frames=2)
    path.write_text("ffconcat version 1.0\nfile v.mp4\n")
    return path


@pytest.mark.parametrize(
    ("make", "name", "error", "sentence"),
    [
        (text, "text.mp4", NotAVideo, "no video format"),
        (empty, "empty.mp4", NotAVideo, "no video format"),
        (clips.write_still, "still.png", StillImage, r"still image \(PNG\)"),
        (clips.write_still, "still.jpg", StillImage, r"still image \(JPEG\)"),
        (clips.write_audio, "sound.m4a", NoVideoStream, "only sound"),
        (clips.write_audio, "sound.wav", NoVideoStream, "only sound"),
        (cover_art, "song.m4a", NoVideoStream, "cover art, only sound"),
        (clips.write_without_frames, "none.mp4", NoFrames, "not one frame"),
        (without_index, "cut.mp4", UnreadableVideo, "cut off before it was whole"),
        (playlist, "list.m3u8", NotAVideo, "no video format"),
        (concat, "list.mp4", NotAVideo, "no video format"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_is_no_video_is_refused_with_a_sentence(
    tmp_path: Path, make: Any, name: str, error: type[VideoError], sentence: str
) -> None:
    path = make(tmp_path / name)
    with pytest.raises(error, match=sentence):
        read(path)


def test_every_packet_and_every_frame_is_a_beat(tmp_path: Path) -> None:
    beats = []
    path = clips.write_video(tmp_path / "v.mp4")
    with closing(SoftwareReader(str(path), beat=lambda: beats.append(1))) as reader:
        list(reader.pictures())
    assert len(beats) >= 2 * 50
