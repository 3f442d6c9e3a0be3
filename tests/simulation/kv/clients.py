"""The clients' side: they want the lock, do something under it, let go of it, and count up."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from msgspec import Raw

from rota.core.kv import DeleteValue, PutValue
from rota.core.locks import AcquireLock, LockAnswer, ReleaseLock, RenewLock
from rota.errors import LockLost, VersionConflict
from rota.sdk.locks import LockLease
from tests.simulation.kv.coordinator import (
    Answer,
    Decided,
    Event,
    Look,
    Question,
    Seen,
    SimulatedCoordinator,
)
from tests.simulation.kv.profiles import Profile
from tests.simulation.kv.resource import Resource
from tests.simulation.shards.ledger import demand
from tests.simulation.shards.network import Direction, Network
from tests.simulation.shards.timeline import Timeline

LOCK, KEY = "door", "n"
TTL_MS = 4_000
WAIT_MS = 3_000
WRITE_MS = 300  # between two writes to the resource, at the most
Heard = Callable[[Any], None]


class Surroundings(Protocol):
    timeline: Timeline
    network: Network
    dice: Random
    profile: Profile
    coordinator: SimulatedCoordinator
    resource: Resource

    def note(self, *what: object) -> None: ...

    def check_alone(self, one: "Client") -> None: ...


class Client:
    """One process. What it has under way ends with it; its successor begins again."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.tenure: LockLease | None = None
        self.tenures = 0  # how often it has had the lock
        self.acknowledged = 0  # additions
        self.unknown = 0  # additions of which nothing was heard
        self._owner = name
        self._sent_ms = 0
        self._asleep_until_ms = 0
        self._numbers = 0
        self._asked: dict[int, tuple[Heard, int]] = {}  # questions under way, and when sent
        self._later(self._pause_ms(), self._want)
        self._later(self._pause_ms(), self._count_up)

    # --- time -----------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.world.timeline.now_ms / 1000

    def is_holding(self) -> bool:
        return not self.is_dead and self.tenure is not None and self.tenure.is_held(self.now_s)

    def die(self) -> None:
        self.is_dead = True

    def sleep(self, duration_ms: int) -> None:
        """All of the process stands still, and goes on after as if nothing had been."""
        self._asleep_until_ms = self.world.timeline.now_ms + duration_ms

    def _later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.world.timeline.after(delay_ms, self._awake, action, arguments)

    def _awake(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        now_ms = self.world.timeline.now_ms
        if self.is_dead:
            return
        if now_ms < self._asleep_until_ms:
            self.world.timeline.at(self._asleep_until_ms, self._awake, action, arguments)
            return
        action(*arguments)

    def _pause_ms(self, most_ms: int = 1_500) -> int:
        return self.world.dice.randint(1, most_ms)

    # --- questions ------------------------------------------------------------------------------

    def _ask(self, event: Event, heard: Heard, unheard: Callable[[], None], wait_ms: int) -> None:
        """Ask, and be told the answer, or that none came in time: the connection is given up."""
        world = self.world
        self._numbers += 1
        number = self._numbers
        self._asked[number] = heard, world.timeline.now_ms
        question = Question(number, event)
        hear = world.coordinator.hear
        world.network.send(self.name, Direction.IN, hear, self, question)
        self._later(wait_ms + world.profile.patience_ms, self._give_up, number, unheard)

    def deliver(self, answer: Answer) -> None:
        self._later(0, self._heard, answer)

    def _heard(self, answer: Answer) -> None:
        heard, sent_ms = self._asked.pop(answer.number, (None, 0))
        if heard is not None:
            self._sent_ms = sent_ms
            heard(answer.said)

    def _give_up(self, number: int, unheard: Callable[[], None]) -> None:
        if self._asked.pop(number, None) is not None:
            world = self.world
            hang_up = world.coordinator.hang_up
            world.network.send(self.name, Direction.IN, hang_up, self, number)
            unheard()

    def sent_at(self) -> float:
        """When the question was sent whose answer is being read."""
        return self._sent_ms / 1000

    # --- the lock -------------------------------------------------------------------------------

    def _want(self) -> None:
        if self.world.dice.random() < self.world.profile.new_owners:
            self._rename()
        self._acquire()

    def _acquire(self) -> None:
        event = AcquireLock(name=LOCK, owner=self._owner, ttl_ms=TTL_MS, wait_ms=WAIT_MS)
        self._ask(event, self._acquired, self._acquire, WAIT_MS)

    def _acquired(self, said: Any) -> None:
        if not isinstance(said, LockAnswer) or not said.acquired:
            self._later(self._pause_ms(100), self._acquire)
            return
        assert said.fence is not None
        self.tenure = LockLease(fence=said.fence, ttl_s=TTL_MS / 1000, sent_at=self.sent_at())
        self.tenures += 1
        self.world.note(self.name, "has fence", said.fence)
        self.world.check_alone(self)
        self._renew_in_time(self.tenure)
        self._later(self._pause_ms(WRITE_MS), self._write, self.tenure)
        self._later(self._pause_ms(self.world.profile.hold_ms), self._release, self.tenure)

    def _renew_in_time(self, tenure: LockLease) -> None:
        delay_ms = max(1, round((tenure.next_at - self.now_s) * 1000))
        self._later(delay_ms, self._renew, tenure)

    def _renew(self, tenure: LockLease) -> None:
        if self.tenure is not tenure or not tenure.is_held(self.now_s):
            return

        def heard(said: Any) -> None:
            if isinstance(said, LockLost):
                tenure.is_lost = True
            else:
                tenure.renew(sent_at=self.sent_at())
                self.world.check_alone(self)
                self._renew_in_time(tenure)

        def unheard() -> None:
            tenure.fail(now=self.now_s)
            self._renew_in_time(tenure)

        self._ask(RenewLock(name=LOCK, owner=self._owner, fence=tenure.fence), heard, unheard, 0)

    def _write(self, tenure: LockLease) -> None:
        """Look whether the lock is ours, and write; between the two the process may sleep."""
        if self.tenure is tenure and tenure.is_held(self.now_s):
            if self.world.dice.random() < self.world.profile.naps:
                self.sleep(self._pause_ms(3 * TTL_MS))
            self._later(1, self._send_write, tenure, self._owner)
            self._later(self._pause_ms(WRITE_MS), self._write, tenure)

    def _send_write(self, tenure: LockLease, owner: str) -> None:
        way = f"{self.name} to the resource"
        self.world.network.send(way, Direction.IN, self._arrive, tenure, owner)

    def _arrive(self, tenure: LockLease, owner: str) -> None:
        is_ours = self.tenure is tenure and self.is_holding()
        is_accepted = self.world.resource.write(tenure.fence, owner)
        demand(is_accepted or not is_ours, "the owner was refused:", self.name, tenure.fence)

    def _release(self, tenure: LockLease) -> None:
        self.tenure = None
        event = ReleaseLock(name=LOCK, owner=self._owner, fence=tenure.fence)
        self._ask(event, self._released, self._not_released, 0)

    def _released(self, _said: Any) -> None:
        self._later(self._pause_ms(), self._want)

    def _not_released(self) -> None:
        # It may still be heard. Under the same name that would be the end of the next tenure, too.
        self._rename()
        self._later(self._pause_ms(), self._want)

    def _rename(self) -> None:
        self._owner = f"{self.name}.{self._numbers}"

    # --- the value ------------------------------------------------------------------------------

    def _count_up(self) -> None:
        self._later(self._pause_ms(), self._count_up)
        self._ask(Look(key=KEY), self._seen, _ignore, 0)

    def _seen(self, seen: Seen) -> None:
        """Add one to what was seen, or delete it, so that it begins again."""
        entry, serial = seen.entry, seen.serial
        if entry is not None and self.world.dice.random() < self.world.profile.deletes:
            event = DeleteValue(key=KEY, if_version=entry.version)
            deletion = Decided(event=event, based_on=serial)
            self._later(self._pause_ms(200), self._ask, deletion, _ignore, _ignore, 0)
            return
        version, count = (0, 0) if entry is None else (entry.version, int(entry.value))
        put = PutValue(key=KEY, value=Raw(str(count + 1).encode()), if_version=version)
        self.unknown += 1

        def heard(said: Any) -> None:
            self.unknown -= 1
            self.acknowledged += not isinstance(said, VersionConflict)

        addition = Decided(event=put, based_on=serial)
        self._later(self._pause_ms(200), self._ask, addition, heard, _ignore, 0)


def _ignore(_said: Any = None) -> None:
    """Whatever the answer is, or if there is none."""
