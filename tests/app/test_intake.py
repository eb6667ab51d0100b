"""What a request may bring, and what is left of it afterwards: nothing."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.settings import Media
from tests.app.serving import asgi_client, assert_problem, echo_app, served

LIMIT_BYTES = 3 * 2**20
RAW = {"Content-Type": "video/mp4"}


@pytest.fixture
def media(tmp_path: Path) -> Media:
    root = tmp_path / "root"
    root.mkdir()
    (root / "film.mp4").write_bytes(b"a film")
    return Media(directory=tmp_path / "spool", roots=(root,), upload_limit_bytes=LIMIT_BYTES)


@pytest.fixture
async def client(media: Media) -> AsyncIterator[httpx.AsyncClient]:
    async with asgi_client(echo_app(media)) as client:
        yield client
    assert spooled(media) == []


@pytest.fixture
def port(media: Media) -> Iterator[int]:
    with served(echo_app(media)) as port:
        yield port
    assert spooled(media) == []


def spooled(media: Media) -> list[Path]:
    return list(media.directory.glob("*"))


# What is taken


async def test_a_raw_body_becomes_a_file_for_as_long_as_the_request_lasts(client, media):
    body = os.urandom(LIMIT_BYTES)
    answer = (await client.post("/", content=body, headers=RAW)).json()
    assert answer["num_bytes"] == LIMIT_BYTES
    assert answer["head"] == body[:64].decode("latin-1")
    assert Path(answer["path"]).parent == media.directory
    assert media.directory.stat().st_mode & 0o777 == 0o700


async def test_the_file_of_a_form_becomes_a_file_under_a_name_of_our_own(client, media):
    files = {"video": ("../../etc/a\x85 film\u202e.mp4", b"\r\n--not the boundary" * 9)}
    answer = (await client.post("/", files=files)).json()
    assert answer["name"] == "a film.mp4"
    assert answer["num_bytes"] == 20 * 9
    assert Path(answer["path"]).parent == media.directory
    assert "film" not in answer["path"]


async def test_a_form_of_exactly_the_limit_is_taken(client):
    answer = await client.post("/", files={"video": ("a.mp4", bytes(LIMIT_BYTES))})
    assert answer.json()["num_bytes"] == LIMIT_BYTES


async def test_a_form_that_arrives_byte_by_byte_is_the_same_form(client):
    boundary = "x" * 20
    form = f'--{boundary}\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n'
    form += f"Content-Type: video/mp4\r\n\r\n--{boundary[1:]}\r\n\r\n--{boundary}--\r\n"

    async def drip() -> AsyncIterator[bytes]:
        for byte in form.encode():
            yield bytes([byte])

    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    answer = (await client.post("/", content=drip(), headers=headers)).json()
    assert (answer["name"], answer["head"]) == ("a.mp4", f"--{boundary[1:]}\r\n")


@pytest.mark.parametrize("how", ["json", "form"])
async def test_a_path_inside_a_root_is_taken_where_it_is(client, media, how):
    path = str(media.roots[0] / "film.mp4")
    body = {"json": {"path": path}} if how == "json" else {"files": {"path": (None, path)}}
    answer = (await client.post("/", **body)).json()
    assert (answer["path"], answer["name"], answer["head"]) == (path, "film.mp4", "a film")
    assert (media.roots[0] / "film.mp4").exists()


async def test_a_root_may_itself_be_a_link(tmp_path, media):
    (tmp_path / "link").symlink_to(media.roots[0])
    linked = media.model_copy(update={"roots": (tmp_path / "link",)})
    async with asgi_client(echo_app(linked)) as client:
        for path in (tmp_path / "link" / "film.mp4", media.roots[0] / "film.mp4"):
            answer = (await client.post("/", json={"path": str(path)})).json()
            assert answer["path"] == str(media.roots[0] / "film.mp4")


async def test_a_range_is_taken_from_the_query(client):
    answer = await client.post("/?start_seconds=1.5&end_seconds=2", content=b"x", headers=RAW)
    assert (answer.json()["start_seconds"], answer.json()["end_seconds"]) == (1.5, 2.0)


# What is refused

BOTH = [("video", ("a.mp4", b"x")), ("path", (None, "/a"))]
REFUSED_BODIES: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "nothing": ({}, 400, "empty_body", "no body"),
    "an empty raw body": ({"content": b"", "headers": RAW}, 400, "empty_body", "no body"),
    "an empty file": ({"files": {"video": ("a.mp4", b"")}}, 400, "empty_body", "no bytes"),
    "a file and a path": ({"files": BOTH}, 400, "ambiguous_source", "both"),
    "a path and a file": ({"files": BOTH[::-1]}, 400, "ambiguous_source", "both"),
    "two files": ({"files": BOTH[:1] * 2}, 400, "invalid_request", "two files"),
    "two paths": ({"files": BOTH[1:] * 2}, 400, "invalid_request", "two paths"),
    "neither": ({"files": {"title": (None, "x")}}, 400, "missing_source", "`title`"),
    "a file elsewhere": ({"files": {"file": b"x"}}, 400, "missing_source", "`file`"),
    "a field too many": (
        {"files": [*BOTH[:1], ("end_seconds", (None, "3"))]},
        400,
        "invalid_request",
        "query parameters",
    ),
    "many parts": (
        {"files": [("a", (None, "x"))] * 99}, 400, "invalid_request", "more than 8 parts"
    ),
    "a long path": ({"files": {"path": (None, "/a" * 9000)}}, 400, "invalid_request", "4,096"),
    "a text": ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415,
        "unsupported_body", "text/plain"),
    "no type": ({"content": b"x"}, 415, "unsupported_body", "without a Content-Type"),
    "a web form": ({"data": {"path": "/a"}}, 415, "unsupported_body", "multipart/form-data"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_BODIES)
async def test_a_body_that_is_no_video_is_refused_by_name(client, name):
    body, status, code, words = REFUSED_BODIES[name]
    assert_problem(await client.post("/", **body), status, code, words)


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("headers", "content", "words"),
    [
        ({"Content-Type": "multipart/form-data"}, PART, "no boundary"),
        ({"Content-Type": "multipart/form-data; boundary="}, PART, "no boundary"),
        ({"Content-Type": f"multipart/form-data; boundary={'b' * 999}"}, PART, "well-formed"),
        (FORM, b"this is no form", "well-formed"),
        (FORM, PART + b"x" * 2 * 2**20, "breaks off"),
        (FORM, PART[:30], "breaks off"),
    ],
    ids=["no boundary", "empty boundary", "endless boundary", "no form", "in data", "in a header"],
)
async def test_a_malformed_form_is_refused(client, headers, content, words):
    answer = await client.post("/", content=content, headers=headers)
    assert_problem(answer, 400, "invalid_request", words)


REFUSED_JSON: dict[str, tuple[bytes, str, str]] = {
    "broken": (b'{"path": ', "invalid_request", "does not parse"),
    "no UTF-8": (b'{"path": "\xff"}', "invalid_request", "does not parse"),
    "deep": (b"[" * 60_000, "invalid_request", "does not parse"),
    "a list": (b'["/a"]', "invalid_request", "must be an object"),
    "a number for a path": (b'{"path": 3}', "invalid_request", "must be a string"),
    "an unknown key": (b'{"path": "/a", "pth": 1}', "invalid_request", "`pth`"),
    "no path": (b"{}", "missing_source", "no `path`"),
    "no bytes": (b"", "empty_body", "no body"),
    "a zero byte": (b'{"path": "/a\\u0000"}', "invalid_request", "zero byte"),
    "half a character": (b'{"path": "/\\ud800"}', "invalid_request", "no file name"),
    "a relative path": (b'{"path": "film.mp4"}', "invalid_request", "absolute"),
}


@pytest.mark.parametrize("name", REFUSED_JSON)
async def test_json_that_names_no_file_is_refused(client, name):
    content, code, words = REFUSED_JSON[name]
    answer = await client.post("/", content=content, headers={"Content-Type": "application/json"})
    assert_problem(answer, 400, code, words)


async def test_json_beyond_its_limit_is_refused(client):
    answer = await client.post("/", json={"path": "/" + "a" * 2**16})
    assert_problem(answer, 413, "too_large", "64.0 KiB (65,536 bytes)")


@pytest.mark.parametrize(
    "query",
    [
        "start_seconds=-1",
        "start_seconds=nan",
        "end_seconds=inf",
        "end_seconds=soon",
        "start_seconds=2&end_seconds=2",
        "end_seconds=0",
    ],
)
async def test_a_range_without_extent_is_refused(client, query):
    answer = await client.post(f"/?{query}", content=b"x", headers=RAW)
    assert_problem(answer, 400, "invalid_request", "_seconds must be")


@pytest.fixture
def outside(tmp_path: Path, media: Media) -> Path:
    """A file beside the root, with ways from the root to it."""
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"a secret")
    (media.roots[0] / "link.mp4").symlink_to(secret)
    (media.roots[0] / "dangling.mp4").symlink_to(tmp_path / "missing.mp4")
    (media.roots[0] / "up").symlink_to(tmp_path)
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "film.mp4").write_bytes(b"beside")
    (tmp_path / "back").symlink_to(media.roots[0])
    return tmp_path


async def test_every_way_out_of_the_roots_gets_the_same_answer(client, media, outside):
    """Also for what does not exist: an answer must not tell."""
    root = media.roots[0]
    ways = [outside / "secret.mp4", outside / "missing.mp4", "/etc/passwd", "/", "/dev/null"]
    ways += [root / "link.mp4", root / "dangling.mp4", f"{root}/../secret.mp4"]
    ways += [root / "up" / "secret.mp4", root / "up" / "missing.mp4", f"{root}/no/../../missing"]
    ways += [outside / "root2" / "film.mp4", outside / "back" / "film.mp4", "/" + "a" * 5000]
    answers = [await client.post("/", json={"path": str(way)}) for way in ways]
    for answer in answers:
        assert_problem(answer, 403, "path_not_allowed", "outside the media roots")
    assert len({answer.text for answer in answers}) == 1


async def test_what_is_no_file_in_a_root_is_refused_by_what_it_is(client, media):
    root = media.roots[0]
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to(root / "loop")
    refused = {
        "missing.mp4": (404, "file_not_found", "no such file"),
        "film.mp4/inside": (404, "file_not_found", "no such file"),
        "": (400, "invalid_request", "a directory"),
        "pipe": (400, "invalid_request", "a pipe"),
        "loop": (400, "invalid_request", "cannot be followed"),
        "a" * 300: (400, "invalid_request", "cannot be followed"),
    }
    for name, expected in refused.items():
        assert_problem(await client.post("/", json={"path": f"{root}/{name}"}), *expected)


async def test_no_path_is_read_where_no_root_is_configured(media):
    async with asgi_client(echo_app(media.model_copy(update={"roots": ()}))) as client:
        answer = await client.post("/", json={"path": "/etc/passwd"})
    assert_problem(answer, 403, "path_not_allowed", "`args.media.roots` in serve_config.yaml")
