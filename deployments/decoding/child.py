"""The decode child: a process of its own, so that a decoder that hangs can be killed.

    python -u -m deployments.decoding.child SOCKET_FD MEMORY_FD READER

It says Ready, takes one Job after the other, and ends when its socket does.
"""

import ctypes
import faulthandler
import gc
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module

import numpy as np

from deployments.decoding import protocol
from deployments.decoding.clipping import (
    CLOCK_TOLERANCE_SECONDS,
    ClipCutter,
    ShownFrame,
    shown,
)
from deployments.decoding.protocol import PAGE_BYTES, Job, Pulse
from deployments.decoding.reader import Reader
from deployments.errors import RangeOutsideVideo, VideoError
from deployments.frames import ClipHeader, DecodeReport

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    socket_fd, memory_fd, reader = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    _die_with(os.getppid())
    faulthandler.enable()
    link = Link(socket.socket(fileno=socket_fd), memory_fd)
    make_reader = load_reader(reader)
    link.send(protocol.Ready(backend=make_reader.backend))
    for job in link.jobs():
        try:
            link.send(protocol.Done(report=decode(job, make_reader, link)))
        except VideoError as error:
            link.send(protocol.Refused(code=error.code, sentence=str(error)))
        _give_back_memory()


def decode(job: Job, make_reader: type[Reader], link: "Link") -> DecodeReport:
    """One pass over the video: every clip of every part, cut as its last frame comes by."""
    cpu_seconds = time.process_time()
    with closing(make_reader(job.source.path, beat=link.pulse.beat)) as reader:
        link.send(protocol.Opened(info=reader.info))
        cutters = _cutters(job)
        last = None
        for last in shown(reader.pictures(), end_seconds=job.source.end_seconds):
            link.pulse.pts_seconds = last.pts_seconds
            for cutter in cutters:
                link.send_clips(cutter.see(last))
        if last is None or last.until_seconds <= job.source.start_seconds + CLOCK_TOLERANCE_SECONDS:
            raise _outside(job, last)
        for cutter in cutters:
            link.send_clips(cutter.finish())
        return DecodeReport(
            frames=last.frame_index + 1,
            duration_seconds=last.until_seconds,
            decode_seconds=time.process_time() - cpu_seconds,
            warnings=tuple(reader.warnings),
        )


def _cutters(job: Job) -> list[ClipCutter]:
    return [
        ClipCutter(
            part,
            spec,
            first_clip=job.first_clips[part],
            start_seconds=job.source.start_seconds,
            end_seconds=job.source.end_seconds,
        )
        for part, spec in job.specs.items()
    ]


def _outside(job: Job, last: ShownFrame | None) -> RangeOutsideVideo:
    end_seconds = last.until_seconds if last else 0.0
    return RangeOutsideVideo(
        f"start_seconds is {job.source.start_seconds:g}, but the video ends at {end_seconds:.3f} s."
    )


class Link:
    """The child's end of the conversation: messages, slots, and the pulse."""

    def __init__(self, connection: socket.socket, memory_fd: int) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._memory_fd = memory_fd
        self.pulse = Pulse(memory_fd)
        self._slots = np.empty((0, 0), np.uint8)
        self._free: list[int] = []

    def jobs(self) -> Iterator[Job]:
        """Jobs as they come, until the supervisor hangs up."""
        while True:
            self.pulse.state = "idle"
            message = self._receive()
            if isinstance(message, Job):
                self.pulse.state = "working"
                self._map_slots(message)
                yield message
            elif message is None:
                return

    def send(self, message: protocol.Message) -> None:
        self._socket.sendall(protocol.dump(message))

    def send_clips(self, clips: Iterator[tuple[ClipHeader, list[np.ndarray]]]) -> None:
        for header, frames in clips:
            slot = self._take_slot()
            size = sum(frame.nbytes for frame in frames)
            np.stack(frames, out=self._slots[slot, :size].reshape(len(frames), *frames[0].shape))
            self.send(protocol.ClipInSlot(header=header, slot=slot))

    def _take_slot(self) -> int:
        if not self._free:
            self.pulse.state = "waiting_for_slot"
            message = self._receive()
            if not isinstance(message, protocol.FreeSlot):
                sys.exit("the supervisor hung up in the middle of a job")
            self._free.append(message.slot)
            self.pulse.state = "working"
        return self._free.pop()

    def _map_slots(self, job: Job) -> None:
        length = job.num_slots * job.slot_bytes
        memory = mmap.mmap(self._memory_fd, length, offset=PAGE_BYTES)
        self._slots = np.frombuffer(memory, np.uint8).reshape(job.num_slots, job.slot_bytes)
        self._free = list(range(job.num_credits))

    def _receive(self) -> protocol.Message | None:
        line = self._lines.readline()
        return protocol.load(line) if line else None


def load_reader(path: str) -> type[Reader]:
    """The Reader class named by `module:Class`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _give_back_memory() -> None:
    """A decoder's frames may be 100 MB, and an idle child is to be as small as a new one."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _die_with(parent_pid: int) -> None:
    """Be killed when the replica dies, however it dies; leave no core file of somebody's video."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the supervisor died before its child began")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
