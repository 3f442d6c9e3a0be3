"""A process that is a member: it runs, sleeps without noticing, and dies without a word."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from rota.core.shards.commands import MemberCommand
from rota.core.shards.members import Assignment
from tests.simulation.shards.coordinator import SimulatedCoordinator
from tests.simulation.shards.network import Direction, Network
from tests.simulation.shards.profiles import Profile
from tests.simulation.shards.timeline import MemberClock, Timeline


class Surroundings(Protocol):
    """What a process needs of the world."""

    timeline: Timeline
    network: Network
    coordinator: SimulatedCoordinator
    profile: Profile
    dice: Random
    is_healing: bool

    def note(self, *what: object) -> None: ...

    def new_incarnation(self) -> str: ...

    def new_clock(self) -> MemberClock: ...

    def check_alone(self, one: "Process") -> None:
        """Nobody else may be acting on what this one acts on."""


class Process:
    """What both kinds of members have in common. All that they do goes through `_do`."""

    is_new_protocol: bool

    def __init__(self, world: Surroundings, worker_id: str, shard_count: int) -> None:
        self.world = world
        self.worker_id = worker_id
        self.shard_count = shard_count
        self.is_dead = False
        self.is_paused = False
        self.is_zombie = False  # another process has begun under its id
        self._postponed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # --- what others may ask ------------------------------------------------------------------

    def shards(self) -> set[int]:
        """What it would say that it holds."""
        raise NotImplementedError

    def is_acting(self, shard: int) -> bool:
        """Whether it could act on the shard now, if it ran."""
        raise NotImplementedError

    def deliver(self, assignment: Assignment) -> None:
        self._do(self._receive, assignment)

    def rename_count(self, shard_count: int) -> None:
        """From now on it thinks that there are so many shards."""
        self.shard_count = shard_count

    def leave(self) -> None:
        self._do(self._leave)

    # --- what happens to it -------------------------------------------------------------------

    def die(self) -> None:
        self.is_dead = True
        self._postponed.clear()

    def pause(self) -> None:
        self.is_paused = True

    def wake(self) -> None:
        """All that should have happened meanwhile happens now, in any order."""
        self.is_paused = False
        postponed, self._postponed = self._postponed, []
        self.world.dice.shuffle(postponed)
        for action, arguments in postponed:
            self._do(action, *arguments)

    # --- for the kinds ------------------------------------------------------------------------

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._postponed.append((action, arguments))
        else:
            action(*arguments)

    def _later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.world.timeline.after(delay_ms, self._do, action, *arguments)

    def _send(self, message: MemberCommand) -> None:
        world = self.world
        world.network.send(self.worker_id, Direction.IN, world.coordinator.hear, self, message)

    def _receive(self, assignment: Assignment) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError
