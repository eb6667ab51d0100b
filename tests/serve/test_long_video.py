"""A second service beside the first: a long video takes no more memory than a short one."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deployments.decoding.protocol import PAGE_BYTES
from deployments.models.shots import Shots
from deployments.models.tags import Tags
from tests import clips
from tests.serve import processes
from tests.serve.answers import RAW, analyzed
from tests.serve.service import Service, started, wait_until

FPS = 0.2  # of the video, and of what tags see of it
SHORT_SECONDS, LONG_SECONDS = 15 * 60, 2 * 60 * 60
MORE_BYTES = 100e6
CREDITS = 4
SLOT_BYTES = max(Shots.clip_spec.clip_bytes, Tags().clip_spec.clip_bytes)


def _slow(document: dict[str, Any]) -> None:
    args = document["applications"][0]["args"]
    args["part_a"]["options"]["fps"] = FPS
    args["request"]["clips_in_flight"] = CREDITS


pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def slow_service() -> Iterator[Service]:
    """One that sees a frame in five seconds, and is ended as `kill` and supervisors do it."""
    with started(_slow, stop=signal.SIGTERM) as service:
        yield service


class Watch:
    """Peaks while something runs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.own_bytes = self.slots_bytes = self.waiting_clips = 0

    def look(self) -> None:
        found = processes.of_folder(self._service.folder)
        self.own_bytes = max(self.own_bytes, processes.own_bytes(found))
        children = processes.decode_children(self._service.folder)
        slots = [_slots_bytes(child.pid) for child in children]
        self.slots_bytes = max(self.slots_bytes, *slots)
        status = self._service.status()
        said = [one for part in ("PartA", "PartB") for one in status[part]["said"]]
        self.waiting_clips = max(self.waiting_clips, sum(one["waiting"] for one in said))


@contextmanager
def watched(service: Service) -> Iterator[Watch]:
    watch, is_over = Watch(service), threading.Event()

    def run() -> None:
        while not is_over.wait(1):
            watch.look()

    thread = threading.Thread(target=run)
    thread.start()
    yield watch
    is_over.set()
    thread.join()


def _slots_bytes(pid: int) -> int:
    """The size of a decode child's shared memory."""
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(fd).startswith("/memfd:reelserve-clips"):
                return fd.stat().st_size
    return 0


def video(path: Path, *, seconds: int) -> bytes:
    num_frames = round(seconds * FPS)
    return clips.write_video(path, num_frames=num_frames, fps=FPS).read_bytes()


def test_two_hours_take_the_memory_of_a_quarter(slow_service, tmp_path):
    peaks = []
    for seconds in (SHORT_SECONDS, LONG_SECONDS):
        content = video(tmp_path / "video.mp4", seconds=seconds)
        with slow_service.client() as client, watched(slow_service) as watch:
            answer = analyzed(client, content=content, headers=RAW)
        assert answer["video"]["duration_seconds"] == pytest.approx(seconds)
        assert len(answer["part_a"]["frames"]) == seconds * FPS
        assert watch.slots_bytes <= PAGE_BYTES + CREDITS * SLOT_BYTES
        assert watch.waiting_clips <= CREDITS
        print(f"{seconds} s: {watch.own_bytes / 1e6:.0f} MB, {watch.waiting_clips} clips waited")
        peaks.append(watch.own_bytes)
    assert peaks[1] - peaks[0] < MORE_BYTES


def test_a_killed_child_is_replaced_though_every_clip_was_on_its_way(slow_service, tmp_path):
    """Without a spare the next decoder begins late: what was granted meanwhile must not be lost."""
    content = video(tmp_path / "video.mp4", seconds=SHORT_SECONDS)
    with slow_service.client() as client:
        calm = analyzed(client, content=content, headers=RAW)
        killer = threading.Timer(1.5, _kill_children, [slow_service])
        killer.start()
        answer = analyzed(client, content=content, headers=RAW)
    assert answer["decode"]["fallback_reason"] == "crashed"
    assert [f["pts_seconds"] for f in answer["part_a"]["frames"]] == [
        f["pts_seconds"] for f in calm["part_a"]["frames"]
    ]
    wait_until(slow_service.is_whole, seconds=10, what="a whole service")


def _kill_children(service: Service) -> None:
    for deployment in ("CpuDecoder", "Decoder"):
        for child in processes.decode_children(service.folder, deployment):
            child.kill()
