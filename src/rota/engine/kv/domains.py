"""Values and locks inside a batch: load what the commands need, reduce them, write the decisions.

A batch reads each value or lock once and writes it once, even if many commands concern it.
"""

from collections.abc import Sequence
from typing import get_args

from rota.core import kv, locks
from rota.core.events import Event
from rota.core.kv import DropEntry, KvCommand, KvDecision, KvReply, KvState, PutEntry, PutValue
from rota.core.locks import (
    AcquireLock,
    ChangeLock,
    LockAnswer,
    LockCommand,
    LockState,
    LockTable,
    Numbers,
)
from rota.core.replies import Done
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.request import earlier
from rota.engine.kv.lock_cache import NUMBERS
from rota.store.kv import KvStore
from rota.store.locks import LockStore
from rota.store.workers import WorkerStore

SWEPT_PER_STEP = 1_000  # values or locks that a sweep drops in one transaction


class KvDomain(Domain):
    """The values of one batch."""

    COMMANDS = frozenset(get_args(KvCommand))

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = KvStore(batch.tx)
        self._counters = WorkerStore(batch.tx)
        self._decisions: list[KvDecision] = []
        self._has_puts = False
        usage = batch.state.values
        # A copy, since the batch may not be committed.
        self._state = KvState({}, [], 0, None if usage is None else usage.copy())

    def load(self, commands: Sequence[KvCommand]) -> None:
        state, store, now_ms = self._state, self._store, self.batch.context.now_ms
        for key in {kv.needs(command) for command in commands}:
            if key is None:
                state.expired = store.expired(now_ms, SWEPT_PER_STEP)
            else:
                state.entries[key] = store.get(key)
        self._has_puts = any(isinstance(command, PutValue) for command in commands)
        if self._has_puts:
            state.last_version = self._counters.counter("memory")
            if state.usage is None:
                state.usage = store.usage(now_ms)

    def reduce(self, command: KvCommand) -> KvReply:
        decisions, reply = kv.reduce(self._state, command, self.batch.context)
        self._decisions += decisions
        return reply

    def write(self) -> None:
        last = {_key_of(one): one for one in self._decisions}
        dropped = [key for key, one in last.items() if isinstance(one, DropEntry)]
        if dropped:
            self._store.delete(*dropped)
        for one in last.values():
            if isinstance(one, PutEntry):
                self._store.put(one.entry)
        if self._has_puts:
            self._counters.raise_counter("memory", self._state.last_version)
        self.batch.values = self._state.usage
        self.batch.events += [_kv_event(one) for one in self._decisions]


def _key_of(decision: KvDecision) -> str:
    return decision.entry.key if isinstance(decision, PutEntry) else decision.key


def _kv_event(decision: KvDecision) -> Event:
    if isinstance(decision, PutEntry):
        entry = decision.entry
        return Event(type="memory-set", subject=entry.key, data={"version": entry.version})
    data: dict[str, object] = {"version": decision.version}
    if decision.is_expired:
        data["reason"] = "expired"
    return Event(type="memory-deleted", subject=decision.key, data=data)


class LockDomain(Domain):
    """The locks of one batch."""

    COMMANDS = frozenset(get_args(LockCommand))

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = LockStore(batch.tx)
        self._counters = WorkerStore(batch.tx)
        self._has_swept = False
        self._stored: dict[str, LockState] = {}  # the locks before the batch
        self._changes: list[ChangeLock] = []
        self._places: dict[tuple[str, str], str] = {}  # where callers wait, by lock and owner
        self._state = LockTable({}, [], Numbers(0))
        self._known_number = 0

    def load(self, commands: Sequence[LockCommand]) -> None:
        names = {locks.needs(command) for command in commands}
        self._has_swept = None in names
        if self._has_swept:
            self._state.expired = self._store.expired(self.batch.context.steady_ms, SWEPT_PER_STEP)
        for name in {*names, *self._state.expired} - {None}:
            assert name is not None
            known = self.batch.locks.get(self._store, name)
            self._stored[name] = self._state.locks[name] = known
        for command in commands:
            if isinstance(command, AcquireLock) and command.waits_at is not None:
                self._places[command.name, command.owner] = command.waits_at
        self._known_number = self.batch.locks.last_number(self._counters)
        self._state.numbers = Numbers(self._known_number)

    def reduce(self, command: LockCommand) -> LockAnswer | Done:
        changes, reply = locks.reduce(self._state, command, self.batch.context)
        self._changes += changes
        return reply

    def write(self) -> None:
        batch, moments = self.batch, []
        for name, after in self._state.locks.items():
            before = self._stored[name]
            if after != before:
                self._store.put(after, before=before, places=self._places)
            batch.locks.stage(after)
            moments.append(locks.next_moment_ms(after))
        if self._has_swept:
            moments.append(self._store.next_expiry_ms())
        batch.locks.stage_number(self._state.numbers.last)
        if self._state.numbers.last != self._known_number:
            self._counters.raise_counter(NUMBERS, self._state.numbers.last)
        next_moment_ms = min((one for one in moments if one is not None), default=None)
        delivery = batch.delivery
        delivery.next_sweep_ms = earlier(delivery.next_sweep_ms, next_moment_ms)
        delivery.granted_locks += self._granted()
        batch.events += [event for one in self._changes for event in _lock_events(one)]

    def _granted(self) -> list[LockAnswer]:
        """Return the locks that the batch granted to waiting callers."""
        return [
            locks.answer(one.after, one.after.owner)
            for one in self._changes
            if one.after.owner is not None
            and one.before.fence != one.after.fence
            and any(waiter.owner == one.after.owner for waiter in one.before.waiters)
        ]


def _lock_events(change: ChangeLock) -> list[Event]:
    before, after = change.before, change.after
    events = []
    if before.owner is not None and (after.owner is None or after.fence != before.fence):
        data = {"owner": before.owner, "fence": before.fence}
        events.append(Event(type="lock-released", subject=before.name, data=data))
    if after.owner is not None and before.fence != after.fence:
        data = {"owner": after.owner, "fence": after.fence}
        events.append(Event(type="lock-acquired", subject=after.name, data=data))
    return events
