"""The deployment of one model part: loads it, batches clips, runs them on a thread of its own."""

import asyncio
import ctypes
import pkgutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deployments.batching import Batcher
from deployments.frames import ClipHeader, ClipOutput, ClipSpec, VideoFacts

if TYPE_CHECKING:
    from deployments.models.part import Part


class ModelPart:
    """One part of the model on one device. A plain class; `app/graph.py` binds it twice.

    `model` is an import path, "module:Class", and `options` go to the class; `checkpoint` stands
    in for the weights that come with it. `device` is a torch device: "cpu", "cuda", "cuda:1".

    torch is imported in here, not above: the graph is built from this module in processes that
    need no torch (4 s and 200 MB each).
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        options: dict[str, Any],
        checkpoint: Path | None,
        max_batch: int,
        threads: int,
        device: str,
        batch_limit_seconds: float = 60,
    ) -> None:
        import torch

        from deployments.models import weights

        self._name = name
        self._batch_limit_seconds = batch_limit_seconds
        self._max_batch = max_batch
        self._threads = threads
        self._device = torch.device(device)
        self._part: Part = pkgutil.resolve_name(model)(**options)
        self._network = weights.load(
            self._part.build, checkpoint or self._part.checkpoint, device=self._device
        )
        self._batcher = Batcher(
            self._forward,
            max_batch=max_batch,
            prepare=self._warm_up,
            rest=_give_back_memory,
            name=f"{name}-forward",
        )

    async def describe(self) -> ClipSpec:
        return self._part.clip_spec

    async def infer(
        self,
        frames: np.ndarray,
        header: ClipHeader,
        deadline: float | None = None,
        priority: int = 0,
    ) -> ClipOutput:
        """What the part makes of one clip, uint8 (T, H, W, 3).

        `deadline` is a `time.time()`, after which the clip is not begun any more. `priority` 0 is
        interactive, 1 a batch job: it waits for all that is interactive.
        """
        expected = (self._part.clip_spec.length, *self._part.clip_spec.size, 3)
        if frames.shape != expected or frames.dtype != np.uint8:
            raise ValueError(
                f"{self._name} takes uint8 {expected}, not {frames.dtype} {frames.shape}"
            )
        done = await self._batcher.submit(frames, priority=priority, deadline=deadline)
        return ClipOutput(
            header=header,
            output=done.result,
            queue_seconds=done.queue_seconds,
            forward_seconds=done.run_seconds,
            batch_size=done.batch_size,
        )

    async def summarise(self, clips: list[ClipOutput], video: VideoFacts) -> dict[str, Any]:
        """What the part says of one video, from the outputs of all its clips."""
        in_order = sorted(clips, key=lambda clip: clip.header.index)
        return await asyncio.to_thread(self._part.summarise, in_order, video)

    async def check_health(self) -> None:
        """Raises when the thread is gone or its batch takes longer than any batch should.

        A long queue is no illness. Reads two fields, so it never waits for a batch.
        """
        if not self._batcher.is_alive:
            raise RuntimeError(f"the forward thread of {self._name} has ended")
        since = self._batcher.running_since
        if since is not None and time.monotonic() - since > self._batch_limit_seconds:
            seconds = time.monotonic() - since
            raise RuntimeError(f"a batch of {self._name} has been running for {seconds:.0f} s")

    async def status(self) -> dict[str, Any]:
        sizes = dict(sorted(self._batcher.batch_sizes.items()))
        return {
            "device": str(self._device),
            "waiting": self._batcher.num_waiting,
            "batch_sizes": sizes,  # size -> how many batches
            "clips_done": sum(size * num for size, num in sizes.items()),
            "busy_seconds": self._batcher.busy_seconds,
        }

    def _warm_up(self) -> None:
        """Run the largest batch on black: the first request is not slow, and lack of memory shows.

        On the forward thread, because the number of threads that OpenMP uses is the thread's own.
        """
        import torch

        torch.set_num_threads(self._threads)
        spec = self._part.clip_spec
        self._forward([np.zeros((spec.length, *spec.size, 3), np.uint8)] * self._max_batch)

    def _forward(self, clips: list[np.ndarray]) -> list[Any]:
        import torch

        with torch.inference_mode():
            frames = torch.from_numpy(np.stack(clips)).to(self._device)
            return self._part.to_outputs(self._network(self._part.to_input(frames)))


def _give_back_memory() -> None:
    """What a batch took and freed stays with the allocator: 110 MB of an idle replica of shots."""
    ctypes.CDLL(None).malloc_trim(0)
