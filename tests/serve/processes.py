"""The processes of one service, found by the Ray folder that all of them were started with."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

GONE = (OSError, psutil.Error)


def of_folder(folder: Path) -> list[psutil.Process]:
    """Every process that was started with this folder or holds a file in it, and its children."""
    found = [process for process in psutil.process_iter() if _is_of(folder, process)]
    for process in list(found):
        with suppress(*GONE):
            found += process.children(recursive=True)
    return [process for process in dict.fromkeys(found) if _is_running(process)]


def replicas(folder: Path, deployment: str) -> list[psutil.Process]:
    """The replicas of a deployment; Ray writes its name into their command line."""
    return list(_titled(folder, rf"ray::ServeReplica:reelserve:{deployment}\b"))


def decode_children(folder: Path, deployment: str | None = None) -> list[psutil.Process]:
    """Decode children, of one decoder deployment or of both."""
    children = list(_titled(folder, r"-m deployments\.decoding\.child "))
    if deployment is None:
        return children
    parents = {replica.pid for replica in replicas(folder, deployment)}
    return [child for child in children if _parent_pid(child) in parents]


def pss_bytes(processes: list[psutil.Process]) -> int:
    """Their memory, what they share counted once: the slots and the object store are in it."""
    return sum(_rollup_bytes(process, "Pss") for process in processes)


def own_bytes(processes: list[psutil.Process]) -> int:
    """Without the files that they map: those are shared with whatever else runs here."""
    kinds = ("Pss_Anon", "Pss_Shmem")
    return sum(_rollup_bytes(process, kind) for process in processes for kind in kinds)


def has_torch(process: psutil.Process) -> bool:
    return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()


def end(folder: Path, *, seconds: float = 5) -> list[str]:
    """Kill what is left of a service. Returns what had to be killed."""
    left, lines = of_folder(folder), []
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        for process in left:
            with suppress(*GONE):
                lines.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.1)
        left = of_folder(folder)
    return sorted(set(lines))


def _is_of(folder: Path, process: psutil.Process) -> bool:
    """A process that gave itself a title has overwritten some of its environment with it."""
    of_process, mark = Path(f"/proc/{process.pid}"), os.fsencode(folder)
    with suppress(*GONE):
        if mark in (of_process / "environ").read_bytes() + (of_process / "cmdline").read_bytes():
            return True
        return any(os.readlink(fd).startswith(str(folder)) for fd in (of_process / "fd").iterdir())
    return False


def _is_running(process: psutil.Process) -> bool:
    with suppress(*GONE):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _titled(folder: Path, pattern: str) -> Iterator[psutil.Process]:
    for process in of_folder(folder):
        with suppress(*GONE):
            if re.search(pattern, " ".join(process.cmdline())):
                yield process


def _parent_pid(process: psutil.Process) -> int:
    with suppress(*GONE):
        return process.ppid()
    return 0


def _rollup_bytes(process: psutil.Process, kind: str) -> int:
    with suppress(*GONE):
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return int(re.search(rf"^{kind}:\s+(\d+) kB", rollup, re.MULTILINE)[1]) * 1024
    return 0
