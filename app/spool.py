"""An upload on its way to disk: written as it arrives, and gone when its request is over.

It is locked as long as its process lives, so that one whose process was killed can be told, and
swept away, by the next that starts.
"""

import asyncio
import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ParamSpec, Self, TypeVar

from deployments.errors import StorageFull, TooLarge

P = ParamSpec("P")
T = TypeVar("T")

PIECE_BYTES = 2**20  # of an upload that are held in memory, and written at once
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def make_directory(directory: Path) -> None:
    """For this user alone: what is in it was sent to us, not to everyone on the machine."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def sweep(directory: Path) -> int:
    """Remove uploads whose process is gone. Returns how many."""
    with _locked(directory, fcntl.LOCK_EX):
        return sum(_remove_unlocked(path) for path in directory.glob("[0-9a-f]" * 32))


def readable_size(num_bytes: int) -> str:
    """`1.5 MiB (1,572,864 bytes)`: one to read, one to compare."""
    exact = f"{num_bytes:,} bytes"
    if num_bytes < 1024:
        return exact
    power = min((num_bytes.bit_length() - 1) // 10, 4)
    return f"{num_bytes / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]} ({exact})"


def too_large(what: str, num_bytes: int, limit_bytes: int) -> TooLarge:
    """`what` starts the sentence, and says whether `num_bytes` was announced or has arrived."""
    return TooLarge(
        f"{what} {readable_size(num_bytes)}; the limit is {readable_size(limit_bytes)}."
    )


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a thread. Cancelled, it ends when the thread does: no write outlives its file."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    finally:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])


class Spool:
    """One file of random name; `async with` removes it, whatever happened.

    `add` takes bytes and never waits, `drain` writes them once there are enough.
    """

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self.path = directory / secrets.token_hex(16)
        self.limit_bytes = limit_bytes
        self.num_bytes = 0
        self._waiting = bytearray()
        self._file: BinaryIO | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file:
            await off_loop(self._remove)

    def add(self, data: bytes) -> None:
        self.num_bytes += len(data)
        if self.num_bytes > self.limit_bytes:
            raise too_large("So far the video has", self.num_bytes, self.limit_bytes)
        self._waiting += data

    async def drain(self) -> None:
        if len(self._waiting) >= PIECE_BYTES:
            await self._write(self._append)

    async def finish(self) -> None:
        """Every byte is in the file that `path` names. No file where there was no byte."""
        if self.num_bytes:
            await self._write(self._flush)

    async def _write(self, step: Callable[[], None]) -> None:
        try:
            await off_loop(step)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            stored = readable_size(self.num_bytes)
            raise StorageFull(
                f"The service has no room for the video: its disk was full after {stored}."
            ) from error

    def _append(self) -> None:
        if self._file is None:
            self._file = create(self.path)
        self._file.write(self._waiting)
        self._waiting.clear()

    def _flush(self) -> None:
        self._append()
        assert self._file
        self._file.flush()

    def _remove(self) -> None:
        assert self._file
        with suppress(OSError):  # a full disk fails the flush again
            self._file.close()
        self.path.unlink(missing_ok=True)


def create(path: Path) -> BinaryIO:
    # The directory is made again where a cleaner of /tmp took it: they do, after some idle days.
    make_directory(path.parent)
    with _locked(path.parent, fcntl.LOCK_SH):  # no sweep between its first byte and its lock
        file = path.open("xb")
        with suppress(OSError):  # a file system without locks is never swept
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file


@contextmanager
def _locked(directory: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _remove_unlocked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            return True
    except OSError:  # locked: its process lives
        return False
