"""Supervisors with real children, and what is left of a process."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from deployments.decoding.child_process import ChildProcess
from deployments.decoding.protocol import Job
from deployments.decoding.supervisor import Supervisor
from deployments.frames import Clip, ClipSpec, DecodeReport, Source
from tests import clips

SPEC = ClipSpec(length=10, stride=10, size=(27, 48))
Supervise = Callable[..., AbstractAsyncContextManager[Supervisor]]


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 numbered frames, 4 s."""
    return clips.write_video(tmp_path_factory.mktemp("media") / "v.mp4", num_frames=100, b_frames=2)


@asynccontextmanager
async def supervise(
    reader: str = "deployments.decoding.reader:SoftwareReader",
    *,
    children: int = 1,
    warm_children: int = 1,
    stall_seconds: float = 1.0,
) -> AsyncIterator[Supervisor]:
    """A started supervisor; faults go by their name alone."""
    supervisor = Supervisor(
        reader=reader if ":" in reader else f"tests.faults:{reader}",
        children=children,
        warm_children=warm_children,
        stall_seconds=stall_seconds,
    )
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.close()


def job(path: Path, *, spec: ClipSpec = SPEC, slots: int = 4, credits: int | None = None) -> Job:
    """The clips of one part, "p"."""
    return Job(
        source=Source(path=str(path)),
        specs={"p": spec},
        first_clips={"p": 0},
        num_slots=slots,
        num_credits=slots if credits is None else credits,
    )


async def run(child: ChildProcess, wanted: Job) -> tuple[list[Clip], DecodeReport]:
    """All clips, each with a credit for the next."""
    found = []
    async for item in child.run(wanted):
        if isinstance(item, Clip):
            found.append(item)
            child.grant(1)
        elif isinstance(item, DecodeReport):
            return found, item
    raise AssertionError("no report")


def numbers(found: list[Clip]) -> list[list[int]]:
    """Of each clip, as drawn on its frames."""
    return [[clips.frame_number(rgb) for rgb in clip.frames] for clip in found]


async def is_gone(pid: int, *, within_seconds: float = 3.0) -> bool:
    """Reaped too: a zombie is still in /proc."""
    async with asyncio.timeout(within_seconds):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.01)
    return True


def is_running(pid: int) -> bool:
    """An orphan's zombie is not ours to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
