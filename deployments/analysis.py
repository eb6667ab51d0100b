"""What is known of one analysis while it runs, and the answer that comes of it. No Ray, no I/O."""

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from deployments.errors import DecoderError, VideoHangsDecoders
from deployments.frames import (
    ClipHeader,
    ClipOutput,
    ClipSpec,
    DecodeReport,
    DecodeRequest,
    DecodeStarted,
    Source,
    VideoFacts,
    VideoInfo,
)

MOST_FAILURES_AT_ONE_PLACE = {"hung": 2, "crashed": 3}
"""So many different children that hung or crashed at the same clips, and it is the video."""


@dataclass(kw_only=True)
class Attempt:
    """One decoder's try at the video, from its first clips on."""

    deployment: str
    first_clips: dict[str, int]
    replica: str | None = None
    pid: int | None = None
    backend: str | None = None
    failure: str | None = None

    def begin(self, started: DecodeStarted) -> None:
        self.replica, self.pid, self.backend = started.replica, started.pid, started.backend

    @property
    def child(self) -> tuple[str, int] | None:
        """The process that saw the video. None: it came to none."""
        return None if self.replica is None or self.pid is None else (self.replica, self.pid)


@dataclass(kw_only=True)
class Analysis:
    """One video on its way: clips received, clips done, and who decoded them."""

    source: Source
    specs: dict[str, ClipSpec]
    slots: int
    info: VideoInfo | None = None
    report: DecodeReport | None = None
    attempts: list[Attempt] = field(default_factory=list)
    outputs: dict[str, list[ClipOutput]] = field(init=False)
    summarise_seconds: dict[str, float] = field(default_factory=dict)
    _num_received: dict[str, int] = field(init=False)
    _failed: dict[tuple[Any, ...], set[tuple[str, int]]] = field(default_factory=dict)
    _pts_done: dict[str, float] = field(init=False)
    _begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.outputs = {part: [] for part in self.specs}
        self._num_received = dict.fromkeys(self.specs, 0)
        self._pts_done = dict.fromkeys(self.specs, self.source.start_seconds)

    def attempt(self, deployment: str) -> Attempt:
        """A new try, from the first clip of each part that was not received yet.

        Clips that were received are held here, whoever made them: they are not made again.
        """
        self.attempts.append(Attempt(deployment=deployment, first_clips=dict(self._num_received)))
        return self.attempts[-1]

    def request(self, attempt: Attempt) -> DecodeRequest:
        return DecodeRequest(
            source=self.source,
            specs=self.specs,
            first_clips=attempt.first_clips,
            credits=self.num_free,
            slots=self.slots,
        )

    def receive(self, header: ClipHeader) -> None:
        assert header.index == self._num_received[header.part], header
        self._num_received[header.part] += 1

    def done(self, output: ClipOutput) -> None:
        part = output.header.part
        self.outputs[part].append(output)
        self._pts_done[part] = max(self._pts_done[part], output.header.pts_seconds[-1])

    def fail(self, attempt: Attempt, error: DecoderError) -> None:
        """Note why a decoder gave up. Raises VideoHangsDecoders when the video is to blame."""
        attempt.failure = error.reason
        place = (error.reason, *self._num_received.values())
        children = self._failed.setdefault(place, set())
        if attempt.child:
            children.add(attempt.child)
        if len(children) >= MOST_FAILURES_AT_ONE_PLACE.get(error.reason, len(self.attempts) + 1):
            raise VideoHangsDecoders(
                f"{len(children)} decoders {error.reason} at the same place of this video. "
                f"The last one said: {error}"
            ) from error

    def in_order(self, part: str) -> list[ClipOutput]:
        return sorted(self.outputs[part], key=lambda output: output.header.index)

    @property
    def is_decoded(self) -> bool:
        return self.report is not None

    @property
    def num_held(self) -> int:
        """Clips received and not done."""
        return sum(self._num_received.values()) - sum(map(len, self.outputs.values()))

    @property
    def num_free(self) -> int:
        """Clips that may be on their way in addition."""
        return self.slots - self.num_held

    @property
    def fallback_reason(self) -> str | None:
        return next((attempt.failure for attempt in self.attempts if attempt.failure), None)

    @property
    def facts(self) -> VideoFacts:
        assert self.info
        assert self.report
        end_seconds = self.report.duration_seconds
        if self.source.end_seconds is not None:
            end_seconds = min(end_seconds, self.source.end_seconds)
        return VideoFacts(
            info=self.info, start_seconds=self.source.start_seconds, end_seconds=end_seconds
        )

    def info_event(self) -> dict[str, Any]:
        assert self.info
        return {"event": "info", "video": {"name": self.source.name, **asdict(self.info)}}

    def progress_event(self) -> dict[str, Any]:
        assert self.info
        return {
            "event": "progress",
            "pts_seconds": round(min(self._pts_done.values()), 3),
            "duration_seconds": self.source.end_seconds or self.info.duration_seconds_from_header,
            "clips_done": {part: len(outputs) for part, outputs in self.outputs.items()},
        }

    def answer(self, summaries: dict[str, dict[str, Any]]) -> dict[str, Any]:
        assert self.info
        assert self.report
        return {
            "video": {
                "name": self.source.name,
                **asdict(self.info),
                "duration_seconds": self.report.duration_seconds,
                "frames": self.report.frames,
                "warnings": list(self.report.warnings),
            },
            "decode": {
                "deployment": self.attempts[-1].deployment,
                "backend": self.attempts[-1].backend,
                "fallback_reason": self.fallback_reason,
                "frames": self.report.frames,
                "attempts": [asdict(attempt) for attempt in self.attempts],
            },
            **summaries,
            "timing": self._timing(),
        }

    def _timing(self) -> dict[str, Any]:
        assert self.report
        total_seconds = time.monotonic() - self._begun
        video_seconds = self.facts.end_seconds - self.facts.start_seconds
        return {
            "total_seconds": round(total_seconds, 4),
            "decode_seconds": round(self.report.decode_seconds, 4),
            **{part: self._part_timing(part) for part in self.specs},
            "video_seconds": round(video_seconds, 4),
            "realtime_factor": round(video_seconds / total_seconds, 3),
        }

    def _part_timing(self, part: str) -> dict[str, Any]:
        outputs = self.outputs[part]
        return {
            "clips": len(outputs),
            "queue_seconds": round(sum(output.queue_seconds for output in outputs), 4),
            "forward_seconds": round(sum(output.forward_seconds for output in outputs), 4),
            "batch_sizes": dict(Counter(output.batch_size for output in outputs)),
            "summarise_seconds": round(self.summarise_seconds[part], 4),
        }
