"""A service of a test's own: `serve run` of a changed copy of serve_config.yaml, as a user does it.

It has a folder of its own for Ray, a home of its own (for the dashboard's token) and free ports,
so that it runs beside any other service on the machine.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from deployments.batching import IDLE_SECONDS
from tests.serve import processes

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
START_SECONDS = 120.0
STOP_SECONDS = 60.0

Change = Callable[[dict[str, Any]], None]


@dataclass(kw_only=True)
class Service:
    """A running service. `folder` is short: a Unix socket's path has room for 107 bytes."""

    folder: Path
    process: subprocess.Popen[bytes]
    config: Path
    url: str
    ready_seconds: float = field(default=0.0)
    idle_pss_bytes: int = field(default=0)
    """Before the first request."""

    @property
    def media(self) -> Path:
        """Where uploads are spooled."""
        return self.folder / "media"

    @property
    def root(self) -> Path:
        """The media root, for {"path": …}."""
        return self.folder / "root"

    @property
    def token(self) -> str:
        """What the dashboard wants: Ray wrote it into the home of who started the cluster."""
        command, environment = [BIN / "ray", "get-auth-token"], _environment(self.folder)
        return subprocess.check_output(command, env=environment, text=True).strip()

    @property
    def dashboard_url(self) -> str:
        return re.search(r"dashboard at \S*?(http://[\w.:]+)", self.log)[1]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def settings(self) -> dict[str, Any]:
        """`args` of its configuration."""
        return yaml.safe_load(self.config.read_text())["applications"][0]["args"]

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=300, **options)

    def status(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/v1/status", timeout=30).json()["deployments"]

    def deploy(self, change: Change) -> None:
        """Change the file and `serve deploy` it."""
        write_config(self.config, change)
        command = [BIN / "serve", "deploy", self.config, "--address", self.dashboard_url]
        environment = _environment(self.folder) | {"RAY_AUTH_MODE": "token"}
        subprocess.run(command, env=environment, cwd=REPOSITORY, check=True)

    def is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200
        return False

    def is_whole(self) -> bool:
        """Every replica that the file asks for runs, and has its warm children."""
        status = self.status()
        return all(_is_whole(*item) for item in status.items()) and self.is_ready()


@contextmanager
def started(change: Change | None = None, *, stop: int = signal.SIGINT) -> Iterator[Service]:
    """Start a service, wait until it is ready; end it by the signal `stop`, and leave nothing."""
    with tempfile.TemporaryDirectory(prefix="rs-") as name:
        service = _start(Path(name), change)
        try:
            _wait_ready(service)
            wait_until(service.is_whole, seconds=START_SECONDS, what="a whole service")
            time.sleep(IDLE_SECONDS + 1)
            service.idle_pss_bytes = processes.pss_bytes(processes.of_folder(service.folder))
            yield service
            _stop(service, stop)
        finally:
            killed = processes.end(service.folder)
            service.process.wait()
        assert not killed, f"left over after signal {stop}: {killed}"


def write_config(path: Path, change: Change) -> None:
    """Change the configuration in `path`."""
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def wait_until(is_true: Callable[[], Any], *, seconds: float, what: str = "it") -> float:
    """Seconds until `is_true`."""
    begun = time.monotonic()
    while not is_true():
        assert time.monotonic() - begun < seconds, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.1)
    return time.monotonic() - begun


def deployment(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The entry under `deployments` of a parsed configuration."""
    return next(one for one in document["applications"][0]["deployments"] if one["name"] == name)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _start(folder: Path, change: Change | None) -> Service:
    config, port = folder / "serve_config.yaml", free_port()
    config.write_text((REPOSITORY / "serve_config.yaml").read_text())
    (folder / "root").mkdir()
    write_config(config, lambda document: _move(document, folder, port))
    if change:
        write_config(config, change)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / "serve", "run", config],
            env=_environment(folder),
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    return Service(folder=folder, process=process, config=config, url=url)


def _move(document: dict[str, Any], folder: Path, port: int) -> None:
    document["http_options"]["port"] = port
    media = document["applications"][0]["args"]["media"]
    media["directory"], media["roots"] = str(folder / "media"), [str(folder / "root")]


def _environment(folder: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own = {"RAY_TMPDIR": str(folder), "RAY_ADDRESS": "local", "HOME": str(folder)}
    return others | own | {"RAY_USAGE_STATS_ENABLED": "0"}


def _wait_ready(service: Service) -> None:
    begun = time.monotonic()
    while not service.is_ready():
        assert service.process.poll() is None, f"serve run ended:\n{service.log}"
        waited = time.monotonic() - begun
        assert waited < START_SECONDS, f"not ready after {waited:.0f} s:\n{service.log}"
        time.sleep(0.2)
    service.ready_seconds = time.monotonic() - begun


def _stop(service: Service, stop: int) -> None:
    service.process.send_signal(stop)
    service.process.wait(STOP_SECONDS)
    deadline = time.monotonic() + 10
    while processes.of_folder(service.folder) and time.monotonic() < deadline:
        time.sleep(0.1)


def _is_whole(name: str, deployment: dict[str, Any]) -> bool:
    said, replicas = deployment["said"], deployment["replicas"]
    if deployment["status"] != "HEALTHY" or set(replicas) != {"RUNNING"}:
        return False
    all_answer = name == "Ingress" or len(said) == replicas["RUNNING"]
    return all_answer and all(one.get("idle_children", True) or one["running"] for one in said)
