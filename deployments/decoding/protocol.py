"""What a supervisor and its decode child say to each other, and the memory that they share.

Messages are one JSON object a line on a Unix socket: a child that has been taken over by a hostile
file can send nonsense, but nothing that its supervisor would execute.

The shared memory is one anonymous memory file, so nothing is left behind however both ends die:

    0           PAGE_BYTES
    | pulse     | slot 0 | slot 1 | ...          the slots exist only while a job runs
"""

import json
import mmap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from deployments.frames import ClipHeader, ClipSpec, DecodeReport, DecodeRequest, Source, VideoInfo

PAGE_BYTES = mmap.PAGESIZE
State = Literal["idle", "working", "waiting_for_slot", "waiting_for_input"]
_STATES: tuple[State, ...] = ("idle", "working", "waiting_for_slot", "waiting_for_input")


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Child: imports are done, a job may come. `backend` is what its reader decodes with."""

    backend: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """Supervisor: decode this. The first `num_credits` slots may be filled at once, any other
    only after a FreeSlot."""

    source: Source
    specs: dict[str, ClipSpec]
    first_clips: dict[str, int]
    num_slots: int
    num_credits: int

    @property
    def slot_bytes(self) -> int:
        return max(spec.clip_bytes for spec in self.specs.values())

    @classmethod
    def of(cls, request: DecodeRequest) -> "Job":
        return cls(
            source=request.source,
            specs=request.specs,
            first_clips=request.first_clips,
            num_slots=request.slots,
            num_credits=request.credits,
        )


@dataclass(frozen=True, kw_only=True)
class FreeSlot:
    """Supervisor: this slot may be filled (again)."""

    slot: int


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Child: the container is open."""

    info: VideoInfo


@dataclass(frozen=True, kw_only=True)
class ClipInSlot:
    """Child: a finished clip lies in a slot."""

    header: ClipHeader
    slot: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """Child: the pass is over, the child is idle again."""

    report: DecodeReport


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Child: this is wrong with the video (a code of errors.VIDEO_ERRORS); it is idle again."""

    code: str
    sentence: str


Message = Ready | Job | FreeSlot | Opened | ClipInSlot | Done | Refused
_MESSAGES = {cls.__name__: cls for cls in (Ready, Job, FreeSlot, Opened, ClipInSlot, Done, Refused)}
_NESTED = {"source": Source, "info": VideoInfo, "header": ClipHeader, "report": DecodeReport}


def dump(message: Message) -> bytes:
    """One line, with its newline."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def load(line: bytes) -> Message:
    """The message in a line. ValueError if it is none."""
    try:
        fields = json.loads(line)
        cls = _MESSAGES[fields.pop("kind")]
        return cls(**{name: _value(name, value) for name, value in fields.items()})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no message of the decode protocol: {line[:80]!r}") from error


def _value(name: str, value: Any) -> Any:
    if name in _NESTED:
        return _NESTED[name](**_tuples(value))
    if name == "specs":
        return {part: ClipSpec(**_tuples(spec)) for part, spec in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


class Pulse:
    """The first page: what the child does, how far it is, and a counter that moves while it works.

    One writer (the child), one reader (the supervisor); each field is one aligned 8-byte store.
    """

    def __init__(self, memory_fd: int) -> None:
        self._page = mmap.mmap(memory_fd, PAGE_BYTES)
        self._integers = memoryview(self._page)[:16].cast("q")
        self._floats = memoryview(self._page)[16:24].cast("d")

    def beat(self) -> None:
        """Progress was made."""
        self._integers[0] += 1

    @property
    def count(self) -> int:
        return self._integers[0]

    @property
    def state(self) -> State:
        state = self._integers[1]
        return _STATES[state] if 0 <= state < len(_STATES) else "working"

    @state.setter
    def state(self, state: State) -> None:
        self._integers[1] = _STATES.index(state)
        self.beat()

    @property
    def pts_seconds(self) -> float:
        return self._floats[0]

    @pts_seconds.setter
    def pts_seconds(self, pts_seconds: float) -> None:
        self._floats[0] = pts_seconds

    def close(self) -> None:
        self._integers.release()
        self._floats.release()
        self._page.close()
