"""The command `reelserve`: what each command takes. What it does is imported when it runs.

`reelserve --help` stays fast, and a machine that only sends videos never imports ray or torch.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Serve a video model in two parts; this is the hand tool beside `serve run`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

SECONDS = {"min": 0.0, "metavar": "SECONDS"}


@app.command("analyze")
def _analyze(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A video file.")],
    url: Annotated[str, typer.Option(help="Where the service is.")] = "http://127.0.0.1:8000",
    start: Annotated[
        float | None, typer.Option(help="Leave out what is before.", **SECONDS)
    ] = None,
    end: Annotated[float | None, typer.Option(help="Leave out what is after.", **SECONDS)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as it came.")] = False,
) -> None:
    """Send FILE to a running service and print what is in it, shot by shot."""
    from app.cli.analyze import run

    raise typer.Exit(run(file, url=url, start_seconds=start, end_seconds=end, as_json=json))


@app.command("check")
def _check(file: Annotated[Path, typer.Argument(help="A serve_config.yaml.")]) -> None:
    """Name every key and value of FILE that Serve or Reelserve would ignore or refuse."""
    from app.cli.check import run

    raise typer.Exit(run(file))


@app.command("sample")
def _sample(out: Annotated[Path, typer.Argument(dir_okay=False, help="An .mp4 to write.")]) -> None:
    """Write a small video with known cuts to OUT."""
    from app.cli.sample import run

    raise typer.Exit(run(out))


def main() -> None:
    app()
