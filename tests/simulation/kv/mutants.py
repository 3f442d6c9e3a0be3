"""Which rules about locks and values, if broken, would the simulation notice? All of these."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rota.core import locks
from rota.core.kv import KvEntry
from rota.core.locks import LeaveLockQueue, LockState, ReleaseLock, RenewLock
from rota.errors import LockLost
from tests.simulation.kv import profiles
from tests.simulation.kv.clients import Client
from tests.simulation.kv.coordinator import SimulatedCoordinator
from tests.simulation.kv.ledger import Ledger
from tests.simulation.kv.profiles import Profile
from tests.simulation.mutation import Mutants

MUTANTS = Mutants[Profile](seeds=20)
mutant = MUTANTS.add

_given = locks._given
_leave_line = locks.leave_queue
_restart = Ledger.restart
_settled = locks.settled


@mutant(profiles.CALM)
def the_fence_stays_when_the_lock_changes_hands() -> Iterator[None]:
    def given(lock: LockState, *rest: Any, **named: Any) -> LockState:
        return replace(_given(lock, *rest, **named), fence=max(lock.fence, 1))

    with patch.object(locks, "_given", given):
        yield


@mutant(profiles.DYING_COORDINATOR)
def a_restart_forgets_which_fences_were_given() -> Iterator[None]:
    def restart(self: Ledger) -> None:
        _restart(self)
        self.counters["lock"] = 0

    with patch.object(Ledger, "restart", restart):
        yield


@mutant(profiles.ROUGH_NETWORK, seeds=40)
def whoever_knows_the_name_may_release() -> Iterator[None]:
    """A release from an earlier time of the same owner counts for its next one."""

    def check(lock: LockState, event: RenewLock | ReleaseLock) -> None:
        if lock.owner != event.owner:
            raise LockLost(lock.name, event.owner, fence=event.fence)

    with patch.object(locks, "_check", check):
        yield


@mutant(profiles.IMPATIENT, seeds=40)
def a_call_that_ends_takes_away_what_a_newer_one_got() -> Iterator[None]:
    def leave_line(lock: LockState, event: LeaveLockQueue, *rest: Any, **named: Any) -> Any:
        asked = lock.asked if lock.owner == event.owner else event.asked
        return _leave_line(lock, replace(event, asked=asked), *rest, **named)

    with patch.object(locks, "leave_queue", leave_line):
        yield


@mutant(profiles.SLEEPING)
def a_tenure_counts_from_the_answer() -> Iterator[None]:
    with patch.object(Client, "sent_at", lambda self: self.now_s):
        yield


@mutant(profiles.SLEEPING)
def a_lock_is_given_on_a_little_before_its_time_is_over() -> Iterator[None]:
    def settled(lock: LockState, numbers: Any, *, now_ms: int) -> LockState:
        if lock.owner is not None and lock.expires_at_ms - now_ms < 500:
            lock = replace(lock, owner=None)
        return _settled(lock, numbers, now_ms=now_ms)

    with patch.object(locks, "settled", settled):
        yield


@mutant(profiles.FICKLE)
def the_versions_of_a_key_begin_anew_when_it_does() -> Iterator[None]:
    def next_version(_: SimulatedCoordinator, before: KvEntry | None) -> int:
        return 1 if before is None else before.version + 1

    with patch.object(SimulatedCoordinator, "next_version", next_version):
        yield
