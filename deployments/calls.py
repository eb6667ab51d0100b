"""Calls through Serve handles that end: each with a bound, each cancelled when nobody waits for it.

What Ray raises becomes what our callers decide by; see the table in the README.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from deployments.errors import DecoderUnavailable, Overloaded, ReelserveError
from deployments.frames import (
    ClipHeader,
    DecodeReport,
    DecodeRequest,
    DecodeStarted,
    Progress,
    VideoInfo,
)

LOST = (
    RayActorError,
    ObjectLostError,
    TaskCancelledError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
"""The replica died, left or dropped the call; it may succeed on another."""

_RETRY_SECONDS = 0.25

DecodeItem = DecodeStarted | Progress | VideoInfo | tuple[ClipHeader, ray.ObjectRef] | DecodeReport


async def call(handle: DeploymentHandle, method: str, *args: Any) -> Any:
    """The answer of any replica, asked again elsewhere when one is lost.

    Bounded by the caller's own timeout. Raises what the method raises, and Overloaded.
    """
    while True:
        response = getattr(handle, method).remote(*args)
        try:
            return await response
        except LOST:
            await asyncio.sleep(_RETRY_SECONDS)
        except BackPressureError as error:
            raise Overloaded("The service is busy; try again in a moment.") from error
        except RayTaskError as error:
            raise _cause(error) from None
        except asyncio.CancelledError:
            response.cancel()
            raise


async def decode(
    handle: DeploymentHandle, request: DecodeRequest, *, silence_seconds: float
) -> AsyncGenerator[DecodeItem]:
    """One decode on one replica. Pixels stay references, and this process owns them.

    A replica shows a sign of life every second; one that is silent for `silence_seconds`, or that
    dies, is DecoderUnavailable. Raises the VideoError or DecoderError that the replica raises.
    """
    response = handle.options(stream=True).decode.remote(request)
    assert isinstance(response, DeploymentResponseGenerator)
    try:
        refs = await _within(silence_seconds, response._to_object_ref_gen())
        while (ref := await _within(silence_seconds, anext(refs, None))) is not None:
            item = await ref
            if isinstance(item, ClipHeader):
                yield item, await _within(silence_seconds, anext(refs))
            else:
                yield item
    except BackPressureError as error:
        raise Overloaded("All decoders are busy; try again in a moment.") from error
    except RayTaskError as error:
        raise _cause(error) from None
    except (*LOST, TimeoutError, StopAsyncIteration) as error:
        raise DecoderUnavailable(f"A decoder replica is gone or silent: {error!r}") from error
    finally:
        response.cancel()


async def _within(seconds: float, answer: Awaitable[Any]) -> Any:
    # Not wait_for: on Python 3.11 it swallows a cancellation that comes together with the answer.
    async with asyncio.timeout(seconds):
        return await answer


def _cause(error: RayTaskError) -> Exception:
    """The error as it was raised: without Ray's coloured trace in its text."""
    cause = error.cause
    if isinstance(cause, ReelserveError):
        return cause
    return error
