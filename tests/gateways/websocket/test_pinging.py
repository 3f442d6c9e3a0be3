"""Rounds among the sockets, by a loop whose time is turned."""

import asyncio
from collections.abc import Callable
from typing import cast

from rota.gateways.websocket.pinging import ROUND_S, PingRounds


class Loop:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.later: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        assert delay_s == ROUND_S
        self.later.append(callback)
        return object()

    def turn(self) -> None:
        self.now_s += ROUND_S
        later, self.later = self.later, []
        for callback in later:
            callback()


class Socket:
    def __init__(self) -> None:
        self.checked_at: list[float] = []

    def check(self, now_s: float) -> int:
        self.checked_at.append(now_s)
        return 0

    def end_partial(self) -> None:
        raise AssertionError("nothing has begun here")


def test_all_sockets_are_checked_at_in_one_round_as_long_as_there_are_any() -> None:
    loop = Loop()
    rounds = PingRounds(cast("asyncio.AbstractEventLoop", loop))
    first, second = Socket(), Socket()
    rounds.add(first)
    rounds.add(second)
    assert len(loop.later) == 1

    loop.turn()
    rounds.drop(first)
    loop.turn()
    rounds.drop(second)
    rounds.drop(second)
    loop.turn()

    assert (first.checked_at, second.checked_at) == ([ROUND_S], [ROUND_S, 2 * ROUND_S])
    assert not loop.later
    rounds.add(first)
    loop.turn()
    assert first.checked_at[-1] == 4 * ROUND_S


async def test_a_loop_has_one_round() -> None:
    loop = asyncio.get_running_loop()

    assert PingRounds.on(loop) is PingRounds.on(loop)
