"""What the README says is run here, and what it prints is what the README shows."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.serve.service import BIN, REPOSITORY, Service

README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
SHOWN = [text for kind, text in BLOCKS if not kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "serve_config.yaml").write_text((REPOSITORY / "serve_config.yaml").read_text())
    run(command("reelserve sample"), folder)
    return folder


def command(part: str) -> str:
    """The one command of the README that contains `part`."""
    [found] = [line for line in COMMANDS if part in line]
    return found


def run(line: str, folder: Path, service: Service | None = None) -> str:
    """What a README's line prints, in this environment and at this test's service."""
    words = shlex.split(line.replace(".venv/bin/", f"{BIN}/"))
    if service:
        words = [word.replace("http://127.0.0.1:8000", service.url) for word in words]
        words += ["--url", service.url] if "reelserve" in words[0] else []
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def without_figures(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "#", text)


@pytest.mark.parametrize("part", ["reelserve sample", "reelserve check"])
def test_what_the_readme_shows_is_what_a_command_prints(part: str, folder: Path) -> None:
    assert run(command(part), folder) in SHOWN


def test_the_timeline_in_the_readme_is_the_one_that_is_printed(
    folder: Path, service: Service
) -> None:
    printed = run(command("reelserve analyze"), folder, service)
    assert without_figures(printed) in [without_figures(shown) for shown in SHOWN]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("curl")])
def test_a_curl_of_the_readme_is_answered(line: str, folder: Path, service: Service) -> None:
    last = json.loads(run(line, folder, service).splitlines()[-1])
    assert {"video", "decode", "part_a", "part_b", "timing"} <= last.get("result", last).keys()


def test_the_problem_in_the_readme_is_the_one_that_is_answered(
    tmp_path: Path, service: Service
) -> None:
    (tmp_path / "sample.mp4").write_text("no video")
    curl = next(line for line in COMMANDS if line.startswith("curl -F"))
    assert run(curl, tmp_path, service) + "\n" in SHOWN


def test_ci_installs_and_tests_as_the_readme_does() -> None:
    ci = (REPOSITORY / ".ci" / "run").read_text()
    for step in ("python3 -m venv", "pip\" install -q -e '.[test]'", "bin/pytest"):
        assert step in ci
    assert ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest" in command("'.[test]'")
