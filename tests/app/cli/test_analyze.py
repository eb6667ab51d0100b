"""`reelserve analyze` against a small real server that speaks the service's protocol."""

import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner

from app.cli import app


def tagged(pts_seconds: float, **probabilities: float) -> dict[str, Any]:
    tags = [{"label": label, "probability": p} for label, p in probabilities.items()]
    return {"pts_seconds": pts_seconds, "tags": tags}


def shot(start: float, end: float) -> dict[str, Any]:
    frames = {"start_frame": round(start * 25), "end_frame": round(end * 25)}
    return {"start_seconds": start, "end_seconds": end, "cut_probability": 0.9, **frames}


RESULT: dict[str, Any] = {
    "video": {
        "name": "café.mp4",
        "container": "mp4",
        "codec": "h264",
        "width": 640,
        "height": 360,
        "average_fps": 25.0,
        "duration_seconds": 75.0,
        "warnings": [],
    },
    "decode": {"deployment": "Decoder", "backend": "cpu", "fallback_reason": None, "frames": 1875},
    "part_a": {
        "frames": [tagged(0, cat=0.9, dog=0.1), tagged(1, cat=0.7), tagged(2, goldfish=0.6)],
        "top": [{"label": "cat", "probability": 0.8}, {"label": "goldfish", "probability": 0.6}],
    },
    "part_b": {"shots": [shot(0, 2), shot(2, 62.04), shot(62.04, 75)]},
    "timing": {"total_seconds": 15.0, "realtime_factor": 5.0},
}
PROGRESS = {
    "event": "progress",
    "pts_seconds": 10.0,
    "duration_seconds": 75.0,
    "clips_done": {"part_a": 10, "part_b": 5},
}
TRUNCATED = {"status": 422, "code": "no_frames", "detail": "No frame of café.mp4 decodes."}


class Service:
    """What the next request gets, and what the last one was."""

    url: str
    events: list[dict[str, Any]]
    refusal: Response | None
    query: dict[str, str]
    received_bytes: int

    async def analyze(self, request: Request) -> Response:
        self.query = dict(request.query_params)
        if self.refusal:
            return self.refusal
        async with request.form() as form:
            self.received_bytes = len(await form["video"].read())  # type: ignore[union-attr]
        return StreamingResponse(self.lines(), media_type="application/x-ndjson")

    async def lines(self) -> AsyncIterator[str]:
        for event in self.events:
            yield json.dumps(event, ensure_ascii=False) + "\n"


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    service = Service()
    routes = [Route("/v1/analyze", service.analyze, methods=["POST"])]
    listener = socket.create_server(("127.0.0.1", 0))
    service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield service
    server.should_exit = True
    thread.join(timeout=5)


@pytest.fixture
def service(running: Service) -> Service:
    running.events = [
        {"event": "info", "video": RESULT["video"]},
        PROGRESS,
        {"event": "result", "result": RESULT},
    ]
    running.refusal, running.received_bytes = None, 0
    return running


@pytest.fixture
def video(tmp_path: Path) -> Path:
    file = tmp_path / "café.mp4"
    file.write_bytes(b"\0" * 340_000)
    return file


def analyze(video: Path, url: str, *options: str) -> Any:
    return CliRunner().invoke(app, ["analyze", str(video), "--url", url, *options])


def test_the_timeline_reads_well(service: Service, video: Path) -> None:
    ran = analyze(video, service.url)
    assert (ran.exit_code, ran.stderr) == (0, "")
    expected = """
café.mp4: 1:15.0, 640×360, 25 fps, h264 in mp4, 340 kB

1  0:00.0–0:02.0  ▊                         cat 80 %, dog 5 %
2  0:02.0–1:02.0  ████████████████████████  goldfish 60 %
3  1:02.0–1:15.0  █████▏                    goldfish 60 %

overall: cat 80 %, goldfish 60 %
15.0 s, 5.0× realtime, 1875 frames decoded
"""
    assert ran.stdout == expected.lstrip()


def test_the_whole_file_arrives_and_the_range_with_it(service: Service, video: Path) -> None:
    analyze(video, service.url, "--start", "1.5", "--end", "9")
    assert service.received_bytes == 340_000
    assert service.query == {"stream": "true", "start_seconds": "1.5", "end_seconds": "9.0"}


def test_json_is_the_result_and_nothing_else(service: Service, video: Path) -> None:
    ran = analyze(video, service.url, "--json")
    assert (ran.exit_code, json.loads(ran.stdout)) == (0, RESULT)


def test_a_fall_back_and_the_warnings_are_said(service: Service, video: Path) -> None:
    decode = RESULT["decode"] | {"deployment": "CpuDecoder", "fallback_reason": "hung"}
    facts = RESULT["video"] | {"warnings": ["The file breaks off after 75.0 s."]}
    service.events[-1]["result"] = RESULT | {"decode": decode, "video": facts}
    lines = analyze(video, service.url).stdout.splitlines()
    assert lines[-2:] == [
        "fell back to CpuDecoder: decoder hung",
        "warning: The file breaks off after 75.0 s.",
    ]


def test_other_parts_are_printed_as_their_json(service: Service, video: Path) -> None:
    service.events[-1]["result"] = RESULT | {"part_a": {"mood": "calm"}, "part_b": {"words": 3}}
    out = analyze(video, service.url).stdout
    assert '"mood": "calm"' in out
    assert '"words": 3' in out


def test_a_refusal_is_one_sentence_on_stderr(service: Service, video: Path) -> None:
    service.refusal = JSONResponse(TRUNCATED, 422, media_type="application/problem+json")
    ran = analyze(video, service.url)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "No frame of café.mp4 decodes.\n"


def test_a_file_refused_while_it_is_sent_gets_its_sentence(
    service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "large.mp4"
    with file.open("wb") as opened:
        opened.truncate(300_000_000)
    service.refusal = JSONResponse({"detail": "The limit is 1000 bytes."}, 413)
    ran = analyze(file, service.url)
    assert (ran.exit_code, ran.stderr) == (1, "The limit is 1000 bytes.\n")


def test_an_error_after_the_stream_began_is_one_sentence(service: Service, video: Path) -> None:
    service.events[1:] = [PROGRESS, {"event": "error", "problem": TRUNCATED}]
    ran = analyze(video, service.url)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "No frame of café.mp4 decodes.\n"


def test_a_stream_that_ends_early_is_said(service: Service, video: Path) -> None:
    service.events.pop()
    ran = analyze(video, service.url)
    assert ran.exit_code == 1
    assert ran.stderr == "The service ended its answer before the result.\n"


def test_an_answer_of_another_server_is_shown(service: Service, video: Path) -> None:
    service.refusal = PlainTextResponse("Internal Server Error", 500)
    ran = analyze(video, service.url)
    assert ran.exit_code == 1
    assert ran.stderr.endswith("answered 500: Internal Server Error\n")


def test_without_a_service_it_says_how_to_start_one(video: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ran = analyze(video, f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert ran.exit_code == 1
    assert "start it with `serve run serve_config.yaml`" in ran.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ran = analyze(tmp_path / "none.mp4", "http://127.0.0.1:1")
    assert ran.exit_code == 2
    assert "none.mp4" in ran.stderr.replace("\n", "")
