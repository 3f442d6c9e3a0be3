"""What becomes of a message on its way?"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from tests.simulation.shards.timeline import Timeline


class Direction(Enum):
    IN = "to the coordinator"
    OUT = "from the coordinator"


@dataclass(frozen=True, kw_only=True)
class Weather:
    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0  # share of messages that take very long
    quick_ms: int = 80  # the others take at most so long
    slow_ms: int = 25_000  # these do
    slow_from_ms: int = 1  # and at least so long
    are_answers_quick: bool = False  # whatever the others are
    is_orderly: bool = False  # nothing overtakes anything on the same way


CALM = Weather()


class Network:
    def __init__(self, timeline: Timeline, dice: Random, weather: Weather) -> None:
        self.weather = weather
        self.cut_off: set[tuple[str, Direction]] = set()
        self.last_arrival_ms = timeline.now_ms
        self._timeline = timeline
        self._dice = dice
        self._arrivals_ms: dict[tuple[str, Direction], int] = {}

    def send(
        self, peer: str, direction: Direction, deliver: Callable[..., None], *message: Any
    ) -> None:
        weather, dice = self.weather, self._dice
        if (peer, direction) in self.cut_off:
            return
        if weather.lost and dice.random() < weather.lost:
            return
        copies = 2 if weather.doubled and dice.random() < weather.doubled else 1
        for _ in range(copies):
            self._timeline.at(self._arrival_ms(peer, direction), deliver, *message)

    def _arrival_ms(self, peer: str, direction: Direction) -> int:
        weather, dice = self.weather, self._dice
        may_be_slow = direction is Direction.IN or not weather.are_answers_quick
        if may_be_slow and dice.random() < weather.slow:
            delay_ms = dice.randint(weather.slow_from_ms, weather.slow_ms)
        else:
            delay_ms = dice.randint(1, weather.quick_ms)
        arrival_ms = self._timeline.now_ms + delay_ms
        if weather.is_orderly:
            way = peer, direction
            arrival_ms = max(arrival_ms, self._arrivals_ms.get(way, 0))
            self._arrivals_ms[way] = arrival_ms
        self.last_arrival_ms = max(self.last_arrival_ms, arrival_ms)
        return arrival_ms
