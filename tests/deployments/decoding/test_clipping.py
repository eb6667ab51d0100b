"""Clips against a reference that has the whole video in memory."""

from collections.abc import Sequence

import numpy as np
import pytest

from deployments.decoding.clipping import ClipCutter, Picture, num_samples_until, shown
from deployments.frames import ClipHeader, ClipSpec

SHOTS = ClipSpec(length=100, stride=50, context=25, size=(1, 2))
TAGS = ClipSpec(length=1, stride=1, fps=1, size=(1, 2))
Clips = list[tuple[ClipHeader, list[np.ndarray]]]


def picture(index: int, pts_seconds: float, duration_seconds: float) -> Picture:
    def rgb(spec: ClipSpec) -> np.ndarray:
        return np.full((*spec.size, 3), index % 256, np.uint8)

    return Picture(pts_seconds=pts_seconds, duration_seconds=duration_seconds, rgb=rgb)


def constant(num_frames: int, fps: float = 25.0) -> list[Picture]:
    return [picture(n, n / fps, 1 / fps) for n in range(num_frames)]


def cut(pictures: Sequence[Picture], spec: ClipSpec, first_clip: int = 0, **range_: float) -> Clips:
    cutter = ClipCutter("p", spec, first_clip=first_clip, **range_)
    found: Clips = []
    for frame in shown(iter(pictures), end_seconds=range_.get("end_seconds")):
        found += cutter.see(frame)
    return found + list(cutter.finish())


def expected(num_samples: int, spec: ClipSpec) -> list[list[int]]:
    """Sample numbers of each clip: every sample in a core, repeated at both ends."""
    found, begin = [], 0
    while begin < num_samples and (not found or begin - spec.stride + spec.core < num_samples):
        window = range(begin - spec.context, begin - spec.context + spec.length)
        found.append([min(max(n, 0), num_samples - 1) for n in window])
        begin += spec.stride
    return found


@pytest.mark.parametrize("num_frames", [1, 2, 49, 50, 51, 99, 100, 101, 150, 301])
@pytest.mark.parametrize(
    "spec",
    [
        SHOTS,
        ClipSpec(length=16, stride=16, size=(1, 1)),
        ClipSpec(length=16, stride=4, size=(1, 1)),
        ClipSpec(length=8, stride=32, size=(1, 1)),
        ClipSpec(length=7, stride=3, context=2, size=(1, 1)),
    ],
    ids=["shots", "side by side", "overlapping", "sparse", "context"],
)
def test_clips_are_the_windows_over_the_whole_video(num_frames: int, spec: ClipSpec) -> None:
    found = cut(constant(num_frames), spec)
    assert [list(header.frame_indices) for header, _ in found] == expected(num_frames, spec)
    for header, frames in found:
        assert [int(rgb[0, 0, 0]) for rgb in frames] == [n % 256 for n in header.frame_indices]


@pytest.mark.parametrize("num_frames", [1, 50, 101, 301])
def test_resumed_at_any_clip_the_rest_is_the_same(num_frames: int) -> None:
    whole = cut(constant(num_frames), SHOTS)
    for first_clip in range(len(whole) + 1):
        rest = cut(constant(num_frames), SHOTS, first_clip)
        assert [header for header, _ in rest] == [header for header, _ in whole[first_clip:]]
        for (_, ours), (_, theirs) in zip(rest, whole[first_clip:], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_resumed_pass_converts_no_frame_that_only_earlier_clips_see() -> None:
    converted = []

    def count(index: int) -> Picture:
        whole = picture(index, index / 25, 1 / 25)
        return Picture(
            pts_seconds=whole.pts_seconds,
            duration_seconds=whole.duration_seconds,
            rgb=lambda spec: converted.append(index) or whole.rgb(spec),
        )

    cut([count(n) for n in range(301)], SHOTS, 4)
    assert converted == list(range(4 * 50 - 25, 301))


@pytest.mark.parametrize("fps", [24.0, 25.0, 30000 / 1001, 60.0, 0.2])
@pytest.mark.parametrize("asked", [1.0, 2.0, 29.97, 0.5])
def test_a_sample_is_the_frame_that_is_on_screen_at_its_instant(fps: float, asked: float) -> None:
    num_frames = 40
    found = cut(constant(num_frames, fps), ClipSpec(length=1, stride=1, fps=asked, size=(1, 1)))
    indices = [header.frame_indices[0] for header, _ in found]
    # 1e-6 s of tolerance: an instant that is a frame's own shows that frame
    instants = np.arange(len(indices)) / asked + 1e-6
    assert indices == [min(int(t * fps), num_frames - 1) for t in instants]
    end_seconds = num_frames / fps
    assert (len(indices) - 1) / asked < end_seconds <= len(indices) / asked + 1e-6


def test_variable_frame_rate_is_sampled_by_time_not_by_number() -> None:
    times = [0.0, 0.1, 0.2, 2.5, 2.6, 7.0]
    pictures = [picture(n, pts, 0.1) for n, pts in enumerate(times)]
    found = cut(pictures, TAGS)
    assert [header.frame_indices[0] for header, _ in found] == [0, 2, 2, 4, 4, 4, 4, 5]
    assert [header.pts_seconds[0] for header, _ in found][-2:] == [2.6, 7.0]


def test_a_range_is_half_open_and_keeps_the_times_of_the_video() -> None:
    found = cut(constant(251), TAGS, start_seconds=2.5, end_seconds=5.0)
    assert [header.pts_seconds[0] for header, _ in found] == pytest.approx([2.48, 3.48, 4.48])
    every = cut(constant(251), SHOTS, start_seconds=2.0, end_seconds=4.0)
    assert sorted({n for header, _ in every for n in header.frame_indices}) == [*range(50, 100)]


def test_an_end_beyond_the_video_is_the_end_of_the_video() -> None:
    assert [h for h, _ in cut(constant(60), SHOTS, end_seconds=99.0)] == [
        h for h, _ in cut(constant(60), SHOTS)
    ]


def test_a_cutter_holds_no_more_than_a_clip_of_a_long_video() -> None:
    cutter = ClipCutter("p", SHOTS)
    most = 0
    for frame in shown(iter(constant(5000)), end_seconds=None):
        list(cutter.see(frame))
        most = max(most, len(cutter._held))
    assert most <= SHOTS.length


@pytest.mark.parametrize("k", [0, 1, 3, 1000, 123456])
def test_an_instant_at_the_very_end_of_a_frame_belongs_to_the_next(k: int) -> None:
    fps = 30000 / 1001
    assert num_samples_until(k / fps, start_seconds=0.0, fps=fps) == k


def test_a_clip_spec_without_a_core_is_refused() -> None:
    with pytest.raises(ValueError, match="context 5 leaves no core in a clip of 10"):
        ClipSpec(length=10, stride=1, context=5, size=(1, 1))
