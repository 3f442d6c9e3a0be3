"""One look for all that goes on under tokens."""

import asyncio
from functools import partial

import pytest

from rota.core.access import LOCAL, Caller, Scope
from rota.gateways.auth import token_uses
from rota.gateways.auth.token_uses import TokenUses
from tests.gateways.websocket.talking import until

ONE = Caller(name="one", scopes=(Scope.READ,), token_id="t-1")
TWO = Caller(name="two", scopes=(Scope.READ,), token_id="t-2")


class Book:
    """The tokens that are good, and how often they were looked up."""

    def __init__(self) -> None:
        self.good = {"t-1", "t-2"}
        self.looks = 0
        self.looked = asyncio.Event()
        self.trouble: Exception | None = None

    async def refresh(self) -> None:
        self.looks += 1
        self.looked.set()
        if self.trouble is not None:
            raise self.trouble

    def uses(self) -> TokenUses:
        return TokenUses(self.refresh, self.good.__contains__)


async def test_only_what_goes_on_under_the_ended_token_is_ended() -> None:
    book = Book()
    ended: list[str] = []
    uses = book.uses()
    for caller, name in ((ONE, "a"), (ONE, "b"), (TWO, "c"), (LOCAL, "d")):
        uses.add(caller, partial(ended.append, name))
    dropped = uses.add(ONE, partial(ended.append, "e"))
    uses.drop(dropped)

    book.good.discard("t-1")
    await uses.check()
    await uses.check()

    assert sorted(ended) == ["a", "b"]
    uses.stop()


async def test_a_change_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_uses, "CHECK_EVERY_S", 1_000.0)
    book = Book()
    uses, ended = book.uses(), asyncio.Event()
    uses.add(ONE, ended.set)
    book.good.clear()

    uses.note_change()

    async with asyncio.timeout(20):
        await ended.wait()


async def test_nobody_looks_while_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_uses, "CHECK_EVERY_S", 0.001)
    book = Book()
    uses = book.uses()
    assert uses.add(LOCAL, asyncio.Event().set) is None
    await asyncio.sleep(0)
    assert book.looks == 0

    use = uses.add(ONE, asyncio.Event().set)
    async with asyncio.timeout(20):
        await book.looked.wait()
        uses.drop(use)
        await until(lambda: not uses.is_checking)


async def test_a_store_that_is_away_does_not_end_the_looking() -> None:
    book = Book()
    ended: list[str] = []
    uses = book.uses()
    uses.add(ONE, lambda: ended.append("one"))
    book.trouble = OSError("gone")

    await uses.check()
    assert ended == []
    book.good.discard("t-1")  # it has expired meanwhile
    await uses.check()

    assert ended == ["one"]
    uses.stop()
