"""Children that are leased, lent credits, given back, and gone."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from deployments.decoding.child_process import ChildProcess
from deployments.errors import NotAVideo
from deployments.frames import Clip, ClipSpec, Progress, VideoInfo
from tests import clips
from tests.deployments.decoding.conftest import is_gone, job, numbers, run, supervise


async def test_a_warm_child_waits_and_is_used_again(video: Path) -> None:
    async with supervise() as supervisor:
        [pid] = supervisor.idle_pids
        for _ in range(3):
            async with supervisor.lease() as child:
                assert child.pid == pid
                found, report = await run(child, job(video))
            assert numbers(found) == [list(range(k, k + 10)) for k in range(0, 100, 10)]
            assert report.frames == 100
        assert supervisor.num_started == 1
    assert await is_gone(pid)


async def test_a_bad_video_leaves_the_child_to_the_next(video: Path, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("WEBVTT\n\nno video at all")
    async with supervise() as supervisor:
        for _ in range(2):
            async with supervisor.lease() as child:
                with pytest.raises(NotAVideo):
                    await run(child, job(tmp_path / "text.mp4"))
        async with supervisor.lease() as child:
            assert len((await run(child, job(video)))[0]) == 10
        assert (supervisor.num_started, supervisor.num_killed) == (1, 0)


async def test_no_clip_without_a_credit_and_waiting_is_not_hanging(video: Path) -> None:
    async with supervise() as supervisor, supervisor.lease() as child:
        items = child.run(job(video, slots=4, credits=2))
        assert isinstance(await anext(items), VideoInfo)
        assert [(await anext(items)).header.index for _ in range(2)] == [0, 1]
        for _ in range(2):  # seconds; a working child would be hung after one
            assert (await anext(items)).state == "waiting_for_slot"
        child.grant(1)
        assert (await anext(items)).header.index == 2
        child.grant(99)  # more than there are slots
        assert [(await anext(items)).header.index for _ in range(4)] == [3, 4, 5, 6]
        assert isinstance(await anext(items), Progress)
        await items.aclose()


async def test_clips_made_and_not_taken_never_exceed_the_credits(video: Path) -> None:
    async with supervise() as supervisor, supervisor.lease() as child:
        num_granted, num_taken = 3, 0
        async for item in child.run(job(video, slots=3)):
            if isinstance(item, Clip):
                num_taken += 1
                assert num_taken <= num_granted
                if num_taken == num_granted:
                    await asyncio.sleep(0.02)
                    child.grant(2)
                    num_granted += 2
    assert num_taken == 10


async def test_a_spare_that_died_while_idle_is_no_lease(video: Path) -> None:
    async with supervise(children=2, warm_children=2) as supervisor:
        for pid in supervisor.idle_pids:
            os.kill(pid, signal.SIGKILL)
        while supervisor.idle_pids:
            await asyncio.sleep(0.01)
        async with supervisor.lease() as child:
            assert len((await run(child, job(video)))[0]) == 10
    assert (supervisor.num_started, supervisor.idle_pids) == (3, [])


@pytest.mark.parametrize("reader", ["IsSlow", "deployments.decoding.reader:SoftwareReader"])
async def test_a_request_that_is_cancelled_takes_its_child_along(
    tmp_path: Path, reader: str
) -> None:
    """Clips that come without a pause hide no cancellation, as Python 3.11's wait_for did."""

    async def analyse() -> None:
        async with supervisor.lease() as child:
            leased.append(child)
            await run(child, job(path, spec=ClipSpec(length=1, stride=1, size=(2, 2)), slots=8))

    leased: list[ChildProcess] = []
    path = clips.write_video(tmp_path / "v.mp4", num_frames=1500)
    async with supervise(reader) as supervisor:
        for _ in range(3):
            task = asyncio.create_task(analyse())
            while not leased:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await is_gone(leased.pop().pid)


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    before = _open_files()
    for delay_seconds in (0, 0.001, 0.01, 0.05):
        starting = asyncio.create_task(
            ChildProcess.start("deployments.decoding.reader:SoftwareReader", stall_seconds=1)
        )
        await asyncio.sleep(delay_seconds)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await asyncio.sleep(0.05)
    assert _children() == []
    assert _open_files() == before


async def test_a_lease_waits_while_all_children_are_busy(tmp_path: Path) -> None:
    path = clips.write_video(tmp_path / "v.mp4", num_frames=40)
    async with supervise("IsSlow", children=2, warm_children=1) as supervisor:
        pids = []

        async def analyse() -> float:
            async with supervisor.lease() as child:
                pids.append(child.pid)
                begun = time.monotonic()
                await run(child, job(path))
                return begun

        begun = sorted(await asyncio.gather(*(analyse() for _ in range(3))))
        assert begun[2] - begun[0] > 1.1  # 40 frames that are 0.03 s slow
        assert len(set(pids)) == 2


async def test_fifty_jobs_leave_no_files_and_no_processes_behind(video: Path) -> None:
    async with supervise() as supervisor:
        for k in range(50):
            async with supervisor.lease() as child:
                wanted = job(video, slots=1 + k % 4)
                if k % 10 == 9:
                    await anext(child.run(wanted))  # and no more: the child is killed
                else:
                    await run(child, wanted)
            if k == 0:
                before = _open_files()
        async with asyncio.timeout(10):
            while len(supervisor.idle_pids) != 1 or len(_children()) != 1:
                await asyncio.sleep(0.01)
        assert _open_files() == before
    assert _children() == []


def _open_files() -> list[str]:
    """What this process has open, without numbers of sockets."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(link).split(":[")[0] for link in links if os.path.islink(link))


def _children() -> list[int]:
    """Zombies too."""
    return [int(pid) for task in os.listdir("/proc/self/task")
            for pid in Path(f"/proc/self/task/{task}/children").read_text().split()]  # fmt: skip
