"""The desk and the line, over real sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deployments.credits import CreditDesk, CreditLine

WITHIN_SECONDS = 2.0


class Decode:
    """What a decode hears from its pipeline."""

    def __init__(self) -> None:
        self.credits = 0
        self.hung_up = asyncio.Event()

    def grant(self, credits: int) -> None:
        self.credits += credits

    async def has(self, credits: int) -> bool:
        async with asyncio.timeout(WITHIN_SECONDS):
            while self.credits < credits:
                await asyncio.sleep(0.005)
        return self.credits == credits


@pytest.fixture
async def desk() -> AsyncIterator[tuple[CreditDesk, tuple[str, int]]]:
    desk = CreditDesk()
    address = await desk.start("127.0.0.1")
    yield desk, address
    desk._server.close()


def open_for(desk: CreditDesk, decode: Decode):
    return desk.open(on_grant=decode.grant, on_hangup=decode.hung_up.set)


async def test_every_grant_arrives_at_its_own_decode(desk) -> None:
    desk, address = desk
    one, other = Decode(), Decode()
    with open_for(desk, one) as token, open_for(desk, other) as other_token:
        line = await CreditLine.connect(address, token)
        other_line = await CreditLine.connect(address, other_token)
        for _ in range(100):
            line.grant()
        other_line.grant()
        assert await one.has(100)
        assert await other.has(1)
        line.close()
        other_line.close()


async def test_the_end_of_the_line_is_heard_at_once(desk) -> None:
    desk, address = desk
    decode = Decode()
    with open_for(desk, decode) as token:
        line = await CreditLine.connect(address, token)
        line.grant()
        line.close()
        await asyncio.wait_for(decode.hung_up.wait(), WITHIN_SECONDS)
        assert decode.credits == 1


async def test_a_line_to_a_decode_that_is_over_disturbs_nobody(desk) -> None:
    desk, address = desk
    over, running = Decode(), Decode()
    with open_for(desk, running) as token:
        with open_for(desk, over) as old_token:
            old = await CreditLine.connect(address, old_token)
            old.grant()
            assert await over.has(1)
        old.grant()
        old.close()
        line = await CreditLine.connect(address, token)
        line.grant()
        assert await running.has(1)
        assert over.credits == 1
        assert not over.hung_up.is_set()
        line.close()


@pytest.mark.parametrize("said", [b"", b"short", b"0" * 32, b"\xff" * 64], ids=repr)
async def test_who_has_no_token_grants_nothing(desk, said: bytes) -> None:
    desk, address = desk
    decode = Decode()
    with open_for(desk, decode):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(said)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), WITHIN_SECONDS)
        writer.close()
        assert decode.credits == 0
        assert not decode.hung_up.is_set()


async def test_who_says_nothing_is_shown_out(desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, address = desk
    monkeypatch.setattr("deployments.credits._TOKEN_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection(*address)
    assert await asyncio.wait_for(reader.read(), WITHIN_SECONDS) == b""
    writer.close()


async def test_granting_on_a_line_that_broke_is_harmless(desk) -> None:
    desk, address = desk
    decode = Decode()
    with open_for(desk, decode) as token:
        line = await CreditLine.connect(address, token)
        line.close()
        line.grant()
        await asyncio.wait_for(decode.hung_up.wait(), WITHIN_SECONDS)


async def test_a_replica_that_is_gone_is_an_os_error(desk) -> None:
    desk, address = desk
    desk._server.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await CreditLine.connect(address, "0" * 32)
