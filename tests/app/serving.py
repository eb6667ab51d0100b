"""A small app around `receive`, behind a real uvicorn on a free loopback port."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request

from app.intake import receive
from app.problems import install
from app.settings import Media


def echo_app(media: Media) -> FastAPI:
    """Answers what `receive` made of the request, while the upload is still on disk."""
    app = FastAPI()
    install(app)

    @app.post("/")
    async def echo(request: Request) -> dict[str, Any]:
        async with receive(request, media) as source:
            stored = Path(source.path)
            size = await asyncio.to_thread(lambda: stored.stat().st_size)
            head = await asyncio.to_thread(lambda: stored.open("rb").read(64).decode("latin-1"))
            return {**vars(source), "num_bytes": size, "head": head}

    return app


@contextmanager
def served(app: FastAPI, *, http: str = "auto") -> Iterator[int]:
    """The port on which `app` listens."""
    config = uvicorn.Config(app, port=0, log_level="error", http=http, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(timeout=5)


def wait_until(is_true: Any, *, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def connect(port: int, *headers: str, version: str = "1.1") -> socket.socket:
    """A connection on which the head of a POST was sent, and no body yet."""
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    lines = [f"POST / HTTP/{version}", f"Host: 127.0.0.1:{port}", *headers, "", ""]
    client.sendall("\r\n".join(lines).encode())
    return client


def asgi_client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://reelserve")


def assert_problem(response: httpx.Response, status: int, code: str, *words: str) -> None:
    """`response` is a problem of this code, and its sentence says each of `words`."""
    assert response.headers["content-type"] == "application/problem+json"
    said = response.json()
    assert (response.status_code, said["status"], said["code"]) == (status, status, code), said
    assert said["detail"].endswith(".")
    for word in words:
        assert word in said["detail"]
