"""Uploads while they arrive, on real sockets: refused early, broken off, cancelled, large."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from app import spool
from app.intake import receive
from app.settings import Media
from tests.app.serving import asgi_client, assert_problem, connect, echo_app, served, wait_until

LIMIT_BYTES = 3 * 2**20
FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\n'


@pytest.fixture
def media(tmp_path: Path) -> Media:
    return Media(directory=tmp_path / "spool", upload_limit_bytes=LIMIT_BYTES)


@pytest.fixture
def port(media: Media) -> Iterator[int]:
    with served(echo_app(media)) as port:
        yield port
    assert spooled(media) == []


def spooled(media: Media) -> list[Path]:
    return list(media.directory.glob("*"))


def test_a_length_over_the_limit_is_refused_before_a_byte_of_it(port):
    with connect(port, "Content-Type: video/mp4", f"Content-Length: {5 * 2**30}") as client:
        answer = read_answer(client)
    assert_problem(answer, 413, "too_large", "5.0 GiB (5,368,709,120 bytes)", "3.0 MiB (3,145,728")


@pytest.mark.parametrize("type_", ["video/mp4", FORM])
def test_an_upload_is_refused_as_soon_as_it_passes_the_limit(port, type_):
    with connect(port, f"Content-Type: {type_}", "Transfer-Encoding: chunked") as client:
        send_chunk(client, PART)
        for _ in range(LIMIT_BYTES // 2**20):
            send_chunk(client, bytes(2**20))
        send_chunk(client, bytes(100_000))
        answer = read_answer(client)  # the body has no end yet
    assert_problem(answer, 413, "too_large", "has 3.", "the limit is 3.0 MiB (3,145,728 bytes)")


def test_a_client_that_sends_on_after_the_refusal_reads_it_afterwards(port):
    with connect(port, "Content-Type: video/mp4", f"Content-Length: {30 * 2**20}") as client:
        for _ in range(30):
            client.sendall(bytes(2**20))
        answer = read_answer(client)
    assert_problem(answer, 413, "too_large", "30.0 MiB")


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_so_does_a_client_whose_connection_closes_after_the_answer(media, http, version):
    head = ["Connection: close", "Content-Type: video/mp4", f"Content-Length: {30 * 2**20}"]
    with (
        served(echo_app(media), http=http) as port,
        connect(port, *head, version=version) as client,
    ):
        for _ in range(30):
            client.sendall(bytes(2**20))
        assert_problem(read_answer(client), 413, "too_large", "30.0 MiB")
        client.settimeout(2)
        assert client.recv(1) == b""


def test_a_client_that_leaves_in_the_middle_leaves_no_file(port, media, caplog):
    with connect(port, "Content-Type: video/mp4", f"Content-Length: {LIMIT_BYTES}") as client:
        client.sendall(bytes(2 * 2**20))
        wait_until(lambda: spooled(media))
    wait_until(lambda: not spooled(media))
    assert "Traceback" not in caplog.text


async def test_a_cancelled_request_leaves_no_file(media, monkeypatch):
    """Also where the cancel falls into a write: that thread ends before the file goes."""
    created = spool.create
    monkeypatch.setattr(spool, "create", lambda path: (time.sleep(0.2), created(path))[1])
    task = asyncio.create_task(take(media, endless()))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert media.directory.exists()
    assert spooled(media) == []


async def test_an_error_after_the_upload_leaves_no_file(media):
    async def analyze() -> None:
        async with receive(post(chunks(b"x")), media) as source:
            assert spooled(media) == [Path(source.path)]
            raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        await analyze()
    assert spooled(media) == []


async def test_a_full_disk_is_507(media, monkeypatch):
    monkeypatch.setattr(spool, "create", lambda path: Path("/dev/full").open("wb"))  # noqa: SIM115
    async with asgi_client(echo_app(media)) as client:
        headers = {"Content-Type": "video/mp4"}
        answer = await client.post("/", content=bytes(2**20), headers=headers)
    assert_problem(answer, 507, "storage_full", "1.0 MiB")


def test_an_upload_of_300_mb_takes_no_memory(tmp_path):
    media = Media(directory=tmp_path, upload_limit_bytes=2**30)
    num_pieces, piece = 300, bytes(2**20)
    with served(echo_app(media)) as port:
        tail = b"\r\n--b--\r\n"
        length = len(PART) + num_pieces * len(piece) + len(tail)
        with connect(port, f"Content-Type: {FORM}", f"Content-Length: {length}") as c:
            before = peak = rss_bytes()
            c.sendall(PART)
            for _ in range(num_pieces):
                c.sendall(piece)
                peak = max(peak, rss_bytes())
            c.sendall(tail)
            assert read_answer(c).json()["num_bytes"] == num_pieces * len(piece)
    assert peak - before < 30 * 2**20
    assert spooled(media) == []


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def send_chunk(client: socket.socket, data: bytes) -> None:
    client.sendall(b"%x\r\n%s\r\n" % (len(data), data))


def read_answer(client: socket.socket) -> httpx.Response:
    """Head and body by Content-Length, and nothing that the server sends later."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += _more(client)
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        body += _more(client)
    json.loads(body)
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


def _more(client: socket.socket) -> bytes:
    data = client.recv(65536)
    assert data, "the connection was closed before the answer"
    return data


async def take(media: Media, messages: AsyncIterator[dict[str, Any]]) -> None:
    async with receive(post(messages), media):
        pass


def post(messages: AsyncIterator[dict[str, Any]]) -> Request:
    headers = [(b"content-type", b"video/mp4"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b""}
    return Request(scope, lambda: anext(messages))


async def chunks(*bodies: bytes) -> AsyncIterator[dict[str, Any]]:
    for body in bodies:
        yield {"type": "http.request", "body": body, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}


async def endless() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "http.request", "body": bytes(2**20), "more_body": True}
    await asyncio.Event().wait()
