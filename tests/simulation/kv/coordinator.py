"""The coordinator's side: hears, decides, commits, and only then answers; dies between any two."""

from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from rota.core import kv, locks
from rota.core.kv import DeleteValue, KvEntry, PutValue
from rota.core.locks import (
    AcquireLock,
    LeaveLockQueue,
    LockAnswer,
    LockState,
    ReleaseLock,
    RenewLock,
)
from rota.errors import RotaError
from tests.simulation.kv.ledger import Ledger
from tests.simulation.shards.network import Direction, Network
from tests.simulation.shards.timeline import Timeline

SWEEP_MS = 250


class Peer(Protocol):
    """A client on its connection."""

    name: str

    def deliver(self, answer: "Answer") -> None: ...


class Look(Struct, frozen=True):
    """What is kept under this key?"""

    key: str


class Decided(Struct, frozen=True, kw_only=True):
    """A change on condition, with what the simulation alone knows of it."""

    event: PutValue | DeleteValue
    based_on: int  # the serial number of the value it was decided on


Event = AcquireLock | RenewLock | ReleaseLock | Look | Decided


@dataclass(frozen=True, slots=True)
class Question:
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Seen:
    entry: KvEntry | None
    serial: int


@dataclass(frozen=True, slots=True)
class Answer:
    number: int  # of its question
    said: LockAnswer | Seen | RotaError | None


@dataclass(slots=True)
class Parked:
    """A question that waits for a lock; until its answer has left, it can still be given up."""

    peer: Peer
    number: int
    asked: LockAnswer
    answer: LockAnswer | None = None


class SimulatedCoordinator:
    def __init__(self, timeline: Timeline, network: Network, dice: Random, *, busy_ms: int) -> None:
        self.ledger = Ledger()
        self.is_up = True
        self.starts = 1
        self.dies_next = False  # in the midst of the next question
        self._timeline = timeline
        self._network = network
        self._dice = dice
        self._busy_ms = busy_ms
        self._parked: dict[int, Parked] = {}
        self._answers: list[tuple[Peer, Answer]] = []
        timeline.after(SWEEP_MS, self._sweep, self.starts)

    # --- life -----------------------------------------------------------------------------------

    def die(self) -> None:
        self.is_up = False
        self.dies_next = False
        self._parked.clear()
        self._answers.clear()

    def start(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.starts += 1
            self.ledger.restart()
            self._timeline.after(SWEEP_MS, self._sweep, self.starts)

    # --- hearing --------------------------------------------------------------------------------

    def hear(self, peer: Peer, question: Question) -> None:
        if not self.is_up:
            return
        if self.dies_next and self._dice.random() < 0.5:
            self.die()  # before the commit
            return
        try:
            said = self._carry_out(peer, question)
        except RotaError as error:
            self._answers.append((peer, Answer(question.number, error)))
        else:
            if said is not None:
                self._answers.append((peer, Answer(question.number, said)))
        self.ledger.commits += 1
        if self.dies_next:
            self.die()  # after the commit, before any answer
        self._send()

    def hang_up(self, peer: Peer, number: int) -> None:
        """The connection of a question is gone."""
        for asked, parked in list(self._parked.items()):
            if self.is_up and (parked.peer, parked.number) == (peer, number):
                del self._parked[asked]
                self._leave(parked, is_gone=True)
                self._send()

    def _carry_out(self, peer: Peer, question: Question) -> LockAnswer | Seen | None:
        event = question.event
        match event:
            case Look(key=key):
                return Seen(self.ledger.entries.get(key), self.ledger.serial)
            case Decided():
                return self._keep(event)
            case RenewLock() | ReleaseLock():
                return self._turn(event)
            case AcquireLock(wait_ms=wait_ms):
                return self._acquire(peer, question.number, event, wait_ms)

    def _acquire(
        self, peer: Peer, number: int, event: AcquireLock, wait_ms: int
    ) -> LockAnswer | None:
        answer = self._turn(event)
        if answer.acquired or not wait_ms or answer.asked is None:
            return answer
        self._parked[answer.asked] = Parked(peer, number, answer)
        self._timeline.after(wait_ms, self._time_out, answer.asked)
        return None

    def _keep(self, decided: Decided) -> Seen:
        ledger, event, now_ms = self.ledger, decided.event, self._timeline.now_ms
        before = ledger.entries.get(event.key)
        entry = None
        if isinstance(event, PutValue):
            version = self.next_version(before)
            entry = kv.put(before, event, version=version, now_ms=now_ms)
        else:
            kv.check_version(before, event.key, event.if_version)
        ledger.put_entry(event.key, entry, based_on=decided.based_on)
        return Seen(entry, ledger.serial)

    def next_version(self, _before: KvEntry | None) -> int:
        self.ledger.counters["memory"] += 1
        return self.ledger.counters["memory"]

    # --- locks ----------------------------------------------------------------------------------

    def _turn(self, event: AcquireLock | RenewLock | ReleaseLock | LeaveLockQueue) -> LockAnswer:
        before = self.ledger.locks.get(event.name, LockState(name=event.name))
        numbers = self.ledger.numbers("lock")
        rules: dict[type, Any] = {
            AcquireLock: locks.acquire,
            RenewLock: locks.renew,
            ReleaseLock: locks.release,
            LeaveLockQueue: locks.leave_queue,
        }
        after, answer = rules[type(event)](before, event, numbers, now_ms=self._timeline.now_ms)
        self._commit(before, after, numbers.last)
        assert isinstance(answer, LockAnswer)
        return answer

    def _commit(self, before: LockState, after: LockState, last: int) -> None:
        self.ledger.put_lock(after)
        self.ledger.counters["lock"] = last
        if after.owner is not None and after.fence != before.fence:
            for asked, parked in self._parked.items():
                if (parked.asked.name, parked.asked.owner) == (after.name, after.owner):
                    self._answer_soon(asked, locks.answer(after, after.owner))

    def _answer_soon(self, asked: int, answer: LockAnswer) -> None:
        self._parked[asked].answer = answer
        self._timeline.after(self._dice.randint(0, self._busy_ms), self._answer, asked)

    def _answer(self, asked: int) -> None:
        parked = self._parked.pop(asked, None)  # gone, if the coordinator or its caller is
        if parked is not None:
            self._answers.append((parked.peer, Answer(parked.number, parked.answer)))
            self._send()

    def _time_out(self, asked: int) -> None:
        parked = self._parked.get(asked)
        if parked is not None and parked.answer is None:
            self._answer_soon(asked, self._leave(parked, is_gone=False))

    def _leave(self, parked: Parked, *, is_gone: bool) -> LockAnswer:
        asked = parked.asked
        assert asked.asked is not None
        event = LeaveLockQueue(
            name=asked.name, owner=asked.owner, asked=asked.asked, is_gone=is_gone
        )
        return self._turn(event)

    def _sweep(self, start: int) -> None:
        if not self.is_up or start != self.starts:
            return
        for before in list(self.ledger.locks.values()):
            numbers = self.ledger.numbers("lock")
            after = locks.settled(before, numbers, now_ms=self._timeline.now_ms)
            if after != before:
                self._commit(before, after, numbers.last)
        self._send()
        self._timeline.after(SWEEP_MS, self._sweep, start)

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        for peer, answer in answers:
            self._network.send(peer.name, Direction.OUT, peer.deliver, answer)
