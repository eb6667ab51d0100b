"""Which keys and values a serve_config.yaml may hold: Serve's own models, and ours below `args`."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ray.runtime_env import RuntimeEnv
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from app.settings import Settings

Place = tuple[str | int, ...]
"""("applications", 0, "args"): the way to a value."""

Known = type[BaseModel] | frozenset[str]
"""What says which keys a mapping may have: a model, or only their names."""

RUNTIME_ENV_KEYS = frozenset(key for key in RuntimeEnv.known_fields if not key.startswith("_"))


@dataclass(frozen=True)
class Problem:
    place: Place
    sentence: str

    def __str__(self) -> str:
        return f"{printed(self.place)}: {self.sentence}" if self.place else self.sentence


class Checked(NamedTuple):
    """A value of the file, and what it has to agree with."""

    place: Place
    value: dict[Any, Any]
    known: Known


def printed(place: Place) -> str:
    """`applications[0].args.media`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def places(value: Any, known: Known = ServeDeploySchema, place: Place = ()) -> Iterator[Checked]:
    """Every mapping in `value` whose keys are known, outermost first."""
    yield Checked(place, value, known)
    if isinstance(known, frozenset) or not isinstance(value, dict):
        return
    for key in value.keys() & known.model_fields.keys():
        for below in _known_below(known, key):
            for item_place, item in _spread((*place, key), value[key]):
                yield from places(item, below, item_place)


def _spread(place: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    """The mappings of a value that is one, or a list of them."""
    items = enumerate(value) if isinstance(value, list) else ()
    candidates = [(place, value), *(((*place, i), item) for i, item in items)]
    return ((at, item) for at, item in candidates if isinstance(item, dict))


def _known_below(model: type[BaseModel], key: str) -> list[Known]:
    if model is ServeApplicationSchema and key == "args":
        return [Settings]
    if key == "runtime_env":
        return [RUNTIME_ENV_KEYS]
    return list(_models_in(model.model_fields[key].annotation))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """`list[Dict | AutoscalingConfig] | None` -> AutoscalingConfig."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def unknown_keys(checked: Checked) -> Iterator[Problem]:
    """Keys that Serve drops in silence, each with the nearest one that it knows."""
    known = checked.known if isinstance(checked.known, frozenset) else checked.known.model_fields
    for key in checked.value:
        if key not in known:
            (nearest,) = get_close_matches(str(key), known, n=1, cutoff=0)
            yield Problem((*checked.place, key), f"unknown key, the nearest known is {nearest}")


def model_problems(checked: Checked) -> Iterator[Problem]:
    """Values that pydantic refuses. Unknown keys are `unknown_keys`' to name."""
    if isinstance(checked.known, frozenset):
        return
    try:
        checked.known.model_validate(checked.value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        found = [_problem(checked, d) for d in details if d["type"] != "extra_forbidden"]
        # A union gives one refusal for each of its members: the first is what was meant.
        yield from {problem.place: problem for problem in reversed(found)}.values()


def _problem(checked: Checked, details: ErrorDetails) -> Problem:
    place = _within(checked.value, details["loc"], missing=details["type"] == "missing")
    sentence = " ".join(details["msg"].removeprefix("Value error, ").split())
    if sentence.startswith("Input should") and not isinstance(details["input"], dict | list):
        sentence += f", not {details['input']!r}"
    return Problem((*checked.place, *place), sentence)


def _within(value: Any, loc: Place, *, missing: bool) -> Place:
    """`loc` without the names of union members that pydantic puts between the keys."""
    place: Place = ()
    for part in loc:
        inside = isinstance(value, dict) and part in value
        if inside or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            place, value = (*place, part), value[part]
    return (*place, loc[-1]) if missing else place
