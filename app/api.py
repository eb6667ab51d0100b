"""Ingress: the HTTP routes, in front of a Pipeline."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from ray import serve
from ray.serve.handle import DeploymentHandle

from app import problems, schemas
from app.events import Events
from app.intake import receive
from app.settings import Settings
from app.spool import make_directory, sweep
from deployments.errors import DecoderUnavailable, PartUnavailable
from deployments.pipeline import Pipeline

_READY_SECONDS = 5.0

api = FastAPI(
    title="Reelserve",
    description="A video in; what is in it and where its cuts are out.",
    responses={code: {"model": schemas.Problem} for code in (400, 403, 404, 413, 415, 422, 503)},
)
problems.install(api)


# Above the class: serve.ingress pickles the routes, with the names they use, as it decorates.


async def _result(events: AsyncGenerator[dict[str, Any]]) -> dict[str, Any]:
    async for event in events:
        last = event
    return last["result"]


async def _ndjson(
    first: dict[str, Any], events: AsyncGenerator[dict[str, Any]]
) -> AsyncGenerator[bytes]:
    yield _line(first)
    try:
        async with aclosing(events):
            async for event in events:
                yield _line(event)
    except Exception as error:  # the status line is out: the error is the last line
        yield _line({"event": "error", "problem": problems.problem(error)})


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


async def _said(handle: DeploymentHandle) -> list[dict[str, Any]]:
    """What each replica says of itself; nothing where they don't answer."""
    try:
        return await handle.broadcast("status").results_async(timeout_s=_READY_SECONDS)
    except Exception:
        return []


@serve.ingress(api)
class Ingress:
    """Takes videos in, runs them through the pipeline, and answers."""

    def __init__(
        self,
        settings: Settings,
        decoder: DeploymentHandle,
        cpu_decoder: DeploymentHandle,
        part_a: DeploymentHandle,
        part_b: DeploymentHandle,
    ) -> None:
        self._media = settings.media
        make_directory(self._media.directory)
        sweep(self._media.directory)
        self._decoders = {"Decoder": decoder, "CpuDecoder": cpu_decoder}
        self._parts = {"part_a": part_a, "part_b": part_b}
        self._pipeline = Pipeline(
            decoders=self._decoders,
            parts=self._parts,
            stall_seconds=settings.stall_seconds,
            deadline_seconds=settings.request.deadline_seconds,
            clips_in_flight=settings.request.clips_in_flight,
        )

    @api.post(
        "/v1/analyze",
        responses={200: {"model": schemas.Analysis}},
        openapi_extra=schemas.ANALYZE_BODY,
    )
    async def analyze(
        self,
        request: Request,
        stream: bool = False,
        start_seconds: float = 0.0,
        end_seconds: float | None = None,
    ) -> Response:
        """Analyse a video, or the range [start_seconds, end_seconds) of it.

        With `stream=true` the answer is NDJSON: `info`, `progress` as clips are done, and `result`
        (or `error`, where something fails after the first line).
        """
        events = self._events(request)
        if stream:
            first = await anext(events)  # what is wrong so far is still a plain 4xx
            return StreamingResponse(_ndjson(first, events), media_type="application/x-ndjson")
        async with aclosing(events):
            return JSONResponse(await _result(events))

    @api.get("/v1/status", response_model=schemas.Status)
    async def status(self) -> dict[str, Any]:
        """The deployments, their replicas, and what each says of itself."""
        said = {name: await _said(handle) for name, handle in self._handles().items()}
        overview = await asyncio.to_thread(serve.status)
        ours = overview.applications[serve.get_replica_context().app_name]
        return {
            "requests_running": self._pipeline.num_running,
            "fallbacks": self._pipeline.fallbacks,
            "deployments": {
                name: {
                    "status": deployment.status,
                    "replicas": deployment.replica_states,
                    "said": said.get(name, []),
                }
                for name, deployment in ours.deployments.items()
            },
        }

    @api.get("/livez")
    async def livez(self) -> dict[str, str]:
        """Alive: this process answers."""
        return {"status": "alive"}

    @api.get("/readyz")
    async def readyz(self) -> dict[str, str]:
        """Ready: both parts and a decoder answer. 503 otherwise."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._pipeline.specs()
        except TimeoutError:
            raise PartUnavailable("A model part does not answer.") from None
        if not await self._decoder_answers():
            raise DecoderUnavailable("No decoder answers.")
        return {"status": "ready"}

    async def _decoder_answers(self) -> bool:
        asked = [_said(handle) for handle in self._decoders.values()]
        return any(await asyncio.gather(*asked))

    def _handles(self) -> dict[str, DeploymentHandle]:
        parts = {"PartA": self._parts["part_a"], "PartB": self._parts["part_b"]}
        return {**self._decoders, **parts}

    async def _events(self, request: Request) -> AsyncGenerator[dict[str, Any]]:
        """What happens to the video of this request, the result last; its upload lives as long."""
        begun = time.monotonic()
        async with receive(request, self._media) as source:
            intake_seconds = time.monotonic() - begun
            events = Events()
            analysis = asyncio.create_task(self._pipeline.analyze(source, emit=events.emit))
            analysis.add_done_callback(events.close)
            try:
                async for event in events:
                    yield event
                result = await analysis
            finally:
                analysis.cancel()
                await asyncio.wait({analysis})
            result["timing"]["intake_seconds"] = round(intake_seconds, 4)
            yield {"event": "result", "result": result}
