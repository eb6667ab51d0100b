"""`reelserve check`: what Serve ignores in silence, or refuses late, in a serve_config.yaml."""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from app.cli.config_schema import Place, Problem, model_problems, places, printed, unknown_keys

# The names that app/graph.py gives.
DEPLOYMENTS = ("Ingress", "Decoder", "CpuDecoder", "PartA", "PartB")


def run(file: Path) -> int:
    """Print one line for each problem. 0 if there is none."""
    try:
        text = file.read_text()
        document = yaml.safe_load(text)
    except OSError as error:
        return _fail(f"{file}: {error.strerror}")
    except UnicodeDecodeError as error:
        return _fail(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}")
    except yaml.YAMLError as error:
        return _fail(_where_yaml_breaks(file, error))
    if not isinstance(document, dict):
        return _fail(f"{file}: expected keys such as `applications:`, found {document!r:.60}")
    return _report(file, text, document)


def _report(file: Path, text: str, document: dict[str, Any]) -> int:
    lines = dict(_lines(yaml.compose(text, yaml.SafeLoader)))
    for place in _replacing_options(document):
        note = f"{file}:{_line(lines, place)}: note: {printed(place)}: {REPLACES}"
        print(note, file=sys.stderr)
    found = sorted(problems(document), key=lambda problem: _line(lines, problem.place))
    for problem in found:
        print(f"{file}:{_line(lines, problem.place)}: {problem}", file=sys.stderr)
    if not found:
        print(f"{file}: {_num_settings(document)} settings, no problem")
    return 1 if found else 0


REPLACES = (
    "replaces the whole of what args.cpu, args.gpu and the code reserve and set for this "
    "deployment (num_cpus, num_gpus, runtime_env); what is not written here is gone"
)


def problems(document: dict[str, Any]) -> list[Problem]:
    """All that is wrong with the parsed file, each once."""
    of_places = ((unknown_keys(place), model_problems(place)) for place in places(document))
    of_keys = chain.from_iterable(chain.from_iterable(of_places))
    return list(dict.fromkeys([*of_keys, *_unknown_deployments(document)]))


def _unknown_deployments(document: dict[str, Any]) -> Iterator[Problem]:
    for place, deployment in _deployments(document):
        name = deployment.get("name")
        if isinstance(name, str) and name not in DEPLOYMENTS:
            yield Problem((*place, "name"), f"no deployment {name!r}: {', '.join(DEPLOYMENTS)}")


def _replacing_options(document: dict[str, Any]) -> list[Place]:
    found = _deployments(document)
    return [(*place, "ray_actor_options") for place, d in found if d.get("ray_actor_options")]


def _deployments(document: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    for i, application in _items(document.get("applications")):
        for k, deployment in _items(application.get("deployments")):
            yield ("applications", i, "deployments", k), deployment


def _items(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The mappings in a list; what is not one is reported by its model."""
    items = value if isinstance(value, list) else []
    return ((i, item) for i, item in enumerate(items) if isinstance(item, dict))


def _lines(node: yaml.Node | None, place: Place = ()) -> Iterator[tuple[Place, int]]:
    """Where each key and item stands, counted from 1."""
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(i, value, value) for i, value in enumerate(node.value)]
    else:
        return
    for name, mark, value in children:
        yield (*place, name), mark.start_mark.line + 1
        yield from _lines(value, (*place, name))


def _line(lines: dict[Place, int], place: Place) -> int:
    """The line of `place`, or of what should have held it."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _num_settings(value: Any) -> int:
    """Leaves; an empty mapping or list is one."""
    if not value or not isinstance(value, dict | list):
        return 1
    return sum(map(_num_settings, value.values() if isinstance(value, dict) else value))


def _where_yaml_breaks(file: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{file}: not YAML: {error}"
    problem = getattr(error, "problem", "")
    return f"{file}: line {mark.line + 1}, column {mark.column + 1}: not YAML: {problem}"


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1
