"""What bad input gets: a 4xx of its own, a sentence, and nothing of it is left."""

import http.client
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import clips
from tests.app.serving import assert_problem
from tests.serve import processes
from tests.serve.conftest import UPLOAD_LIMIT_BYTES
from tests.serve.service import Service, wait_until

RAW = {"content-type": "video/mp4"}
CHUNK_BYTES = 0x10000
CHUNK = b"10000\r\n" + bytes(CHUNK_BYTES) + b"\r\n"
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def nothing_is_left(service: Service) -> Iterator[None]:
    """Around each test: warm children only, an empty media directory, no more shared memory."""
    wait_until(service.is_whole, seconds=15, what="a whole service")
    before = shared_memory_files()
    yield
    wait_until(lambda: not list(service.media.iterdir()), seconds=5, what="an empty directory")
    wait_until(lambda: is_idle(service), seconds=5, what="no child but the warm ones")
    assert shared_memory_files() <= before


def shared_memory_files() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()}


def is_idle(service: Service) -> bool:
    """Each decoder replica has its warm child and no other."""
    children = {child.pid for child in processes.decode_children(service.folder)}
    said = [one for name in ("Decoder", "CpuDecoder") for one in service.status()[name]["said"]]
    warm = {pid for one in said for pid in one["idle_children"]}
    return children == warm and len(warm) == 2 and not any(one["running"] for one in said)


def text(path: Path) -> bytes:
    return b"This is a text, whatever its name says.\n" * 50


def no_frames(path: Path) -> bytes:
    return clips.write_without_frames(path).read_bytes()


def audio(path: Path) -> bytes:
    return clips.write_audio(path).read_bytes()


def without_index(path: Path) -> bytes:
    return clips.cut_off(clips.write_video(path)).read_bytes()


def png(path: Path) -> bytes:
    return clips.write_still(path.with_suffix(".png")).read_bytes()


def jpeg(path: Path) -> bytes:
    return clips.write_still(path.with_suffix(".jpg")).read_bytes()


def noise(path: Path) -> bytes:
    return os.urandom(100_000)


BAD_FILES = [
    pytest.param(text, 415, "not_a_video", "no video format", id="text_named_mp4"),
    pytest.param(noise, 415, "not_a_video", "no video format", id="noise"),
    pytest.param(no_frames, 422, "no_frames", "frame", id="no_frames"),
    pytest.param(audio, 422, "no_video", "only sound", id="audio_only"),
    pytest.param(without_index, 422, "unreadable_video", "index", id="cut_off_before_its_index"),
    pytest.param(png, 415, "still_image", "PNG", id="png"),
    pytest.param(jpeg, 415, "still_image", "JPEG", id="jpeg"),
]


@pytest.mark.parametrize("stream", ["true", "false"], ids=["stream", "whole"])
@pytest.mark.parametrize(("make", "status", "code", "word"), BAD_FILES)
def test_a_bad_file_is_named_for_what_it_is(
    client: httpx.Client,
    tmp_path: Path,
    make: Callable[[Path], bytes],
    status: int,
    code: str,
    word: str,
    stream: str,
):
    content = make(tmp_path / "video.mp4")
    response = client.post("/v1/analyze", params={"stream": stream}, content=content, headers=RAW)
    assert_problem(response, status, code, word)


FORM = {"content-type": "multipart/form-data; boundary=b"}
JSON = {"content-type": "application/json"}

BAD_REQUESTS = [
    pytest.param({}, 400, "empty_body", id="nothing"),
    pytest.param({"headers": RAW}, 400, "empty_body", id="no_bytes"),
    pytest.param({"files": {"video": ("a.mp4", b"")}}, 400, "empty_body", id="empty_file"),
    pytest.param({"content": b"{", "headers": JSON}, 400, "invalid_request", id="broken_json"),
    pytest.param({"json": []}, 400, "invalid_request", id="json_list"),
    pytest.param({"json": {"path": 3}}, 400, "invalid_request", id="path_is_a_number"),
    pytest.param({"json": {}}, 400, "missing_source", id="json_without_path"),
    pytest.param({"json": {"path": "/x", "y": 1}}, 400, "invalid_request", id="unknown_key"),
    pytest.param({"json": {"path": "/etc/passwd"}}, 403, "path_not_allowed", id="path_outside"),
    pytest.param({"data": {"x": "y"}}, 415, "unsupported_body", id="urlencoded_form"),
    pytest.param({"files": {"film": ("a.mp4", b"x")}}, 400, "missing_source", id="other_field"),
    pytest.param({"content": b"x", "headers": FORM}, 400, "invalid_request", id="broken_form"),
    pytest.param(
        {"files": {"video": ("a.mp4", b"x")}, "data": {"path": "/x"}},
        400,
        "ambiguous_source",
        id="file_and_path",
    ),
    pytest.param(
        {"content": b"x", "headers": RAW, "params": {"start_seconds": "5", "end_seconds": "2"}},
        400,
        "invalid_request",
        id="range_backwards",
    ),
    *(
        pytest.param(
            {"content": b"x", "headers": RAW, "params": {name: value}},
            400,
            "invalid_request",
            id=f"{name}={value}",
        )
        for name, value in [
            ("start_seconds", "-1"),
            ("start_seconds", "soon"),
            ("start_seconds", "nan"),
            ("end_seconds", "inf"),
            ("end_seconds", "0"),
            ("stream", "perhaps"),
        ]
    ),
]


@pytest.mark.parametrize(("request_", "status", "code"), BAD_REQUESTS)
def test_a_bad_request_is_named_for_what_it_is(
    client: httpx.Client, request_: dict[str, Any], status: int, code: str
):
    assert_problem(client.post("/v1/analyze", **request_), status, code)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        pytest.param("GET", "/nowhere", 404, "not_found", id="unknown_path"),
        pytest.param("GET", "/v1/analyze", 405, "method_not_allowed", id="get_analyze"),
        pytest.param("DELETE", "/v1/status", 405, "method_not_allowed", id="delete_status"),
    ],
)
def test_a_wrong_route_is_a_problem_as_well(client, method, path, status, code):
    assert_problem(client.request(method, path), status, code)


def test_a_range_behind_the_end_is_refused(client, tmp_path):
    content = clips.write_video(tmp_path / "video.mp4").read_bytes()
    params = {"start_seconds": 100}
    response = client.post("/v1/analyze", params=params, content=content, headers=RAW)
    assert_problem(response, 422, "range_outside_video", "100", "2.000 s")


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        pytest.param("absent.mp4", 404, "file_not_found", id="absent"),
        pytest.param("../media/x", 403, "path_not_allowed", id="dots"),
        pytest.param("link.mp4", 403, "path_not_allowed", id="link_out"),
        pytest.param("folder", 400, "invalid_request", id="folder"),
        pytest.param("pipe", 400, "invalid_request", id="pipe"),
        pytest.param("a\0b", 400, "invalid_request", id="zero_byte"),
    ],
)
def test_a_bad_path_is_named_for_what_it_is(service, client, name, status, code):
    with suppress(FileExistsError):
        (service.root / "folder").mkdir()
        os.mkfifo(service.root / "pipe")
        (service.root / "link.mp4").symlink_to("/etc/passwd")
    response = client.post("/v1/analyze", json={"path": f"{service.root}/{name}"})
    assert_problem(response, status, code)


def test_a_file_that_breaks_off_is_analysed_up_to_there_with_a_warning(client, tmp_path):
    video = clips.write_video(tmp_path / "video.mp4", num_frames=200, movflags="faststart")
    content = clips.cut_off(video, share=0.6).read_bytes()
    response = client.post("/v1/analyze", content=content, headers=RAW)
    answer = response.json()
    assert response.status_code == 200
    assert 50 < answer["video"]["frames"] < 190
    assert answer["part_b"]["shots"][-1]["end_frame"] == answer["video"]["frames"]
    assert "breaks off" in " ".join(answer["video"]["warnings"])


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_a_file_over_the_limit_is_refused_while_it_arrives(service, connection):
    """In chunks, so that nothing announces its size; the client sends on until it is answered."""
    headers = (f"Connection: {connection}", "Transfer-Encoding: chunked")
    with begun_upload(service, None, *headers) as client:
        num_chunks = 0
        while not select.select([client], [], [], 0)[0] and num_chunks < 4000:
            client.sendall(CHUNK)
            num_chunks += 1
            time.sleep(0.002)  # 32 MiB a second, a network's pace: the answer takes its time
        sent_bytes = num_chunks * CHUNK_BYTES
        print(f"{connection}: answered after {sent_bytes / 2**20:.1f} MiB")
        assert UPLOAD_LIMIT_BYTES < sent_bytes < UPLOAD_LIMIT_BYTES + 32 * 2**20
        client.sendall(b"0\r\n\r\n")
        assert answer_on(client) == (413, "too_large")


def test_a_refused_upload_that_goes_on_takes_no_memory(service):
    before = processes.pss_bytes(processes.of_folder(service.folder))
    with begun_upload(service, None, "Transfer-Encoding: chunked") as client:
        for _ in range(16_000):
            client.sendall(CHUNK)
        grown = processes.pss_bytes(processes.of_folder(service.folder)) - before
        print(f"1 GiB went on after the refusal, {grown / 1e6:.0f} MB more memory")
        assert grown < 150e6


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_the_refusal_reaches_a_client_that_sends_on_and_then_reads(service, connection):
    announced = UPLOAD_LIMIT_BYTES + 2**20
    with begun_upload(service, announced, f"Connection: {connection}") as client:
        client.sendall(bytes(announced))
        assert answer_on(client) == (413, "too_large")


def test_an_announced_size_over_the_limit_is_refused_before_a_byte_of_it(service):
    with begun_upload(service, 100 * UPLOAD_LIMIT_BYTES) as client:
        begun = time.monotonic()
        assert answer_on(client) == (413, "too_large")
        assert time.monotonic() - begun < 2


def test_a_client_that_leaves_in_the_middle_of_its_upload_leaves_no_file(service):
    with begun_upload(service, 2**23) as client:
        client.sendall(bytes(2**22))
        wait_until(lambda: list(service.media.iterdir()), seconds=10, what="a file")


@pytest.mark.parametrize("stream", ["true", "false"], ids=["stream", "whole"])
def test_a_client_that_leaves_in_the_middle_of_its_analysis_stops_it(service, tmp_path, stream):
    video = clips.write_video(tmp_path / "video.mp4", num_frames=1500, fps=5)
    content = video.read_bytes()
    path = f"/v1/analyze?stream={stream}"
    with begun_upload(service, len(content), path=path) as client:
        client.sendall(content)
        wait_until(lambda: is_running(service), seconds=15, what="a running analysis")
        time.sleep(1)
    seconds = wait_until(lambda: not is_running(service), seconds=5, what="the end of it")
    print(f"stopped after {seconds:.1f} s")


def test_after_all_that_a_good_video_is_analysed_by_the_first_decoder(client, sample_video):
    response = client.post("/v1/analyze", content=sample_video.read_bytes(), headers=RAW)
    assert response.json()["decode"]["deployment"] == "Decoder"


def is_running(service: Service) -> bool:
    running = httpx.get(f"{service.url}/v1/status", timeout=30).json()["requests_running"]
    return running > 0


def answer_on(client: socket.socket) -> tuple[int, str]:
    """(status, code) of a problem."""
    with http.client.HTTPResponse(client) as response:
        response.begin()
        return response.status, json.loads(response.read())["code"]


def begun_upload(
    service: Service, num_bytes: int | None, *headers: str, path: str = "/v1/analyze"
) -> socket.socket:
    """A connection on which the head of a raw upload was sent."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    client = socket.create_connection((host, int(port)), timeout=15)
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: video/mp4"]
    lines += [] if num_bytes is None else [f"Content-Length: {num_bytes}"]
    lines += [*headers, "", ""]
    client.sendall("\r\n".join(lines).encode())
    return client
