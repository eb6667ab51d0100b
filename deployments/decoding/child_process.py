"""One decode child as its supervisor sees it: a process, a socket, and shared memory."""

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from deployments.decoding import protocol
from deployments.decoding.protocol import PAGE_BYTES, ClipInSlot, Job, Pulse
from deployments.errors import VIDEO_ERRORS, DecodeCrashed, DecodeHung, VideoError
from deployments.frames import Clip, DecodeReport, Progress, VideoInfo

_TICK_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
_START_SECONDS = 60.0  # imports, on a machine that is starting everything else too
_REAP_SECONDS = 2.0
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
        self._slots = np.empty((0, 0), np.uint8)
        self._withheld: deque[int] = deque()  # slots that may be filled again for a credit
        self._num_granted = 0  # slots that the child may fill now
        self.backend = ""  # said when it is ready
        self.is_idle = False

    @classmethod
    async def start(cls, reader: str, *, stall_seconds: float) -> "ChildProcess":
        """Start a child and wait until it is ready. Raises DecodeCrashed, DecodeHung."""
        memory_fd = os.memfd_create("reelserve-clips")
        os.ftruncate(memory_fd, PAGE_BYTES)
        ours, theirs = socket.socketpair()
        # From the event loop's thread: the child's PDEATHSIG fires when that thread ends.
        process = subprocess.Popen(  # noqa: ASYNC220
            [*_COMMAND, str(theirs.fileno()), str(memory_fd), reader],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), memory_fd),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
        )
        theirs.close()
        streams = await asyncio.open_unix_connection(sock=ours, limit=_LINE_BYTES)
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

    async def run(self, job: Job) -> AsyncIterator[VideoInfo | Clip | Progress | DecodeReport]:
        """What one pass gives, a sign of life every second at least, the report last.

        Raises VideoError for what is wrong with the video, DecodeHung and DecodeCrashed for what is
        wrong with the child. The frames of a Clip are a copy.
        """
        self.is_idle = False
        self._map_slots(job)
        self._send(job)
        async for message in self._messages():
            match message:
                case Progress():
                    yield message
                case protocol.Opened(info=info):
                    yield info
                case ClipInSlot():
                    yield self._clip(message, job)
                case protocol.Done(report=report):
                    self._end_job()
                    yield report
                    return
                case protocol.Refused(code=code, sentence=sentence):
                    self._end_job()
                    raise VIDEO_ERRORS.get(code, VideoError)(sentence)

    def grant(self, num_credits: int) -> None:
        """Let the child make this many clips more."""
        for _ in range(min(num_credits, len(self._withheld))):
            self._send(protocol.FreeSlot(slot=self._withheld.popleft()))
            self._num_granted += 1

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
        self._slots = np.empty((0, 0), np.uint8)
        self._pulse.close()
        os.close(self._memory_fd)
        return not self.is_alive

    async def _become_ready(self) -> None:
        try:
            line = await asyncio.wait_for(self._lines.readline(), _START_SECONDS)
        except TimeoutError:
            raise DecodeHung(f"A decode child did not start in {_START_SECONDS:g} s.") from None
        if not line:
            raise DecodeCrashed(f"A decode child died at its start{await self._exit_reason()}.")
        ready = await self._message(line)
        assert isinstance(ready, protocol.Ready), ready
        self.backend = ready.backend
        self.is_idle = True

    async def _messages(self) -> AsyncIterator[protocol.Message | Progress]:
        watch = _Watch(self._pulse, self._stall_seconds)
        heartbeat = time.monotonic()
        while True:
            try:
                line = await asyncio.wait_for(self._lines.readline(), _TICK_SECONDS)
            except TimeoutError:
                watch.look(may_wait=not self._num_granted)
                line = None
            if time.monotonic() - heartbeat > _HEARTBEAT_SECONDS:
                heartbeat = time.monotonic()
                yield Progress(pts_seconds=self._pulse.pts_seconds, state=self._pulse.state)
            if line is not None:
                yield await self._message(line)

    async def _message(self, line: bytes) -> protocol.Message:
        if not line:
            raise DecodeCrashed(f"The decode child died{await self._exit_reason()}.")
        try:
            return protocol.load(line)
        except ValueError as error:
            raise DecodeCrashed(f"The decode child spoke nonsense: {error}.") from error

    async def _exit_reason(self) -> str:
        await asyncio.sleep(0.05)  # the socket ends a moment before the process does
        status = self._process.poll()
        if status is None:
            return ""
        return f" of {signal.Signals(-status).name}" if status < 0 else f" with status {status}"

    def _clip(self, message: ClipInSlot, job: Job) -> Clip:
        spec = job.specs[message.header.part]
        shape = (spec.length, *spec.size, 3)
        pixels = self._slots[message.slot, : spec.clip_bytes].reshape(shape)
        clip = Clip(header=message.header, frames=pixels.copy())
        self._withheld.append(message.slot)
        self._num_granted -= 1
        return clip

    def _send(self, message: protocol.Message) -> None:
        self._writer.write(protocol.dump(message))

    def _map_slots(self, job: Job) -> None:
        length = job.num_slots * job.slot_bytes
        os.ftruncate(self._memory_fd, PAGE_BYTES + length)
        memory = mmap.mmap(self._memory_fd, length, offset=PAGE_BYTES)
        self._slots = np.frombuffer(memory, np.uint8).reshape(job.num_slots, job.slot_bytes)
        self._withheld = deque(range(job.num_credits, job.num_slots))
        self._num_granted = job.num_credits

    def _end_job(self) -> None:
        self._slots = np.empty((0, 0), np.uint8)
        os.ftruncate(self._memory_fd, PAGE_BYTES)
        self.is_idle = True


class _Watch:
    """Tells a hung child from one that waits: any other's counter has to move.

    A child is not taken at its word: one that froze while it waited says so for ever.
    """

    def __init__(self, pulse: Pulse, stall_seconds: float) -> None:
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


_COMMAND = (sys.executable, "-u", "-m", "deployments.decoding.child")
