"""Readers that break, each by one small real fault: `reader: tests.faults:Hangs`.

`HangsAtFrame7` is Hangs whose fault comes before frame 7; so for every class that has `at_frame`.
A hang is fair only if neither a signal handler in Python nor another thread can end it: it holds
the GIL, and starts again after a signal.
"""

import ctypes
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from deployments.decoding.clipping import Picture
from deployments.decoding.reader import SoftwareReader


def hang() -> None:
    """Lock a mutex twice: holds the GIL, uses no CPU, and a signal does not end it."""
    library = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


class BreaksInTheMiddle(SoftwareReader):
    """Calls `fault` before it gives frame `at_frame`."""

    at_frame = 30

    def pictures(self) -> Iterator[Picture]:
        for index, picture in enumerate(super().pictures()):
            if index == self.at_frame:
                self.fault()
            yield picture

    def fault(self) -> None:
        raise NotImplementedError


class Hangs(BreaksInTheMiddle):
    def fault(self) -> None:
        hang()


class HangsAtOpen(SoftwareReader):
    def __init__(self, path: str, *, beat: Callable[[], None]) -> None:
        hang()


class HangsAtClose(SoftwareReader):
    def close(self) -> None:
        hang()


class Spins(BreaksInTheMiddle):
    """All of a CPU, in C, with the GIL."""

    def fault(self) -> None:
        sum(itertools.repeat(0))


class ReadsForever(BreaksInTheMiddle):
    """A pipe that nobody writes to: the GIL is free."""

    def fault(self) -> None:
        reading_end, _ = os.pipe()
        os.read(reading_end, 1)


class Stops(BreaksInTheMiddle):
    def fault(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class IgnoresSigterm(Hangs):
    def fault(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().fault()


class Segfaults(BreaksInTheMiddle):
    def fault(self) -> None:
        ctypes.string_at(0)


class Aborts(BreaksInTheMiddle):
    def fault(self) -> None:
        os.abort()


class Exits(BreaksInTheMiddle):
    def fault(self) -> None:
        os._exit(3)


class Raises(BreaksInTheMiddle):
    def fault(self) -> None:
        raise RuntimeError("a fault of the decoder's own")


class FloodsStderr(BreaksInTheMiddle):
    """10 MB, and then it goes on."""

    def fault(self) -> None:
        for _ in range(160):
            os.write(2, b"error while decoding MB 3 7, bytestream -5 \n" * 1489)


class IsSlow(SoftwareReader):
    """Decodes slower than the video plays, but it moves."""

    seconds_per_frame = 0.03

    def pictures(self) -> Iterator[Picture]:
        for picture in super().pictures():
            time.sleep(self.seconds_per_frame)
            yield picture


class TalksNonsense(BreaksInTheMiddle):
    """To its supervisor, through the socket that the child was given."""

    words = b'{"kind": "Nonsense"}\n'

    def fault(self) -> None:
        os.write(int(sys.argv[1]), self.words)
        hang()


class TalksWithoutEnd(TalksNonsense):
    words = b"x" * (1 << 17)

    def fault(self) -> None:
        while True:
            os.write(int(sys.argv[1]), self.words)


class TalksDeeply(TalksNonsense):
    words = b"[" * 100_000 + b"\n"


class SendsForeignClips(TalksNonsense):
    """A clip of a part that does not exist, in a slot that does not."""

    words = (
        b'{"kind": "ClipInSlot", "slot": 999, "header": {"part": "part_z", "index": 7, '
        b'"pts_seconds": [], "frame_indices": []}}\n'
    )


def __getattr__(name: str) -> Any:
    if found := re.fullmatch(r"(\w+)AtFrame(\d+)", name):
        return type(name, (globals()[found[1]],), {"at_frame": int(found[2])})
    raise AttributeError(name)
