"""One decode child as its supervisor sees it: a process, a socket, and shared memory."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator

from deployments.decoding import protocol
from deployments.decoding.protocol import PAGE_BYTES, ClipInSlot, Job, Pulse
from deployments.decoding.slots import Slots
from deployments.decoding.watch import Watch
from deployments.errors import VIDEO_ERRORS, DecodeCrashed, DecodeHung, VideoError
from deployments.frames import Clip, DecodeReport, Progress, VideoInfo

_TICK_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
_START_SECONDS = 60.0  # imports, on a machine that is starting everything else too
_REAP_SECONDS = 2.0
_EXIT_SECONDS = 0.5  # the socket ends a moment before the process does
_LINE_BYTES = 1 << 20


class ChildProcess:
    """Made by `start`. One conversation at a time; a broken one ends with `stop`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        memory_fd: int,
        stall_seconds: float,
    ) -> None:
        self._process = process
        self._lines, self._writer = streams
        self._memory_fd = memory_fd
        self._pulse = Pulse(memory_fd)
        self._stall_seconds = stall_seconds
        self._slots: Slots | None = None  # while a job runs
        self.backend = ""  # said when it is ready
        self.is_idle = False

    @classmethod
    async def start(cls, reader: str, *, stall_seconds: float) -> "ChildProcess":
        """Start a child and wait until it is ready. Raises DecodeCrashed, DecodeHung."""
        ours, theirs = socket.socketpair()
        with theirs:
            streams = await asyncio.open_unix_connection(sock=ours, limit=_LINE_BYTES)
            # Nothing from here to the `try` awaits: a cancelled start leaves no process behind.
            memory_fd = os.memfd_create("reelserve-clips")
            os.ftruncate(memory_fd, PAGE_BYTES)
            process = _spawn(reader, theirs.fileno(), memory_fd)
        child = cls(process, streams, memory_fd, stall_seconds)
        try:
            await child._become_ready()
        except BaseException:
            child.kill()
            await child.stop()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def run(self, job: Job) -> AsyncGenerator[VideoInfo | Clip | Progress | DecodeReport]:
        """What one pass gives, a sign of life every second at least, the report last.

        Raises VideoError for what is wrong with the video, DecodeHung and DecodeCrashed for what is
        wrong with the child. The frames of a Clip are a copy.
        """
        self.is_idle = False
        self._slots = slots = Slots(self._memory_fd, job)
        self._send(job)
        async for message in self._messages(slots):
            match message:
                case Progress():
                    yield message
                case protocol.Opened(info=info):
                    yield info
                case ClipInSlot():
                    yield slots.take(message)
                case protocol.Done(report=report):
                    self._end_job()
                    yield report
                    return
                case protocol.Refused(code=code, sentence=sentence):
                    self._end_job()
                    raise VIDEO_ERRORS.get(code, VideoError)(sentence)

    def grant(self, num_credits: int) -> None:
        """Let the child make this many clips more."""
        for slot in self._slots.lend(num_credits) if self._slots else ():
            self._send(protocol.FreeSlot(slot=slot))

    def hang_up(self) -> None:
        """Nobody wants the rest of the job."""
        if not self.is_idle:
            self.kill()

    def kill(self) -> None:
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)

    async def stop(self) -> bool:
        """Hang up, kill, reap. False if it could not be reaped: D state outlives SIGKILL."""
        self._writer.close()
        self.kill()
        deadline = time.monotonic() + _REAP_SECONDS
        while self.is_alive and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._slots = None
        self._pulse.close()
        os.close(self._memory_fd)
        return not self.is_alive

    async def _become_ready(self) -> None:
        line = await self._read(within_seconds=_START_SECONDS)
        if line is None:
            raise DecodeHung(f"A decode child did not start in {_START_SECONDS:g} s.")
        ready = await self._message(line)
        if not isinstance(ready, protocol.Ready):
            raise DecodeCrashed(f"A decode child began with nonsense: {ready}.")
        self.backend = ready.backend
        self.is_idle = True

    async def _messages(self, slots: Slots) -> AsyncGenerator[protocol.Message | Progress]:
        watch = Watch(self._pulse, stall_seconds=self._stall_seconds)
        heartbeat = time.monotonic()
        while True:
            line = await self._read(within_seconds=_TICK_SECONDS)
            if line is None:
                watch.look(may_wait=not slots.is_any_lent)
            if time.monotonic() - heartbeat > _HEARTBEAT_SECONDS:
                heartbeat = time.monotonic()
                yield Progress(pts_seconds=self._pulse.pts_seconds, state=self._pulse.state)
            if line is not None:
                yield await self._message(line)

    async def _read(self, *, within_seconds: float) -> bytes | None:
        """A line; None while there is none; empty when there will be none."""
        try:
            async with asyncio.timeout(within_seconds):
                return await self._lines.readline()
        except TimeoutError:
            return None
        except OSError:  # it died with messages unread
            return b""
        except ValueError as error:
            raise DecodeCrashed("The decode child spoke nonsense without end.") from error

    async def _message(self, line: bytes) -> protocol.Message:
        if not line:
            raise DecodeCrashed(f"The decode child died{await self._exit_reason()}.")
        try:
            return protocol.load(line)
        except ValueError as error:
            raise DecodeCrashed(f"The decode child spoke nonsense: {error}.") from error

    async def _exit_reason(self) -> str:
        deadline = time.monotonic() + _EXIT_SECONDS
        while (status := self._process.poll()) is None:
            if time.monotonic() > deadline:
                return ""
            await asyncio.sleep(0.01)
        return f" of {signal.Signals(-status).name}" if status < 0 else f" with status {status}"

    def _send(self, message: protocol.Message) -> None:
        self._writer.write(protocol.dump(message))

    def _end_job(self) -> None:
        if self._slots:
            self._slots.close()
        self._slots = None
        self.is_idle = True


def _spawn(reader: str, socket_fd: int, memory_fd: int) -> subprocess.Popen[bytes]:
    """From the event loop's thread: the child's PDEATHSIG fires when that thread ends."""
    return subprocess.Popen(
        [*_COMMAND, str(socket_fd), str(memory_fd), reader],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(socket_fd, memory_fd),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
    )


_COMMAND = (sys.executable, "-u", "-m", "deployments.decoding.child")
