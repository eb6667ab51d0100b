"""Batches out of whatever waits: one thread runs them, and no event loop is ever blocked.

Leaf: knows neither Ray nor torch.

    submit -> heap by (priority, arrival) -> the thread, when it is free, takes up to max_batch
           <- result, or the batch's error <-
"""

import asyncio
import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from deployments.errors import DeadlineExceeded

logger = logging.getLogger(__name__)

IDLE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Done:
    """One item's result, and what it cost."""

    result: Any
    queue_seconds: float
    run_seconds: float  # this item's share of its batch
    batch_size: int


@dataclass(order=True, frozen=True, kw_only=True)
class _Waiting:
    priority: int
    arrival: int
    item: Any = field(compare=False)
    deadline: float | None = field(compare=False)
    since: float = field(compare=False)
    future: Future[Done] = field(compare=False, default_factory=Future)


class Batcher:
    """Calls `run(items) -> results` with up to `max_batch` items on a thread of its own.

    A daemon thread, not an executor's: those are joined when the interpreter ends, so a batch
    that hangs would keep the process alive. `prepare` is called once on the thread first; the
    constructor waits for it and raises what it raises. `rest` is called on it whenever nothing
    has waited for IDLE_SECONDS.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], list[Any]],
        *,
        max_batch: int,
        prepare: Callable[[], None],
        name: str,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._rest = rest
        self._max_batch = max_batch
        self._waiting: list[_Waiting] = []
        self._arrivals = itertools.count()
        self._changed = threading.Condition()
        self.running_since: float | None = None  # time.monotonic()
        self.busy_seconds = 0.0
        self.batch_sizes: Counter[int] = Counter()
        prepared: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(prepare, prepared), name=name, daemon=True
        )
        self._thread.start()
        prepared.result()

    @property
    def num_waiting(self) -> int:
        return sum(not waiting.future.cancelled() for waiting in list(self._waiting))

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def submit(self, item: Any, *, priority: int = 0, deadline: float | None = None) -> Done:
        """Wait for the item's result. Cancelled before its batch begins, it is never run.

        Lower priorities go first, equals in order of arrival. `deadline` is a `time.time()`,
        because it may come from another machine: an item that is still waiting then gets
        DeadlineExceeded instead of a run.
        """
        waiting = _Waiting(
            priority=priority,
            arrival=next(self._arrivals),
            item=item,
            deadline=deadline,
            since=time.monotonic(),
        )
        with self._changed:  # held for a heap operation at most
            heapq.heappush(self._waiting, waiting)
            self._changed.notify()
        return await asyncio.wrap_future(waiting.future)

    def _work(self, prepare: Callable[[], None], prepared: Future[None]) -> None:
        try:
            prepare()
        except BaseException as error:
            prepared.set_exception(error)
            return
        prepared.set_result(None)
        while True:
            if not self._is_wanted_within(IDLE_SECONDS):
                self._rest()
            self._run_batch(self._next_batch())

    def _is_wanted_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting), seconds)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        with self._changed:
            while not batch:
                while not self._waiting:
                    self._changed.wait()
                while self._waiting and len(batch) < self._max_batch:
                    waiting = heapq.heappop(self._waiting)
                    if _is_still_wanted(waiting):
                        batch.append(waiting)
        return batch

    def _run_batch(self, batch: list[_Waiting]) -> None:
        start = self.running_since = time.monotonic()
        try:
            results = self._run([waiting.item for waiting in batch])
            pairs = list(zip(batch, results, strict=True))
        except Exception as error:
            logger.exception("a batch of %d failed", len(batch))
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        finally:
            self.running_since = None
            seconds = time.monotonic() - start
            self.busy_seconds += seconds
        self.batch_sizes[len(batch)] += 1
        for waiting, result in pairs:
            done = Done(
                result=result,
                queue_seconds=start - waiting.since,
                run_seconds=seconds / len(batch),
                batch_size=len(batch),
            )
            waiting.future.set_result(done)


def _is_still_wanted(waiting: _Waiting) -> bool:
    if not waiting.future.set_running_or_notify_cancel():
        return False
    if waiting.deadline is not None and time.time() > waiting.deadline:
        waiting.future.set_exception(DeadlineExceeded("the deadline passed in a part's queue"))
        return False
    return True
