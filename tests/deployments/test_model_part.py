"""A part from its import path to its answer, without Ray."""

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from deployments.frames import ClipHeader, ClipOutput, ClipSpec
from deployments.model_part import ModelPart
from tests.deployments.models.conftest import facts

SPEC = ClipSpec(length=2, stride=2, size=(4, 6))


class Brightness:
    """A whole part: its network multiplies the mean of each clip by the one weight it has."""

    clip_spec = SPEC
    hang = threading.Event()

    def __init__(self, *, unit: str = "nit") -> None:
        self.unit = unit

    def build(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1, bias=False)

    def to_input(self, frames: torch.Tensor) -> torch.Tensor:
        assert frames.dtype == torch.uint8
        if frames.max() == 255:
            self.hang.wait(10)
        return frames.float().mean(dim=(1, 2, 3, 4))[:, None]

    def to_outputs(self, raw: torch.Tensor) -> list[float]:
        assert raw.is_inference()
        return raw[:, 0].tolist()

    def summarise(self, clips: list[ClipOutput], video: Any) -> dict[str, Any]:
        thread = threading.current_thread().name
        return {"unit": self.unit, "all": [clip.output for clip in clips], "thread": thread}


@pytest.fixture
def arguments(tmp_path):
    torch.save({"weight": torch.tensor([[2.0]])}, tmp_path / "weights.pt")
    return {
        "name": "part_a",
        "model": f"{__name__}:Brightness",
        "options": {"unit": "lux"},
        "checkpoint": tmp_path / "weights.pt",
        "max_batch": 4,
        "threads": 1,
        "device": "cpu",
    }


@pytest.fixture
def part(arguments):
    Brightness.hang.clear()
    yield ModelPart(**arguments, batch_limit_seconds=0.2)
    Brightness.hang.set()


def clip(value: int, index: int = 0) -> tuple[np.ndarray, ClipHeader]:
    """As Ray hands it over: read-only."""
    frames = np.full((2, 4, 6, 3), value, np.uint8)
    frames.setflags(write=False)
    header = ClipHeader(part="part_a", index=index, pts_seconds=(0, 1), frame_indices=(0, 1))
    return frames, header


async def test_a_clip_comes_back_as_what_the_part_makes_of_it(part):
    frames, header = clip(10, index=7)
    answer = await part.infer(frames, header)
    assert answer.header == header
    assert answer.output == 20.0
    assert answer.batch_size == 1
    assert answer.forward_seconds > 0
    assert answer.queue_seconds >= 0


async def test_clips_that_wait_together_run_together(part):
    first = asyncio.create_task(part.infer(*clip(255)))
    await until_running(part)
    others = [asyncio.create_task(part.infer(*clip(value))) for value in range(4)]
    await asyncio.sleep(0.01)
    assert (await part.status())["waiting"] == 4
    Brightness.hang.set()
    answers = await asyncio.gather(first, *others)
    assert [answer.output for answer in answers] == [510.0, 0.0, 2.0, 4.0, 6.0]
    assert [answer.batch_size for answer in answers] == [1, 4, 4, 4, 4]
    status = await part.status()
    assert status["batch_sizes"] == {1: 1, 4: 1}
    assert status["clips_done"] == 5


async def test_describe_gives_the_spec_of_the_part(part):
    assert await part.describe() == SPEC


async def test_summarise_gets_the_clips_in_order_and_runs_beside_the_forward_thread(part):
    hung = asyncio.create_task(part.infer(*clip(255)))
    await until_running(part)
    clips = [
        ClipOutput(
            header=clip(0, index)[1],
            output=float(index),
            queue_seconds=0,
            forward_seconds=0,
            batch_size=1,
        )
        for index in (2, 0, 1)
    ]
    answer = await part.summarise(clips, facts(1))
    assert answer["unit"] == "lux"
    assert answer["all"] == [0.0, 1.0, 2.0]
    assert answer["thread"] not in ("part_a-forward", threading.current_thread().name)
    Brightness.hang.set()
    await hung


async def test_a_part_whose_batch_hangs_is_unhealthy_and_one_that_waits_is_not(part):
    await part.check_health()
    hung = asyncio.create_task(part.infer(*clip(255)))
    await until_running(part)
    await part.check_health()
    await asyncio.sleep(0.3)
    with pytest.raises(RuntimeError, match="a batch of part_a has been running for"):
        await part.check_health()
    Brightness.hang.set()
    await hung
    await part.check_health()


async def test_a_clip_of_the_wrong_shape_is_refused_before_it_reaches_others(part):
    with pytest.raises(ValueError, match=r"part_a takes uint8 \(2, 4, 6, 3\), not uint8 \(1, 4"):
        await part.infer(clip(0)[0][:1], clip(0)[1])


def test_weights_that_do_not_fit_fail_at_the_start(arguments, tmp_path):
    torch.save({"weights": torch.zeros(1)}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="missing weight; unexpected weights"):
        ModelPart(**arguments)


def test_the_graph_can_be_built_without_importing_torch():
    program = "import sys, deployments.model_part; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


async def until_running(part: ModelPart) -> None:
    started = time.monotonic()
    while part._batcher.running_since is None:
        assert time.monotonic() - started < 5
        await asyncio.sleep(0.001)
