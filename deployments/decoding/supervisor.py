"""Keeps decode children: warm ones ready, hung ones killed, dead ones replaced.

    lease()                        the conversation ends well
idle ------> working, waiting_for_slot ------> idle
                 |
                 |  counter stands still for stall_seconds while working: DecodeHung
                 |  socket ends, or says what is no message:                DecodeCrashed
                 v
              SIGKILL, and a fresh child takes its place
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from deployments.decoding.child_process import ChildProcess

logger = logging.getLogger(__name__)


class Supervisor:
    """At most `children` decode children of one reader; `warm_children` of them wait ready."""

    def __init__(
        self, *, reader: str, children: int, warm_children: int, stall_seconds: float
    ) -> None:
        self._reader = reader
        self._warm_children = min(warm_children, children)
        self._stall_seconds = stall_seconds
        self._free_places = asyncio.Semaphore(children)
        self._idle: list[ChildProcess] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_starting = 0  # of those that will be idle
        self.num_started = self.num_killed = self.num_abandoned = 0

    async def start(self) -> None:
        """Returns when the first warm children are ready. Raises DecodeCrashed if they can't be."""
        await asyncio.gather(*(self._add_idle() for _ in range(self._warm_children)))

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[ChildProcess]:
        """An idle child for one conversation. One that it leaves unfinished is killed."""
        async with self._free_places:
            child = await self._take()
            try:
                yield child
            finally:
                (self._keep if child.is_idle else self._replace)(child)

    @property
    def idle_pids(self) -> list[int]:
        return [child.pid for child in self._idle if child.is_alive]

    async def close(self) -> None:
        """End the idle children and those on their way; leased ones are to have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        while self._idle:
            await self._stop(self._idle.pop())

    async def _take(self) -> ChildProcess:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._in_background(self._stop(child))
        return await self._start_child()

    async def _start_child(self) -> ChildProcess:
        self.num_started += 1
        return await ChildProcess.start(self._reader, stall_seconds=self._stall_seconds)

    async def _add_idle(self) -> None:
        self._num_starting += 1
        try:
            self._keep(await self._start_child())
        finally:
            self._num_starting -= 1

    def _keep(self, child: ChildProcess) -> None:
        if len(self._idle) < self._warm_children:
            self._idle.append(child)
        else:
            self._in_background(self._stop(child))

    def _replace(self, child: ChildProcess) -> None:
        """Kill at once, reap and refill behind the caller's back."""
        self.num_killed += 1
        child.kill()
        self._in_background(self._stop(child))
        if len(self._idle) + self._num_starting < self._warm_children:
            self._in_background(self._add_idle())

    async def _stop(self, child: ChildProcess) -> None:
        if not await child.stop():
            self.num_abandoned += 1
            logger.error("decode child %d cannot be reaped, it is abandoned", child.pid)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            logger.error("decode children: %s", task.exception())
