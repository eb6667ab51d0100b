"""What dies or freezes in the middle of a video costs time, and nothing of the answer."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest

from tests import clips
from tests.serve import processes
from tests.serve.answers import RAW, analyzed, assert_same, of_parts
from tests.serve.service import Service, wait_until

NUM_FRAMES, FPS = 400, 10  # 40 clips for tags and 8 for shots: far more than the credits
CHILD_SECONDS = 10.0  # until the service is whole again
REPLICA_SECONDS = 15.0
PART_SECONDS = 30.0  # a model is loaded
FROZEN_REPLICA_SECONDS = 40.0  # three missed health checks, and the start of another
NOTICE_SECONDS = 1.0  # beyond stall_seconds


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    answer: dict[str, Any]
    victim_pid: int
    silent_seconds: float
    """The longest time without an event after the fault."""
    whole_seconds: float
    """From the fault until the service is whole again."""


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("survival") / "video.mp4"
    cuts = range(37, NUM_FRAMES, 53)
    return clips.write_video(path, num_frames=NUM_FRAMES, fps=FPS, cuts=cuts).read_bytes()


@pytest.fixture(scope="module")
def undisturbed(client: httpx.Client, video: bytes) -> dict[str, Any]:
    return analyzed(client, content=video, headers=RAW)


@pytest.fixture(autouse=True)
def whole(service: Service) -> None:
    wait_until(service.is_whole, seconds=60, what="a whole service")


def events(client: httpx.Client, video: bytes) -> Iterator[dict[str, Any]]:
    params = {"stream": "true"}
    with client.stream(
        "POST", "/v1/analyze", params=params, content=video, headers=RAW
    ) as response:
        assert response.status_code == 200, response.read()
        yield from map(json.loads, response.iter_lines())


def disturbed(
    service: Service, video: bytes, victim: Callable[[], psutil.Process], fault: int
) -> Disturbed:
    """Send a signal to `victim` once clips of both parts are done, and see what comes of it."""
    pid, last, silent_seconds = 0, 0.0, 0.0
    with service.client() as client, ThreadPoolExecutor() as pool:
        for event in events(client, video):
            if pid:
                silent_seconds = max(silent_seconds, time.monotonic() - last)
            elif event["event"] == "progress" and min(event["clips_done"].values()):
                pid = victim().pid
                os.kill(pid, fault)
                whole = pool.submit(until_whole, service, without=pid)
            last = time.monotonic()
    assert event["event"] == "result", event
    assert pid, "it was over before anything could be disturbed"
    return Disturbed(
        answer=event["result"],
        victim_pid=pid,
        silent_seconds=silent_seconds,
        whole_seconds=whole.result(),
    )


def until_whole(service: Service, *, without: int) -> float:
    def is_whole() -> bool:
        return not psutil.pid_exists(without) and service.is_whole()

    return wait_until(is_whole, seconds=120, what="a whole service")


def assert_handed_over(found: Disturbed, undisturbed: dict[str, Any], reason: str) -> None:
    """The same answer, by two decoders: the second began where the first one had ended."""
    assert_same(of_parts(found.answer), of_parts(undisturbed))
    decode = found.answer["decode"]
    first, second = decode["attempts"]
    print(f"{reason} at {second['first_clips']}: {found.silent_seconds:.1f} s without an event,")
    print(f"  whole again after {found.whole_seconds:.1f} s")
    assert (first["failure"], second["failure"]) == (reason, None)
    assert (first["deployment"], second["deployment"]) == ("Decoder", "CpuDecoder")
    assert (decode["deployment"], decode["fallback_reason"]) == ("CpuDecoder", reason)
    assert first["pid"] != second["pid"]
    assert first["replica"] != second["replica"]
    assert first["first_clips"] == {"part_a": 0, "part_b": 0}
    num_clips = {part: found.answer["timing"][part]["clips"] for part in ("part_a", "part_b")}
    assert num_clips == {part: undisturbed["timing"][part]["clips"] for part in num_clips}
    assert all(0 < second["first_clips"][part] < num for part, num in num_clips.items())


def working(service: Service, deployment: str) -> list[psutil.Process]:
    """The children of a decoder that are not idle."""
    idle = service.status()[deployment]["said"][0]["idle_children"]
    children = processes.decode_children(service.folder, deployment)
    return [child for child in children if child.pid not in idle]


def working_child(service: Service) -> Callable[[], psutil.Process]:
    def find() -> psutil.Process:
        [child] = working(service, "Decoder")
        return child

    return find


def num_running(service: Service) -> int:
    return service.status()["Decoder"]["said"][0]["running"]


def replica(service: Service, deployment: str) -> Callable[[], psutil.Process]:
    return lambda: processes.replicas(service.folder, deployment)[0]


def test_a_decode_child_that_is_killed_costs_no_clip(service, client, video, undisturbed):
    found = disturbed(service, video, working_child(service), signal.SIGKILL)
    assert_handed_over(found, undisturbed, "crashed")
    assert found.answer["decode"]["attempts"][0]["pid"] == found.victim_pid
    assert found.whole_seconds < CHILD_SECONDS


def test_a_decode_child_that_freezes_costs_a_pause_and_no_clip(service, client, video, undisturbed):
    found = disturbed(service, video, working_child(service), signal.SIGSTOP)
    assert_handed_over(found, undisturbed, "hung")
    assert found.silent_seconds < service.settings["stall_seconds"] + NOTICE_SECONDS
    assert not psutil.pid_exists(found.victim_pid)
    assert found.whole_seconds < CHILD_SECONDS


def test_a_warm_child_that_froze_while_idle_costs_a_pause(service, client, video, undisturbed):
    [child] = processes.decode_children(service.folder, "Decoder")
    child.suspend()
    begun = time.monotonic()
    answer = analyzed(client, content=video, headers=RAW)
    assert_same(of_parts(answer), of_parts(undisturbed))
    assert answer["decode"]["fallback_reason"] == "hung"
    assert time.monotonic() - begun < 60
    wait_until(service.is_whole, seconds=CHILD_SECONDS, what="a whole service")


def test_a_warm_child_that_died_while_idle_costs_nothing(service, client, video, undisturbed):
    [child] = processes.decode_children(service.folder, "Decoder")
    child.kill()
    answer = analyzed(client, content=video, headers=RAW)
    assert_same(of_parts(answer), of_parts(undisturbed))
    assert answer["decode"]["fallback_reason"] is None
    wait_until(service.is_whole, seconds=CHILD_SECONDS, what="a whole service")


def test_a_decoder_replica_that_is_killed_costs_no_clip(service, client, video, undisturbed):
    found = disturbed(service, video, replica(service, "Decoder"), signal.SIGKILL)
    assert_handed_over(found, undisturbed, "unavailable")
    assert found.whole_seconds < REPLICA_SECONDS


def test_a_decoder_replica_that_freezes_costs_a_pause_and_no_clip(
    service, client, video, undisturbed
):
    found = disturbed(service, video, replica(service, "Decoder"), signal.SIGSTOP)
    assert_handed_over(found, undisturbed, "unavailable")
    assert found.silent_seconds < service.settings["stall_seconds"] + 2 + NOTICE_SECONDS
    assert found.whole_seconds < FROZEN_REPLICA_SECONDS


@pytest.mark.parametrize("part", ["PartA", "PartB"])
def test_a_part_that_is_killed_in_a_batch_costs_no_clip(service, client, video, undisturbed, part):
    found = disturbed(service, video, replica(service, part), signal.SIGKILL)
    assert_same(of_parts(found.answer), of_parts(undisturbed))
    assert found.answer["decode"]["fallback_reason"] is None
    print(f"{part}: {found.silent_seconds:.1f} s without an event,")
    print(f"  whole again after {found.whole_seconds:.1f} s")
    assert found.whole_seconds < PART_SECONDS


def test_four_videos_at_once_lose_nothing_when_one_child_is_killed(
    service, client, video, undisturbed
):
    """Only the one whose child it was changes its decoder."""
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(analyzed, client, content=video, headers=RAW) for _ in range(4)]
        wait_until(lambda: num_running(service) == 4, seconds=20, what="four decodes")
        time.sleep(3)
        processes.decode_children(service.folder, "Decoder")[0].kill()
        answers = [one.result() for one in asked]
    for answer in answers:
        assert_same(of_parts(answer), of_parts(undisturbed))
    reasons = [answer["decode"]["fallback_reason"] for answer in answers]
    assert sorted(reasons, key=str) == [None, None, None, "crashed"]
    wait_until(service.is_whole, seconds=CHILD_SECONDS, what="a whole service")


def test_two_children_that_are_killed_one_after_the_other_cost_no_clip(service, video, undisturbed):
    """The second one was CpuDecoder's; another of its children goes on."""
    killed: list[int] = []
    with service.client() as client:
        for event in events(client, video):
            if not killed and event["event"] == "progress":
                for deployment in ("Decoder", "CpuDecoder"):
                    wait_until(lambda name=deployment: working(service, name), seconds=5)
                    [child] = working(service, deployment)
                    child.kill()
                    killed.append(child.pid)
    assert_same(of_parts(event["result"]), of_parts(undisturbed))
    attempts = event["result"]["decode"]["attempts"]
    assert [attempt["failure"] for attempt in attempts] == ["crashed", "crashed", None]
    assert [attempt["pid"] for attempt in attempts[:2]] == killed
    wait_until(service.is_whole, seconds=CHILD_SECONDS, what="a whole service")


def test_an_ingress_that_is_killed_leaves_no_child_and_no_file(service, video):
    [ingress] = processes.replicas(service.folder, "Ingress")
    kinds = []
    with service.client() as client, suppress(httpx.TransportError):
        for event in events(client, video):
            kinds.append(event["event"])
            ingress.kill()
    assert "result" not in kinds
    wait_until(service.is_whole, seconds=REPLICA_SECONDS, what="a whole service")
    assert not list(service.media.iterdir())
    assert len(processes.decode_children(service.folder)) == 2
