"""`reelserve analyze`: one file to a running service, and its answer for a person to read."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.timeline import timeline

# Nothing is heard while the video waits for its turn: the request's deadline is the service's.
TIMEOUT = httpx.Timeout(None, connect=10)


class Failed(Exception):
    """`str(error)` is the sentence for the person at the terminal."""


def run(
    file: Path, *, url: str, start_seconds: float | None, end_seconds: float | None, as_json: bool
) -> int:
    """Print the timeline, or the answer itself. 1 where there is none."""
    between = {"start_seconds": start_seconds, "end_seconds": end_seconds}
    params = {"stream": "true"} | {k: str(v) for k, v in between.items() if v is not None}
    try:
        result = _analyze(file, url=url.rstrip("/") + "/v1/analyze", params=params)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    whole = json.dumps(result, indent=2, ensure_ascii=False)
    print(whole if as_json else "\n".join(timeline(result, file_bytes=file.stat().st_size)))
    return 0


def _analyze(file: Path, *, url: str, params: dict[str, str]) -> dict[str, Any]:
    try:
        with _progress() as progress, file.open("rb") as opened:
            task = progress.add_task("sending", total=file.stat().st_size, done="")
            video = progress.wrap_file(opened, task_id=task)
            files = {"video": (file.name, video, "application/octet-stream")}
            with httpx.stream("POST", url, params=params, files=files, timeout=TIMEOUT) as response:
                _refuse_error(response)
                return _result(response.iter_lines(), progress)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        start = "start it with `serve run serve_config.yaml`"
        raise Failed(f"No service answers at {url} ({error}): {start}.") from error
    except httpx.InvalidURL as error:
        raise Failed(f"{url} is no address: {error}.") from error
    except httpx.TransportError as error:
        raise Failed(f"The connection to {url} broke before the result: {error}.") from error
    except OSError as error:
        raise Failed(f"Cannot read {file}: {error.strerror}.") from error


def _progress() -> Progress:
    """A bar on stderr; nothing where that is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[done]}"),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _refuse_error(response: httpx.Response) -> None:
    """An answer that is no stream of events is a problem+json, ours or somebody else's page."""
    if response.is_success:
        return
    text = response.read().decode(errors="replace")
    try:
        raise Failed(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        said = " ".join(text.split())[:200] or "nothing more"
        raise Failed(f"{response.url} answered {response.status_code}: {said}") from None


def _result(lines: Iterator[str], progress: Progress) -> dict[str, Any]:
    """Follow the events to the result."""
    task = progress.add_task("analysing", total=None, done="")
    for event in map(json.loads, filter(None, lines)):
        match event["event"]:
            case "progress":
                done = "  ".join(f"{part} {n}" for part, n in event["clips_done"].items())
                duration = event["duration_seconds"]
                progress.update(task, completed=event["pts_seconds"], total=duration, done=done)
            case "result":
                return event["result"]
            case "error":
                raise Failed(event["problem"]["detail"])
    raise Failed("The service ended its answer before the result.")
