"""When each frame is shown, whatever its packets say."""

from fractions import Fraction

import av


class Clock:
    """Times of frames, counted from the first one; missing and backward ones are repaired."""

    def __init__(self, first: av.VideoFrame, stream: av.VideoStream) -> None:
        self._tick_seconds = Fraction(stream.time_base or Fraction(1, 1000))
        self._origin = first.pts or 0
        rate = stream.average_rate or stream.guessed_rate or Fraction(25)
        self._usual_step = max(1, round(1 / (rate * self._tick_seconds)))
        self._last: int | None = None
        self._end = 0

    def read(self, frame: av.VideoFrame) -> tuple[float, float]:
        """(pts_seconds, duration_seconds)."""
        ticks = self._end if frame.pts is None else frame.pts - self._origin
        if self._last is not None and ticks <= self._last:
            ticks = self._last + 1
        duration = frame.duration or self._usual_step
        self._last, self._end = ticks, ticks + duration
        return self._seconds(ticks), self._seconds(duration)

    @property
    def end_seconds(self) -> float:
        return self._seconds(self._end)

    def _seconds(self, ticks: int) -> float:
        return float(ticks * self._tick_seconds)
