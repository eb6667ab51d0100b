"""Decoder: the deployment that owns decode children. Bound twice, as Decoder and as CpuDecoder."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import Any

import numpy as np
import ray
from ray import serve

from deployments.credits import CreditDesk
from deployments.decoding.child_process import ChildProcess
from deployments.decoding.protocol import Job
from deployments.decoding.supervisor import Supervisor
from deployments.frames import (
    Clip,
    ClipHeader,
    DecodeReport,
    DecodeRequest,
    DecodeStarted,
    Progress,
    VideoInfo,
)

_HEARTBEAT_SECONDS = 1.0

Item = DecodeStarted | Progress | VideoInfo | ClipHeader | np.ndarray | DecodeReport


class Decoder:
    """Decodes up to `children` videos at once, each in a child process that can be killed."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, *, reader: str, children: int, warm_children: int, stall_seconds: float
    ) -> None:
        self._num_running = 0
        self._supervisor = Supervisor(
            reader=reader,
            children=children,
            warm_children=warm_children,
            stall_seconds=stall_seconds,
        )
        await self._supervisor.start()
        self._desk = CreditDesk()
        self._desk_address = await self._desk.start(ray.util.get_node_ip_address())

    async def decode(self, request: DecodeRequest) -> AsyncIterator[Item]:
        """One pass over a video.

        DecodeStarted and VideoInfo; then for each clip a ClipHeader and its frames, uint8
        (T, H, W, 3); DecodeReport last. A Progress every second at least, also while the request
        waits for a child. Raises VideoError and DecoderError.
        """
        async with AsyncExitStack() as stack:
            lease = asyncio.ensure_future(stack.enter_async_context(self._supervisor.lease()))
            async with aclosing(_while_waiting(lease)) as signs_of_life:
                async for sign in signs_of_life:
                    yield sign
            child = lease.result()
            account = self._desk.open(on_grant=child.grant, on_hangup=child.hang_up)
            token = stack.enter_context(account)
            stack.enter_context(self._counted())
            yield self._started(child, token)
            async with aclosing(child.run(Job.of(request))) as items:
                async for item in items:
                    if isinstance(item, Clip):
                        yield item.header
                        yield item.frames
                    else:
                        yield item

    async def status(self) -> dict[str, Any]:
        """What an operator wants to see of this replica."""
        return {
            "replica": _replica_id(),
            "pid": os.getpid(),
            "running": self._num_running,
            "idle_children": self._supervisor.idle_pids,
            "children_started": self._supervisor.num_started,
            "children_killed": self._supervisor.num_killed,
            "children_abandoned": self._supervisor.num_abandoned,
        }

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1

    def _started(self, child: ChildProcess, token: str) -> DecodeStarted:
        return DecodeStarted(
            replica=_replica_id(),
            pid=child.pid,
            backend=child.backend,
            credit_address=self._desk_address,
            credit_token=token,
        )


def _replica_id() -> str:
    return serve.get_replica_context().replica_id.unique_id


async def _while_waiting(lease: "asyncio.Future[ChildProcess]") -> AsyncGenerator[Progress]:
    try:
        while not (await asyncio.wait({lease}, timeout=_HEARTBEAT_SECONDS))[0]:
            yield Progress(pts_seconds=0.0, state="waiting_for_child")
    except BaseException:
        lease.cancel()
        await asyncio.wait({lease})  # a child that it got after all has to be given back
        raise
