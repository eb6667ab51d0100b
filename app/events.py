"""What a running analysis tells a caller who may read slowly.

Bounded: progress that nobody has read yet is overtaken by newer progress.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any


class Events:
    """Filled by `emit`, ended by `close`, read by one `async for`."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self._is_closed = False

    def emit(self, event: dict[str, Any]) -> None:
        self._waiting[event["event"]] = event
        self._changed.set()

    def close(self, _: object = None) -> None:
        self._is_closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                yield self._waiting.pop(next(iter(self._waiting)))
            if self._is_closed:
                return
