"""One video: decode -> (part A beside part B) -> merge. A plain class, used by Ingress.

    Decoder ---\\                 /--> PartA --\
                >--- clips -----<              >--> summaries --> answer
    CpuDecoder-/   (references)  \\--> PartB --/
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import ray
from ray.serve.handle import DeploymentHandle

from deployments import calls
from deployments.analysis import Analysis, Attempt
from deployments.credits import CreditLine
from deployments.errors import DeadlineExceeded, DecoderError, DecoderUnavailable
from deployments.frames import (
    ClipHeader,
    ClipSpec,
    DecodeReport,
    DecodeStarted,
    Source,
    VideoFacts,
    VideoInfo,
)

logger = logging.getLogger(__name__)

SILENCE_GRACE_SECONDS = 2.0
"""What the pipeline waits beyond stall_seconds: a child's supervisor is to notice first."""
_RETRY_SECONDS = 0.5

Emit = Callable[[dict[str, Any]], None]
Clips = AsyncGenerator[tuple[ClipHeader, ray.ObjectRef]]


class Pipeline:
    """Runs analyses over the handles that graph.py binds."""

    def __init__(
        self,
        *,
        decoders: dict[str, DeploymentHandle],
        parts: dict[str, DeploymentHandle],
        stall_seconds: float,
        deadline_seconds: float,
        clips_in_flight: int,
    ) -> None:
        self.decoders, self.parts = decoders, parts
        self.silence_seconds = stall_seconds + SILENCE_GRACE_SECONDS
        self._deadline_seconds = deadline_seconds
        self._clips_in_flight = clips_in_flight
        self.num_running = 0
        self.fallbacks: Counter[str] = Counter()  # by reason

    async def analyze(self, source: Source, *, emit: Emit) -> dict[str, Any]:
        """The answer; `emit` is called with each event on the way. Raises ReelserveError."""
        self.num_running += 1
        try:
            async with asyncio.timeout(self._deadline_seconds):
                analysis = Analysis(
                    source=source, specs=await self.specs(), slots=self._clips_in_flight
                )
                return await _Run(self, analysis, emit).answer()
        except TimeoutError:
            raise DeadlineExceeded(
                f"The request was not done within its {self._deadline_seconds:g} s."
            ) from None
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            self.num_running -= 1

    async def specs(self) -> dict[str, ClipSpec]:
        """What each part wants to see; asked each time: a redeployed part may want other clips."""
        asked = [calls.call(handle, "describe") for handle in self.parts.values()]
        return dict(zip(self.parts, await asyncio.gather(*asked), strict=True))


class _Run:
    """One video on its way through the deployments."""

    def __init__(self, pipeline: Pipeline, analysis: Analysis, emit: Emit) -> None:
        self._pipeline, self._analysis, self._emit = pipeline, analysis, emit
        self._line: CreditLine | None = None  # to the decode that feeds this run

    async def answer(self) -> dict[str, Any]:
        try:
            async with asyncio.TaskGroup() as tasks, aclosing(self._clips()) as clips:
                async for header, frames in clips:
                    tasks.create_task(self._compute(header, frames))
        finally:
            self._hang_up()
        return self._analysis.answer(await self._summaries())

    async def _clips(self) -> Clips:
        """Every clip of the video once, whichever decoders it takes."""
        while not self._analysis.is_decoded:
            attempt = self._analysis.attempt(self._next_decoder())
            try:
                async with aclosing(self._decode(attempt)) as clips:
                    async for clip in clips:
                        yield clip
            except DecoderError as error:
                await self._note(attempt, error)

    async def _decode(self, attempt: Attempt) -> Clips:
        request = self._analysis.request(attempt)
        items = calls.decode(
            self._pipeline.decoders[attempt.deployment],
            request,
            silence_seconds=self._pipeline.silence_seconds,
        )
        async with aclosing(items):
            async for item in items:
                match item:
                    case DecodeStarted():
                        attempt.begin(item)
                        await self._connect(item, num_granted=request.credits)
                    case VideoInfo():
                        self._analysis.info = item
                        self._emit(self._analysis.info_event())
                    case (header, frames):
                        self._analysis.receive(header)
                        yield header, frames
                    case DecodeReport():
                        self._analysis.report = item

    def _next_decoder(self) -> str:
        """Decoder first; whatever goes wrong with it, CpuDecoder from then on."""
        names = list(self._pipeline.decoders)
        return names[min(len(self._analysis.attempts), len(names) - 1)]

    async def _note(self, attempt: Attempt, error: DecoderError) -> None:
        logger.warning(
            "%s gave up on %r: %s", attempt.deployment, self._analysis.source.name, error
        )
        self._pipeline.fallbacks[error.reason] += 1
        self._analysis.fail(attempt, error)
        if len(self._analysis.attempts) > 1:  # the first fall-back costs no time
            await asyncio.sleep(_RETRY_SECONDS)

    async def _compute(self, header: ClipHeader, frames: ray.ObjectRef) -> None:
        part = self._pipeline.parts[header.part]
        self._analysis.done(await calls.call(part, "infer", frames, header))
        if self._line:
            self._line.grant()
        self._emit(self._analysis.progress_event())

    async def _summaries(self) -> dict[str, Any]:
        parts = self._pipeline.parts
        facts = self._analysis.facts
        asked = [self._summarise(part, facts) for part in parts]
        return dict(zip(parts, await asyncio.gather(*asked), strict=True))

    async def _summarise(self, part: str, facts: VideoFacts) -> dict[str, Any]:
        begun = time.monotonic()
        clips = self._analysis.in_order(part)
        summary = await calls.call(self._pipeline.parts[part], "summarise", clips, facts)
        self._analysis.summarise_seconds[part] = time.monotonic() - begun
        return summary

    async def _connect(self, started: DecodeStarted, *, num_granted: int) -> None:
        self._hang_up()
        try:
            self._line = await CreditLine.connect(started.credit_address, started.credit_token)
        except OSError as error:
            raise DecoderUnavailable(f"No line to the decoder replica: {error}") from error
        # Clips of an earlier decoder may have been done since the request, with no line to tell it.
        for _ in range(num_granted, self._analysis.num_free):
            self._line.grant()

    def _hang_up(self) -> None:
        if self._line:
            self._line.close()
        self._line = None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
