"""Colours, orientation and fit, against pictures that a person can check."""

import struct
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace

from deployments.decoding.pixels import Orientation, fit_into, scaled_size, shown_size
from deployments.decoding.reader import SoftwareReader
from deployments.frames import ClipSpec, Fit

ONE = 1 << 16  # 16.16 fixed point
PATCHES = np.array(
    [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 255, 255], [128, 128, 128]], np.uint8
)
MOST_OFF = 2  # of 255; a wrong matrix is at least 19 off, a wrong range 16


def matrix(a: int, b: int, c: int, d: int) -> bytes:
    return struct.pack("=9i", a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)


@pytest.mark.parametrize(
    ("abcd", "corners"),
    [
        ((1, 0, 0, 1), "ab cd"),
        ((0, 1, -1, 0), "ca db"),  # a phone held upright: a quarter turn clockwise
        ((-1, 0, 0, -1), "dc ba"),
        ((0, -1, 1, 0), "bd ac"),
        ((-1, 0, 0, 1), "ba dc"),
        ((1, 0, 0, -1), "cd ab"),
        ((0, 1, 1, 0), "ac bd"),
        ((0, -1, -1, 0), "db ca"),
    ],
    ids=lambda value: str(value),
)
def test_each_display_matrix_moves_the_corners_where_it_says(abcd, corners: str) -> None:
    stored = np.array([list("ab"), list("cd")])[..., None]
    turned = Orientation.of(matrix(*abcd)).turn(stored)[..., 0]
    assert " ".join("".join(row) for row in turned) == corners


@pytest.mark.parametrize("data", [b"", b"short"], ids=repr)
def test_without_a_whole_matrix_nothing_is_turned(data: bytes) -> None:
    assert Orientation.of(data) == Orientation()


@pytest.mark.parametrize(
    ("sar", "transpose", "size"),
    [
        (None, False, (64, 96)),
        (Fraction(2), False, (64, 192)),
        (Fraction(1, 2), False, (64, 48)),
        (Fraction(2), True, (192, 64)),
        (Fraction(100), False, (64, 96)),
    ],
)
def test_a_picture_is_shown_with_square_pixels(sar, transpose, size) -> None:
    assert shown_size(96, 64, sar, Orientation(transpose=transpose)) == size


@pytest.mark.parametrize(
    ("fit", "shown", "scaled"),
    [
        ("stretch", (1080, 1920), (224, 224)),
        ("centre_crop", (1080, 1920), (224, 398)),
        ("centre_crop", (1920, 1080), (398, 224)),
        ("letterbox", (1080, 1920), (126, 224)),
        ("letterbox", (1, 4000), (1, 224)),
    ],
)
def test_a_picture_is_scaled_to_cover_or_to_lie_within(fit: Fit, shown, scaled) -> None:
    assert scaled_size(shown, (224, 224), fit) == scaled


def test_what_is_too_large_is_cut_and_what_is_too_small_is_padded_evenly() -> None:
    rgb = np.arange(1, 6, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    assert fit_into(rgb, (1, 3))[0, :, 0].tolist() == [2, 3, 4]
    assert fit_into(rgb, (3, 5))[:, 0, 0].tolist() == [0, 1, 0]


def write_patches(
    path: Path,
    space: Colorspace,
    range_: ColorRange = ColorRange.MPEG,
    pixel_format: str = "yuv420p",
    *,
    size: int = 32,
    tagged: bool = True,
) -> None:
    """A lossless file of six square patches in a row, tagged as converted."""
    rgb = PATCHES.repeat(size, axis=0)[None].repeat(size, axis=0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = rgb.shape[1], rgb.shape[0], pixel_format
        if tagged:
            stream.codec_context.colorspace = int(space)
        stream.codec_context.color_range = int(range_)
        frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(
            format=pixel_format, dst_colorspace=space, dst_color_range=range_
        )
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv444p", "yuv420p10le"])
@pytest.mark.parametrize("range_", [ColorRange.MPEG, ColorRange.JPEG], ids=lambda r: r.name)
@pytest.mark.parametrize("space", [Colorspace.ITU601, Colorspace.ITU709], ids=lambda s: s.name)
def test_known_colours_come_out_as_they_went_in(
    tmp_path: Path, space: Colorspace, range_: ColorRange, pixel_format: str
) -> None:
    path = tmp_path / "patches.mkv"
    write_patches(path, space, range_, pixel_format)
    assert most_off(path) <= MOST_OFF


@pytest.mark.parametrize(
    ("size", "space"), [(32, Colorspace.ITU601), (214, Colorspace.ITU709)], ids=["SD", "HD"]
)
def test_without_a_tag_a_wide_picture_is_bt709_and_a_small_one_bt601(
    tmp_path: Path, size: int, space: Colorspace
) -> None:
    path = tmp_path / "patches.mkv"
    write_patches(path, space, size=size, tagged=False)
    assert most_off(path) <= MOST_OFF


def most_off(path: Path) -> int:
    spec = ClipSpec(length=1, stride=1, size=(32, 192), filter="bilinear")
    with closing(SoftwareReader(str(path), beat=lambda: None)) as reader:
        rgb = next(reader.pictures()).rgb(spec)
    return int(np.abs(rgb[16, 16::32].astype(int) - PATCHES).max())
