"""The line back from a pipeline to the decode that feeds it: one byte is one credit.

Ray's streams have no back-pressure, and a second call to a deployment may reach another replica. So
each decoder replica keeps a desk; a decode stream begins with the desk's address and a token, and
the pipeline holds one connection open for as long as it wants clips. When that connection ends, for
whatever reason, nobody wants them any more.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_TOKEN_BYTES = 16
_TOKEN_SECONDS = 10.0  # who is silent for so long holds no connection
_CREDIT = b"\x01"


@dataclass(frozen=True, kw_only=True)
class Account:
    """One decode's credits, as its replica keeps them."""

    token: str
    on_grant: Callable[[int], None]
    on_hangup: Callable[[], None]


class CreditDesk:
    """The replica's end. `open` an account a decode."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> tuple[str, int]:
        """Listen on this address of the node. Returns (host, port)."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        return self._server.sockets[0].getsockname()[:2]

    @contextmanager
    def open(
        self, *, on_grant: Callable[[int], None], on_hangup: Callable[[], None]
    ) -> Iterator[str]:
        """The token of a new account; it is closed with the context."""
        token = secrets.token_hex(_TOKEN_BYTES)
        self._accounts[token] = Account(token=token, on_grant=on_grant, on_hangup=on_hangup)
        try:
            yield token
        finally:
            del self._accounts[token]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TOKEN_SECONDS):
                token = (await reader.readexactly(2 * _TOKEN_BYTES)).decode("ascii", "replace")
            if self._account(token):
                await self._take_grants(token, reader)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _take_grants(self, token: str, reader: asyncio.StreamReader) -> None:
        try:
            while credits := len(await reader.read(1024)):
                if account := self._account(token):
                    account.on_grant(credits)
        finally:
            if account := self._account(token):
                account.on_hangup()

    def _account(self, token: str) -> Account | None:
        for known, account in self._accounts.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return account
        return None


class CreditLine:
    """The pipeline's end: `grant` what it has room for, `close` when it wants no more."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int], token: str) -> "CreditLine":
        """Raises OSError where the replica cannot be reached."""
        _, writer = await asyncio.open_connection(*address)
        writer.write(token.encode())
        return cls(writer)

    def grant(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(_CREDIT)

    def close(self) -> None:
        self._writer.close()
