"""Which frames a part sees, and how they become clips. Pure: no decoder, no pixels of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from deployments.frames import ClipHeader, ClipSpec

CLOCK_TOLERANCE_SECONDS = 1e-6
"""k / fps and pts * time_base may name the same instant and differ in the last bit."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A decoded frame in presentation order; `rgb` makes its pixels when a part wants it."""

    pts_seconds: float  # from the first frame of the video
    duration_seconds: float
    rgb: Callable[[ClipSpec], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class ShownFrame:
    """A picture of the video and the half-open time that it is on screen."""

    frame_index: int
    pts_seconds: float
    until_seconds: float
    rgb: Callable[[ClipSpec], np.ndarray]


def shown(pictures: Iterator[Picture], *, end_seconds: float | None) -> Iterator[ShownFrame]:
    """Each picture before `end_seconds`. One is held back: it is shown until the next one is."""
    held = next(pictures)
    index = 0
    for picture in pictures:
        yield _shown(index, held, until_seconds=picture.pts_seconds)
        if end_seconds is not None and picture.pts_seconds >= end_seconds:
            return
        held, index = picture, index + 1
    yield _shown(index, held, until_seconds=held.pts_seconds + held.duration_seconds)


def _shown(index: int, picture: Picture, *, until_seconds: float) -> ShownFrame:
    return ShownFrame(
        frame_index=index,
        pts_seconds=picture.pts_seconds,
        until_seconds=until_seconds,
        rgb=picture.rgb,
    )


@dataclass(frozen=True, kw_only=True)
class Sample:
    frame_index: int
    pts_seconds: float
    rgb: np.ndarray | None  # None: no clip wants it


def num_samples_until(until_seconds: float, *, start_seconds: float, fps: float) -> int:
    """How many of the instants start + k / fps lie before `until_seconds`."""
    count = max(0, round((until_seconds - start_seconds) * fps) - 1)
    while start_seconds + count / fps < until_seconds - CLOCK_TOLERANCE_SECONDS:
        count += 1
    return count


class ClipCutter:
    """Cuts the clips of one part out of the frames of one pass over [start, end).

    Memory: the samples of one clip, whatever the length of the video.
    """

    def __init__(
        self,
        part: str,
        spec: ClipSpec,
        *,
        first_clip: int = 0,
        start_seconds: float = 0.0,
        end_seconds: float | None = None,
    ) -> None:
        self._part, self._spec = part, spec
        self._start_seconds = start_seconds
        self._end_seconds = float("inf") if end_seconds is None else end_seconds
        self._clip = first_clip
        self._seen = 0  # samples so far
        self._held: list[Sample] = []  # the last of them, from self._seen - len(self._held) on

    def see(self, frame: ShownFrame) -> Iterator[tuple[ClipHeader, list[np.ndarray]]]:
        """The clips that this frame completes."""
        for sample in self._samples(frame):
            self._held.append(sample)
            self._seen += 1
            while self._last_of(self._clip) < self._seen:
                yield self._cut()
            self._forget()

    def finish(self) -> Iterator[tuple[ClipHeader, list[np.ndarray]]]:
        """The clips that reach over the end of the video."""
        while self._has_own_samples(self._clip):
            yield self._cut()

    def _samples(self, frame: ShownFrame) -> Iterator[Sample]:
        rgb = None
        for n in range(self._seen, self._seen + self._times_sampled(frame)):
            if rgb is None and n >= self._first_of(self._clip):
                rgb = frame.rgb(self._spec)
            yield Sample(frame_index=frame.frame_index, pts_seconds=frame.pts_seconds, rgb=rgb)

    def _times_sampled(self, frame: ShownFrame) -> int:
        if self._spec.fps is None:
            ends_after_start = frame.until_seconds > self._start_seconds + CLOCK_TOLERANCE_SECONDS
            begins_before_end = frame.pts_seconds < self._end_seconds - CLOCK_TOLERANCE_SECONDS
            return int(ends_after_start and begins_before_end)
        until_seconds = min(frame.until_seconds, self._end_seconds)
        return (
            num_samples_until(until_seconds, start_seconds=self._start_seconds, fps=self._spec.fps)
            - self._seen
        )

    def _first_of(self, clip: int) -> int:
        return max(0, clip * self._spec.stride - self._spec.context)

    def _last_of(self, clip: int) -> int:
        return clip * self._spec.stride - self._spec.context + self._spec.length - 1

    def _has_own_samples(self, clip: int) -> bool:
        begin = clip * self._spec.stride
        covered = 0 if clip == 0 else begin - self._spec.stride + self._spec.core
        return max(begin, covered) < self._seen

    def _cut(self) -> tuple[ClipHeader, list[np.ndarray]]:
        begin = self._clip * self._spec.stride - self._spec.context
        oldest = self._seen - len(self._held)
        samples = [
            self._held[min(max(n, 0), self._seen - 1) - oldest]
            for n in range(begin, begin + self._spec.length)
        ]
        header = ClipHeader(
            part=self._part,
            index=self._clip,
            pts_seconds=tuple(sample.pts_seconds for sample in samples),
            frame_indices=tuple(sample.frame_index for sample in samples),
        )
        self._clip += 1
        return header, [sample.rgb for sample in samples if sample.rgb is not None]

    def _forget(self) -> None:
        oldest = self._seen - len(self._held)
        # The last sample stays: at the end of the video it may have to be repeated.
        del self._held[: min(self._first_of(self._clip) - oldest, len(self._held) - 1)]
