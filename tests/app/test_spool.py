"""Uploads whose process was killed are swept away; those of a living one are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.spool import Spool, sweep

KILLED_IN_THE_MIDDLE = """
import asyncio, os, signal, sys
from pathlib import Path
from app.spool import PIECE_BYTES, Spool

async def main():
    async with Spool(Path(sys.argv[1]), limit_bytes=2 * PIECE_BYTES) as spool:
        spool.add(bytes(PIECE_BYTES))
        await spool.drain()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_an_upload_of_a_killed_process_is_swept_away(tmp_path: Path):
    subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE, tmp_path], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    assert sweep(tmp_path) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_finished", [False, True], ids=["arriving", "finished"])
async def test_an_upload_of_a_living_process_is_kept(tmp_path: Path, is_finished: bool):
    async with Spool(tmp_path, limit_bytes=2**22) as spool:
        spool.add(bytes(2**21))
        await (spool.finish() if is_finished else spool.drain())
        assert sweep(tmp_path) == 0
        assert spool.path.stat().st_size == 2**21 or not is_finished
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_no_upload_is_kept(tmp_path: Path):
    (tmp_path / "holiday.mp4").write_bytes(b"x")
    assert sweep(tmp_path) == 0
    assert (tmp_path / "holiday.mp4").exists()
