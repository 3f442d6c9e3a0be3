"""Broken rules on the coordinator's side."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rota.core.shards import expiry, heartbeats, membership, rebalancing
from rota.core.shards.commands import BeatMember, LeaveMember, SweepServices
from rota.core.shards.decisions import PutService
from rota.core.shards.hydration import StoredShard, restored
from rota.core.shards.members import Member, ProtocolState, ShardPolicy
from rota.core.shards.ranges import Shards
from rota.core.shards.service import Service
from tests.simulation.mutation import Mutants
from tests.simulation.shards import ledger, profiles
from tests.simulation.shards.profiles import Profile

MUTANTS = Mutants[Profile](seeds=20)
mutant = MUTANTS.add

FAR_MS = 10**10

_begin = Service.begin
_count = Service._count
_given_up = heartbeats._given_up
_leave = membership.leave
_release = Service.release
_revoke = Service.revoke
_set_targets = Service.set_targets
_sweep = expiry.sweep
_take_over = membership.take_over


# --- granting and releasing ---------------------------------------------------------------------


@mutant(profiles.CALM)
def grant_before_release() -> Iterator[None]:
    """What is asked back is handed on, before its owner has given it up."""

    def revoke(self: Service, worker_id: str, shards: Shards, *, now_ms: int) -> None:
        _revoke(self, worker_id, shards, now_ms=now_ms)
        self.release(worker_id, shards)

    with patch.object(Service, "revoke", revoke):
        yield


@mutant(profiles.FICKLE, seeds=40)
def release_without_a_generation() -> Iterator[None]:
    """A beat that does not list a shard releases it, whatever the member has seen."""

    def given_up(service: Service, event: BeatMember, state: ProtocolState) -> Shards:
        knowing = replace(event, generation=service.generation)
        return _given_up(service, knowing, state)

    with patch.object(heartbeats, "_given_up", given_up):
        yield


@mutant(profiles.ORDERLY, seeds=40)
def old_clients_release_with_their_first_beat() -> Iterator[None]:
    with patch.object(heartbeats, "BEATS_TO_RELEASE", 1):
        yield


@mutant(profiles.FICKLE, seeds=80)
def given_back_without_a_release() -> Iterator[None]:
    """A shard that is asked back stays with its owner after all, under the same epoch."""

    def set_targets(self: Service, worker_id: str | None, shards: Shards) -> None:
        _set_targets(self, worker_id, shards)
        for shard in shards:
            if worker_id is not None and shard in self.revoked_from(worker_id):
                self._forget_revoking(worker_id, (shard,))
                self.raise_generation()
                self._note_change(worker_id)

    with patch.object(Service, "set_targets", set_targets):
        yield


@mutant(profiles.DAWDLING_MEMBERS)
def a_dawdling_member_is_forced() -> Iterator[None]:
    """What a member keeps for too long is taken from it, before its lease is over."""
    with patch.object(expiry, "OLD_PROTOCOL", 2):
        yield


@mutant(profiles.DEAF)
def nobody_is_stuck() -> Iterator[None]:
    with patch.object(expiry, "_stuck", lambda *_, **__: {}):
        yield


# --- gathering ----------------------------------------------------------------------------------


@mutant(profiles.CALM)
def one_that_joins_brings_on_what_is_due() -> Iterator[None]:
    """A rebalance is carried out for the first of those that are about to be heard."""
    with patch.object(rebalancing, "is_urgent", rebalancing.is_due):
        yield


@mutant(profiles.SLEEPING_COORDINATOR, seeds=80)
def time_passes_quietly_while_we_are_deaf() -> Iterator[None]:
    """That nobody was heard while nobody could be heard is taken for silence."""
    with patch.object(rebalancing, "resume_listening", lambda *_: None):
        yield


# --- leases -------------------------------------------------------------------------------------


@mutant(profiles.CUT_OFF_MEMBERS)
def expiry_shorter_than_the_lease() -> Iterator[None]:
    shorter = property(lambda policy: policy.lease_ms * 4 // 5)
    with patch.object(ShardPolicy, "expiry_ms", shorter):
        yield


@mutant(profiles.ORDERLY, seeds=60)
def unknown_is_expired_after_a_restart() -> Iterator[None]:
    """Members pay for the time that the coordinator was away."""

    def forgiving_nobody(*stored: Any, now_ms: int) -> Service:
        service = restored(*stored, now_ms=now_ms)
        service.awake_since_ms = 0
        return service

    with patch.object(ledger, "restored", forgiving_nobody):
        yield


@mutant(profiles.ORDERLY, seeds=80)
def a_pause_of_our_own_is_not_noticed() -> Iterator[None]:
    """Members pay for the time that the coordinator slept."""

    def sweep(service: Service, event: SweepServices, *, now_ms: int, policy: ShardPolicy) -> None:
        _sweep(service, event, now_ms=now_ms, policy=replace(policy, pause_ms=FAR_MS))

    with patch.object(expiry, "sweep", sweep):
        yield


# --- fences -------------------------------------------------------------------------------------


@mutant(profiles.ROUGH_NETWORK)
def no_fence() -> Iterator[None]:
    """An effect counts whatever its epoch."""

    def owner_at(self: Service, shard: int, _epoch: int) -> str | None:
        return self.owners[shard]

    with patch.object(Service, "owner_at", owner_at):
        yield


@mutant(profiles.DYING_MEMBERS)
def the_older_incarnation_is_heard() -> Iterator[None]:
    with patch.object(membership, "is_past", lambda *_, **__: False):
        yield


@mutant(profiles.DYING_MEMBERS)
def taken_over_under_the_same_epoch() -> Iterator[None]:
    """A new incarnation goes on where the old one was, with its epochs."""

    def take_over(service: Service, *rest: Any, **named: Any) -> None:
        with (
            patch.object(Service, "release", lambda *_, **__: None),
            patch.object(Service, "grant", lambda *_: None),
        ):
            _take_over(service, *rest, **named)

    with patch.object(membership, "take_over", take_over):
        yield


@mutant(profiles.NAMED_INCARNATIONS, seeds=80)
def taken_over_and_handed_on_at_once() -> Iterator[None]:
    """What the old incarnation was asked for goes to others as soon as a new one is heard of."""

    def take_over(service: Service, *rest: Any, **named: Any) -> None:
        with (
            patch.object(Service, "set_targets", lambda *_: None),
            patch.object(Service, "grant", lambda *_: None),
        ):
            _take_over(service, *rest, **named)

    with patch.object(membership, "take_over", take_over):
        yield


@mutant(profiles.DYING_MEMBERS, seeds=40)
def an_older_incarnation_may_leave() -> Iterator[None]:
    """A late leave takes away the member that has come since."""

    def leave(service: Service, event: LeaveMember, **named: Any) -> None:
        _leave(service, replace(event, incarnation=None), **named)

    with patch.object(membership, "leave", leave):
        yield


# --- memory -------------------------------------------------------------------------------------


@mutant(profiles.DYING_COORDINATOR)
def restart_forgets_leases() -> Iterator[None]:
    """A member that owned something before a restart has to ask for it again."""
    with restoring(owner=None, revoked_in=None):
        yield


@mutant(profiles.DYING_COORDINATOR)
def restart_forgets_epochs() -> Iterator[None]:
    with restoring(epoch=0):
        yield


@mutant(profiles.DYING_COORDINATOR, seeds=40)
def restart_forgets_what_was_asked_back() -> Iterator[None]:
    with restoring(revoked_in=None):
        yield


def restoring(**forgotten: Any) -> AbstractContextManager[Any]:
    """A coordinator that comes back without a part of what it knew of the shards."""

    def forgetful(
        stored: PutService, members: Iterable[Member], shards: Iterable[StoredShard], *, now_ms: int
    ) -> Service:
        rows = [dataclasses.replace(shard, **forgotten) for shard in shards]
        return restored(stored, members, rows, now_ms=now_ms)

    return patch.object(ledger, "restored", forgetful)


@mutant(profiles.GROWING)
def shards_that_are_cut_off_forget_their_epochs() -> Iterator[None]:
    def count(self: Service, shard_count: int) -> None:
        _count(self, shard_count)
        for shard in range(shard_count, len(self.epochs)):
            if self.owners[shard] is None:
                self.epochs[shard] = 0

    with patch.object(Service, "_count", count):
        yield


@mutant(profiles.CALM)
def one_generation_for_several_events() -> Iterator[None]:
    """What is decided within a second shares a generation, although some of it was told."""

    def begin(self: Service) -> None:
        if self.generation % 2 == 0:
            _begin(self)

    with patch.object(Service, "begin", begin):
        yield
