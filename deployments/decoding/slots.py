"""The slots of one job as its supervisor sees them: which may be filled, and what lies in them."""

import mmap
import os
from collections import deque

import numpy as np

from deployments.decoding.protocol import PAGE_BYTES, ClipInSlot, Job
from deployments.errors import DecodeCrashed
from deployments.frames import Clip


class Slots:
    """Shared memory that exists for one job.

    withheld --lend, for a credit--> lent --the child fills it--> taken: withheld again
    """

    def __init__(self, memory_fd: int, job: Job) -> None:
        length = job.num_slots * job.slot_bytes
        os.ftruncate(memory_fd, PAGE_BYTES + length)
        memory = mmap.mmap(memory_fd, length, offset=PAGE_BYTES)
        self._memory_fd, self._job = memory_fd, job
        self._pixels = np.frombuffer(memory, np.uint8).reshape(job.num_slots, job.slot_bytes)
        self._next_clips = dict(job.first_clips)
        self._lent = set(range(job.num_credits))
        self._withheld = deque(range(job.num_credits, job.num_slots))

    @property
    def is_any_lent(self) -> bool:
        return bool(self._lent)

    def lend(self, num_credits: int) -> list[int]:
        """The slots that the child may now fill in addition."""
        slots = [self._withheld.popleft() for _ in range(min(num_credits, len(self._withheld)))]
        self._lent.update(slots)
        return slots

    def take(self, message: ClipInSlot) -> Clip:
        """A copy of the clip in a slot. Raises DecodeCrashed when it is not what was asked for."""
        header, slot = message.header, message.slot
        if not self._is_asked_for(message):
            raise DecodeCrashed(f"The decode child sent a clip that nobody asked for: {header}.")
        spec = self._job.specs[header.part]
        pixels = self._pixels[slot, : spec.clip_bytes].reshape(spec.length, *spec.size, 3)
        self._next_clips[header.part] += 1
        self._lent.remove(slot)
        self._withheld.append(slot)
        return Clip(header=header, frames=pixels.copy())

    def close(self) -> None:
        """Give the memory back."""
        self._pixels = np.empty((0, 0), np.uint8)
        os.ftruncate(self._memory_fd, PAGE_BYTES)

    def _is_asked_for(self, message: ClipInSlot) -> bool:
        """The next clip of a part, whole, in a slot that was lent."""
        header = message.header
        return (
            header.part in self._job.specs
            and header.index == self._next_clips[header.part]
            and len(header.pts_seconds) == self._job.specs[header.part].length
            and message.slot in self._lent
        )
