"""From a request to a Source: its body is taken as it arrives, within limits, and leaves nothing.

multipart/form-data             field `video` (the file) or `path`
video/*, octet-stream           the file itself
application/json                {"path": "/a/file/under/a/media/root"}
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from app.form import Form, clean_name
from app.media_roots import resolve
from app.settings import Media
from app.spool import PIECE_BYTES, Spool, too_large
from deployments.errors import EmptyBody, InvalidRequest, MissingSource, UnsupportedBody
from deployments.frames import Source

JSON_LIMIT_BYTES = 64 * 2**10
FORM_SLACK_BYTES = 64 * 2**10  # of boundaries, headers and text fields around the file


@asynccontextmanager
async def receive(request: Request, media: Media) -> AsyncIterator[Source]:
    """The video that `request` brings or names; an upload is on disk until the block is left.

    Raises RequestError, StorageFull, and ClientDisconnect where the client went away.
    """
    # An answer to a body that is still arriving is sent with care: app/problems.py.
    request.state.body_is_arriving = True
    start_seconds, end_seconds = asked_range(request)
    async with Spool(media.directory, limit_bytes=media.upload_limit_bytes) as spool:
        path, name = await _read(request, media, spool)
        yield Source(path=path, name=name, start_seconds=start_seconds, end_seconds=end_seconds)


def asked_range(request: Request) -> tuple[float, float | None]:
    """The half-open range in the query parameters: [start_seconds, end_seconds)."""
    start_seconds = _seconds(request, "start_seconds") or 0.0
    end_seconds = _seconds(request, "end_seconds")
    if end_seconds is not None and end_seconds <= start_seconds:
        raise InvalidRequest(
            f"end_seconds must be above start_seconds, not {end_seconds:g} after {start_seconds:g}."
        )
    return start_seconds, end_seconds


def _seconds(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InvalidRequest(f"{name} must be a number of seconds from 0 up, not {text[:40]!r}.")
    return seconds


async def _read(request: Request, media: Media, spool: Spool) -> tuple[str, str]:
    """(path, name) of the video, by the kind of the body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(request, media, spool)
    if kind == "application/json":
        return await _named(await _read_json(request), media)
    if kind == "application/octet-stream" or kind.startswith("video/"):
        return await _read_raw(request, spool)
    raise _unsupported(request, kind)


async def _read_raw(request: Request, spool: Spool) -> tuple[str, str]:
    async for piece in arriving(request, limit_bytes=spool.limit_bytes):
        spool.add(piece)
        await spool.drain()
    return await _spooled(spool, name="")


async def _read_form(request: Request, media: Media, spool: Spool) -> tuple[str, str]:
    form = Form(request.headers["content-type"], spool)
    limit_bytes = spool.limit_bytes
    async for piece in arriving(request, limit_bytes=limit_bytes, slack_bytes=FORM_SLACK_BYTES):
        form.feed(piece)
        await spool.drain()
    form.finish()
    if form.path is not None:
        return await _named(form.path.decode(errors="surrogateescape"), media)
    return await _spooled(spool, name=form.name or "")


async def _read_json(request: Request) -> str:
    body = bytearray()
    async for piece in arriving(request, limit_bytes=JSON_LIMIT_BYTES):
        body += piece
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The JSON does not parse: {error}.") from error
    return _path_in(value)


def _path_in(value: Any) -> str:
    if not isinstance(value, dict):
        raise InvalidRequest('The JSON must be an object: {"path": "/a/file.mp4"}.')
    unknown = ", ".join(f"`{clean_name(key)[:40]}`" for key in list(value)[:5] if key != "path")
    if unknown:
        raise InvalidRequest(f"The JSON may have `path` and nothing else, but it has {unknown}.")
    if "path" not in value:
        raise MissingSource("The JSON has no `path`.")
    if not isinstance(value["path"], str):
        raise InvalidRequest("`path` in the JSON must be a string.")
    return value["path"]


async def _named(path: str, media: Media) -> tuple[str, str]:
    real = await asyncio.to_thread(resolve, path, media.roots)  # a root may be a slow network disk
    return real, clean_name(real)


async def _spooled(spool: Spool, *, name: str) -> tuple[str, str]:
    if not spool.num_bytes:
        raise EmptyBody("The video has no bytes.")
    await spool.finish()
    return str(spool.path), name


async def arriving(
    request: Request, *, limit_bytes: int, slack_bytes: int = 0
) -> AsyncIterator[bytes]:
    """Pieces of the body, refused as soon as it is known to be over the limit."""
    num_bytes = _announced_bytes(request) or 0
    if num_bytes > limit_bytes + slack_bytes:
        raise too_large("The request announces", num_bytes, limit_bytes)
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > limit_bytes + slack_bytes:
            raise too_large("So far the request has", num_bytes, limit_bytes)
        for start in range(0, len(chunk), PIECE_BYTES):
            yield chunk[start : start + PIECE_BYTES]
    request.state.body_is_arriving = False
    if not num_bytes:
        raise EmptyBody("The request has no body.")


def _announced_bytes(request: Request) -> int | None:
    """What Content-Length says; None where the body comes in chunks, or there is none."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def _unsupported(request: Request, kind: str) -> EmptyBody | UnsupportedBody:
    if not _announced_bytes(request) and "transfer-encoding" not in request.headers:
        return EmptyBody("The request has no body.")
    found = f"Content-Type {kind[:80]!r}" if kind else "a body without a Content-Type"
    return UnsupportedBody(
        f"The request has {found}; send video/* or application/octet-stream (the file itself),"
        ' multipart/form-data with a file `video`, or application/json {"path": …}.'
    )
