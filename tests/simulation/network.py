"""What happens to messages on their way? Lost, delayed, doubled, overtaken by others."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from rota.core.commands import TaskCommand
from rota.core.replies import Reply
from rota.errors import RotaError
from tests.simulation.server import Disconnected, Server

PATIENCE_S = 1.0  # how long a caller waits for an answer, beyond the wait it asked for
QUICK_S = 0.004
SLOW_S = 2.5

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Unanswered(Exception):  # noqa: N818 - read at the raise site
    """No answer came: whether the call was carried out is unknown."""


@dataclass
class Weather:
    """How likely each message meets with an accident."""

    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0


@dataclass
class Network:
    server: Server
    dice: random.Random
    spawn: Spawn
    weather: Weather
    cut_off: set[str] = field(default_factory=set)  # peers whose messages do not get through

    async def call(self, peer: str, event: TaskCommand, *, wait_ms: int = 0) -> Reply:
        """Ask the coordinator; raises its refusal, or `Unanswered`."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        copies = 2 if self.dice.random() < self.weather.doubled else 1
        calls = [self.spawn(self._carry(peer, event, wait_ms, answer)) for _ in range(copies)]
        await asyncio.wait([answer], timeout=wait_ms / 1000 + PATIENCE_S)
        if not answer.done():
            answer.cancel()
            if self.dice.random() < 0.5:
                # Half of those who hang up are heard hanging up.
                for call in calls:
                    call.cancel()
            raise Unanswered
        return answer.result()

    async def _carry(
        self, peer: str, event: TaskCommand, wait_ms: int, answer: "asyncio.Future[Reply]"
    ) -> None:
        """Bring one copy of a message there, and its answer back."""
        await asyncio.sleep(self._delay_s())
        if self._is_lost(peer):
            return
        outcome: Reply | Exception
        try:
            outcome = await self.server.serve(peer, event, wait_ms=wait_ms)
        except Disconnected:
            outcome = Unanswered()
        except RotaError as error:
            outcome = error
        await asyncio.sleep(self._delay_s())
        if self._is_lost(peer) or answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _is_lost(self, peer: str) -> bool:
        return peer in self.cut_off or self.dice.random() < self.weather.lost

    def _delay_s(self) -> float:
        most_s = SLOW_S if self.dice.random() < self.weather.slow else QUICK_S
        return self.dice.random() * most_s
