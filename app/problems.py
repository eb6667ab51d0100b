"""Errors as callers read them: application/problem+json (RFC 9457) with a stable `code`."""

import asyncio
import logging
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from deployments.errors import InvalidRequest, Overloaded, ReelserveError

RETRY_AFTER_SECONDS = 2
LINGER_SECONDS = 10.0
UNEXPECTED = "Something went wrong inside the service; its log says what."
BASE = ReelserveError(UNEXPECTED)

logger = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""
    app.add_exception_handler(ReelserveError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_error)


def problem(error: BaseException) -> dict[str, Any]:
    """What a caller may know of `error`, in an answer or as the last event of a stream.

    An unexpected one is logged here, with its traceback: the caller reads only that there was one.
    """
    known = _ours(error)
    if known is None:
        logger.error("Unexpected error in a request", exc_info=error)
        known = BASE
    return _members(known.status, known.code, str(known) or UNEXPECTED)


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


class LingeringResponse(ProblemResponse):
    """Answers, then takes in what the client still sends, and only then lets go.

    uvicorn closes at once after an answer to `Connection: close`, and a close with bytes unread
    resets the connection: the client may never see the answer. (nginx: lingering_close. Where the
    connection is kept, uvicorn reads on by itself.)
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_linger(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                await _drain(receive)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await super().__call__(scope, receive, send_and_linger)


def _ours(error: BaseException) -> ReelserveError | None:
    """The error itself: Ray wraps it, with a coloured remote trace as its str(), and a `cause`."""
    while cause := getattr(error, "cause", None):
        error = cause
    return error if isinstance(error, ReelserveError) else None


def _members(status: int, code: str, detail: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }


def _response(
    request: Request, members: dict[str, Any], headers: dict[str, str] | None = None
) -> ProblemResponse:
    is_arriving = getattr(request.state, "body_is_arriving", False)
    lingers = is_arriving and _closes_after_answer(request)
    kind = LingeringResponse if lingers else ProblemResponse
    return kind(members, status_code=members["status"], headers=headers)


async def _on_error(request: Request, error: Exception) -> ProblemResponse:
    is_busy = isinstance(_ours(error), Overloaded)
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if is_busy else None
    return _response(request, problem(error), headers)


async def _on_invalid(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return _response(request, problem(InvalidRequest(f"{'; '.join(faults)}.")))


async def _on_http(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    where = f"{request.method} {request.url.path}"
    detail = f"{where}: {phrase}." if error.detail == phrase else error.detail
    headers = dict(error.headers or {})
    return _response(request, _members(error.status_code, code, detail), headers)


async def _on_disconnect(request: Request, error: Exception) -> ProblemResponse:
    """Nobody is left to read it; but it is no failure of ours, and no traceback in the log."""
    gone = InvalidRequest("The client went away before the body was complete.")
    return ProblemResponse(problem(gone), status_code=gone.status)


def _closes_after_answer(request: Request) -> bool:
    is_old = request.scope.get("http_version") == "1.0"
    return is_old or "close" in request.headers.get("connection", "").lower()


async def _drain(receive: Receive) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass
