"""Batches form of what waits, in order, and errors and cancellations stay with their callers."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from deployments.batching import Batcher
from deployments.errors import DeadlineExceeded


class Gate:
    """A `run` that records its batches, and holds each while the gate is closed."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.is_open = threading.Event()

    def __call__(self, items: list[str]) -> list[str]:
        self.batches.append(items)
        self.threads.add(threading.get_ident())
        assert self.is_open.wait(10)
        if "bad" in items:
            raise RuntimeError("a bad batch")
        return [item.upper() for item in items]

    async def holds(self, item: str) -> None:
        while not self.batches or self.batches[-1] != [item]:
            await asyncio.sleep(0.001)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.is_open.set()


@pytest.fixture
def batcher(gate):
    return Batcher(gate, max_batch=3, prepare=lambda: None, name="test")


async def queued(batcher: Batcher, *items: str, **how) -> list[asyncio.Task]:
    tasks = [asyncio.create_task(batcher.submit(item, **how)) for item in items]
    await asyncio.sleep(0)  # each has run up to its place in the queue
    return tasks


async def test_a_batch_is_what_waits_when_the_thread_becomes_free(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks += await queued(batcher, "b", "c", "d", "e")
    assert batcher.num_waiting == 4
    gate.is_open.set()
    done = await asyncio.gather(*tasks)
    assert gate.batches == [["a"], ["b", "c", "d"], ["e"]]
    assert [each.result for each in done] == ["A", "B", "C", "D", "E"]
    assert [each.batch_size for each in done] == [1, 3, 3, 3, 1]
    assert batcher.batch_sizes == {1: 2, 3: 1}


async def test_interactive_goes_before_batch_jobs_that_came_earlier(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks += await queued(batcher, "job1", "job2", priority=1)
    tasks += await queued(batcher, "b", "c", priority=0)
    gate.is_open.set()
    await asyncio.gather(*tasks)
    assert gate.batches == [["a"], ["b", "c", "job1"], ["job2"]]


async def test_all_batches_run_on_one_thread_that_is_not_the_loops(gate, batcher):
    gate.is_open.set()
    for item in "abc":
        await batcher.submit(item)
    assert len(gate.threads) == 1
    assert threading.get_ident() not in gate.threads


async def test_the_loop_goes_on_while_a_batch_runs(gate, batcher):
    [task] = await queued(batcher, "a")
    await gate.holds("a")
    start = time.monotonic()
    await asyncio.sleep(0.01)
    assert time.monotonic() - start < 1
    assert batcher.running_since is not None
    gate.is_open.set()
    await task
    assert batcher.running_since is None


async def test_a_cancelled_item_leaves_the_queue_before_it_is_run(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks += await queued(batcher, "b", "c")
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert batcher.num_waiting == 1
    gate.is_open.set()
    await asyncio.wait(tasks)
    assert gate.batches == [["a"], ["c"]]
    assert tasks[1].cancelled()


async def test_an_item_cancelled_while_it_runs_spoils_nothing_for_its_batch(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks[0].cancel()
    tasks += await queued(batcher, "b")
    gate.is_open.set()
    assert (await tasks[1]).result == "B"


async def test_an_error_reaches_exactly_the_callers_of_its_batch(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks += await queued(batcher, "bad", "b", "c", "d")
    gate.is_open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, RuntimeError) for result in results] == [False, *[True] * 3, False]


async def test_too_few_results_are_an_error_and_no_caller_waits_forever():
    batcher = Batcher(lambda items: [], max_batch=2, prepare=lambda: None, name="test")
    with pytest.raises(ValueError, match="shorter"):
        await batcher.submit("a")


async def test_an_item_whose_deadline_has_passed_is_not_run(gate, batcher):
    tasks = await queued(batcher, "a")
    await gate.holds("a")
    tasks += await queued(batcher, "late", deadline=time.time() - 1)
    tasks += await queued(batcher, "b", deadline=time.time() + 60)
    gate.is_open.set()
    with pytest.raises(DeadlineExceeded):
        await tasks[1]
    assert (await tasks[2]).result == "B"
    assert gate.batches == [["a"], ["b"]]


async def test_times_say_how_long_an_item_waited_and_its_share_of_the_batch():
    def run(items: list[str]) -> list[str]:
        time.sleep(0.1)
        return items

    batcher = Batcher(run, max_batch=2, prepare=lambda: None, name="test")
    first = asyncio.create_task(batcher.submit("a"))
    await asyncio.sleep(0.05)
    second, third = await asyncio.gather(batcher.submit("b"), batcher.submit("c"))
    assert (await first).queue_seconds < 0.04
    assert second.batch_size == third.batch_size == 2
    assert 0.02 < second.queue_seconds < 1
    assert 0.05 <= second.run_seconds < 0.1
    assert batcher.busy_seconds >= 0.2


def test_what_fails_in_preparation_fails_the_constructor():
    def prepare() -> None:
        raise MemoryError("too large")

    with pytest.raises(MemoryError, match="too large"):
        Batcher(lambda items: items, max_batch=1, prepare=prepare, name="test")


def test_a_batch_that_hangs_does_not_keep_the_process_alive():
    program = """
import asyncio, threading
from deployments.batching import Batcher
async def main():
    run = lambda items: threading.Event().wait()
    batcher = Batcher(run, max_batch=1, prepare=lambda: None, name="test")
    asyncio.create_task(batcher.submit("a"))
    await asyncio.sleep(0.2)
    assert batcher.running_since
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


async def test_the_thread_rests_once_each_time_that_nothing_waits_for_a_while(gate, monkeypatch):
    monkeypatch.setattr("deployments.batching.IDLE_SECONDS", 0.05)
    rests: list[int] = []
    gate.is_open.set()
    batcher = Batcher(
        gate,
        max_batch=3,
        prepare=lambda: None,
        rest=lambda: rests.append(len(gate.batches)),
        name="test",
    )
    await asyncio.sleep(0.3)
    await asyncio.gather(*(batcher.submit(item) for item in "abcd"))
    await asyncio.sleep(0.3)
    assert rests == [0, len(gate.batches)]
