"""Tells a hung child from one that waits or is slow, by what it writes of itself."""

import time

from deployments.decoding.protocol import Pulse
from deployments.errors import DecodeHung


class Watch:
    """Tells a hung child from one that waits: any other's counter has to move.

    A child is not taken at its word: one that froze while it waited says so for ever.
    """

    def __init__(self, pulse: Pulse, *, stall_seconds: float) -> None:
        self._pulse, self._stall_seconds = pulse, stall_seconds
        self._seen, self._since = pulse.count, time.monotonic()

    def look(self, *, may_wait: bool) -> None:
        """`may_wait`: the child has no slot to fill. Raises DecodeHung."""
        now = time.monotonic()
        waits = self._pulse.state == "waiting_for_input" or (
            may_wait and self._pulse.state == "waiting_for_slot"
        )
        if self._pulse.count != self._seen or waits:
            self._seen, self._since = self._pulse.count, now
        elif now - self._since >= self._stall_seconds:
            raise DecodeHung(
                f"The decoder made no progress for {self._stall_seconds:g} s "
                f"at {self._pulse.pts_seconds:.2f} s of the video."
            )
