"""Carry out what happens to services, inside the batch's transaction.

Theory of operation. The events of a batch about services are decided one after the other, before
anything else of the batch, so that a result in it is held against the newest epochs. What has
changed at the end is written as it stands then, each row once.

Beats are many, and nearly all say that nothing has changed. When each of them was last heard of is
written once a second for all together, so most batches of beats write nothing, and a transaction
that writes nothing costs no commit. A crash forgets that second at the most, and nobody loses a
lease by it: after a restart all leases begin anew. Where others may end a lease, too, a beat is
written before it is answered: whoever was told that its lease was renewed must not be thought gone.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import cast, get_args

import structlog
from msgspec import Struct

from rota.core import limits
from rota.core.events import ReportResults, ShardClaim
from rota.core.replies import Done, Outcomes
from rota.core.shards import rebalancing
from rota.core.shards.decide import assignment, decide, next_moment_ms
from rota.core.shards.decisions import PutService
from rota.core.shards.events import (
    BeatMember,
    DrainMember,
    SaveCheckpoint,
    ServiceEvent,
    ShardEvent,
    SweepServices,
)
from rota.core.shards.members import Assignment
from rota.core.shards.service import Service
from rota.engine.figures import Figures
from rota.engine.shard_cache import ShardCache
from rota.engine.shard_changes import ServiceChanges, ServiceGauges, gauges_of
from rota.engine.shard_runs import runs_of
from rota.errors import Forbidden, RotaError, ServiceNotFound, StaleEpoch, TooMany
from rota.store.database import Transaction
from rota.store.shards import Shards

log = structlog.get_logger("rota.shards")

ShardReply = Assignment | Done
SHARD_EVENTS = frozenset(get_args(ShardEvent))
# How long a beat may go unwritten when there is nothing else to write. Seen to by sweeps, too, so
# it is written a second after it came at the latest.
SEEN_KEPT_MS = 500
LEAST_SWEEP_PAUSE_MS = 10  # a moment that is always just ahead must not keep the writer busy


class ShardWork(Struct):
    """What a batch meant to services, for those who must hear of it after the commit."""

    pushes: list[Assignment] = []
    next_sweep_ms: int | None = None
    changes: dict[str, ServiceChanges] = {}  # by service
    gauges: dict[str, ServiceGauges] = {}  # by service, from a sweep
    fenced: list[str] = []  # services, one for each refused effect


class ShardKeeper:
    """Carries out the events of one batch that are about services."""

    def __init__(self, tx: Transaction, cache: ShardCache, *, now_ms: int) -> None:
        self._store = Shards(tx)
        self._cache = cache
        self._now_ms = now_ms
        self._answers: dict[int, ShardReply | RotaError] = {}
        self._to_tell: dict[str, set[str]] = {}  # members by service
        self._checkpoints: dict[tuple[str, int], SaveCheckpoint] = {}
        self._decided: set[str] = set()  # services that were asked anything of
        self._read_again: set[str] = set()  # services that others had changed
        self.work = ShardWork()

    def refresh(self, signature: int) -> None:
        """Others have written: take in what they did to services, before anything is decided."""
        self._read_again = self._cache.refresh(self._store, signature, now_ms=self._now_ms)
        self._cache.has_unheard = True

    def hear_others(self, kinds: AbstractSet[type]) -> None:
        """Take in whom others have heard, if this batch may judge anybody by that."""
        # Beats tell of their own members alone; everything else may judge others by theirs.
        if self._cache.has_unheard and (SHARD_EVENTS & kinds) - {BeatMember}:
            self._cache.hear(self._store, now_ms=self._now_ms)

    def carry_out(self, events: Sequence[object]) -> dict[int, ShardReply | RotaError]:
        """Decide and write all events about services; the answers go by the events' places."""
        for index, event in _in_turn(events):
            try:
                self._answers[index] = self._carry_out(event)
            except RotaError as error:
                if self._is_half_done(event):
                    # The batch is rolled back for it, and the others are tried without it.
                    raise
                self._answers[index] = error
        if self._answers:
            self._write()
        for name, worker_ids in self._cache.untold.items():
            self._to_tell.setdefault(name, set()).update(worker_ids)
        if self._answers or self._to_tell:
            self._tell()
        if self._answers or self._read_again:
            self._look_ahead()
        return self._answers

    def stale_claims(self, events: Sequence[object]) -> set[ShardClaim]:
        """The claims of results in this batch under which nobody owns the shard."""
        claims = {
            result.claim
            for event in events
            if type(event) is ReportResults
            for result in event.results
            if result.claim is not None
        }
        return {claim for claim in claims if not self._is_current(claim)}

    def note_refused(self, events: Sequence[object], outcomes: Sequence[object]) -> None:
        """Count the results that were refused for their claims."""
        for event, outcome in zip(events, outcomes, strict=True):
            if isinstance(event, ReportResults) and isinstance(outcome, Outcomes):
                self.work.fenced += [
                    result.claim.service
                    for result, name in zip(event.results, outcome.outcomes, strict=True)
                    if name == "stale_epoch" and result.claim is not None
                ]

    # --- deciding -------------------------------------------------------------------------------

    def _carry_out(self, event: ShardEvent) -> ShardReply:
        match event:
            case SweepServices():
                self._sweep()
            case SaveCheckpoint():
                self._save(event)
            case _:
                service = self._service_for(event)
                reply = self._decide(service, event)
                if reply is not None:
                    return reply
        return Done()

    def _service_for(self, event: ServiceEvent) -> Service:
        service = self._cache.services.get(event.service) or self._find(event.service)
        if service is not None:
            return service
        if isinstance(event, DrainMember):
            raise ServiceNotFound(event.service)
        if len(self._cache.services) >= limits.MAX_SERVICES:
            raise TooMany(
                f"there are {limits.MAX_SERVICES} services already", most=limits.MAX_SERVICES
            )
        # Kept from here on if anything comes of the event.
        return Service(event.service, awake_since_ms=self._now_ms)

    def _find(self, name: str) -> Service | None:
        return self._cache.find(self._store, name, now_ms=self._now_ms)

    def _decide(self, service: Service, event: ServiceEvent | SweepServices) -> Assignment | None:
        cache, name = self._cache, service.name
        self._decided.add(name)
        worker_id = getattr(event, "worker_id", None)
        before = service.members.get(worker_id) if worker_id is not None else None
        try:
            reply = decide(service, event, now_ms=self._now_ms, policy=cache.policy)
        finally:
            if service.decisions or service.changed:
                cache.services[name] = service
                cache.touched.add(name)
        if service.decisions:
            changes = self.work.changes.get(name)
            if changes is None:
                changes = self.work.changes[name] = ServiceChanges()
            changes.note(service.take_decisions())
            after = service.members.get(worker_id) if worker_id is not None else None
            if after is not None and (before is None or before.incarnation != after.incarnation):
                changes.joined.append(after)
        if service.changed:
            self._to_tell.setdefault(name, set()).update(service.take_changed())
        return reply

    def _is_half_done(self, event: ShardEvent) -> bool:
        """Whether an event was refused only after something had come of it."""
        if isinstance(event, SweepServices):
            return True
        service = self._cache.services.get(event.service)
        return service is not None and bool(service.decisions or service.changed)

    def _sweep(self) -> None:
        cache = self._cache
        event = SweepServices(cache.deaf_until_ms)
        cache.fill(self._store, now_ms=self._now_ms)
        for name, service in cache.services.items():
            self._decide(service, event)
            self.work.gauges[name] = gauges_of(service, cache.policy, now_ms=self._now_ms)

    def _save(self, event: SaveCheckpoint) -> None:
        service = self._find(event.service)
        if service is None:
            raise ServiceNotFound(event.service)
        owner = service.owner_at(event.shard, event.epoch)
        if owner is None:
            self.work.fenced.append(event.service)
            raise StaleEpoch(event.service, event.shard, epoch=event.epoch)
        if event.worker_id not in {None, owner}:
            raise Forbidden(
                f"shard {event.shard} of service {event.service!r} is not that of worker "
                f"{event.worker_id!r}",
                worker_id=event.worker_id,
            )
        self._checkpoints[event.service, event.shard] = event

    def _is_current(self, claim: ShardClaim) -> bool:
        service = self._find(claim.service)
        return service is not None and service.owner_at(claim.shard, claim.epoch) is not None

    # --- telling --------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Push what changed, or put it into the answer that the member gets anyway.

        A member that got both could read them in the wrong order, and old ones have no generations
        to tell which is the newer.
        """
        answered = self._answered() if self._to_tell else {}
        for name, worker_ids in self._to_tell.items():
            service = self._cache.services[name]
            for worker_id in sorted(worker_ids & service.members.keys()):
                newest = assignment(service, worker_id, self._cache.policy)
                index = answered.get((name, worker_id))
                answer = None if index is None else self._answers[index]
                if (
                    index is None
                    or not isinstance(answer, Assignment)
                    or answer.incarnation != newest.incarnation
                ):
                    self.work.pushes.append(newest)
                else:
                    self._answers[index] = assignment(
                        service, worker_id, self._cache.policy, seq=answer.seq
                    )

    def _answered(self) -> dict[tuple[str, str], int]:
        """Where each member's newest answer is, unless that has to wait itself."""
        found: dict[tuple[str, str], int] = {}
        for index, reply in self._answers.items():
            if isinstance(reply, Assignment):
                key = reply.service, reply.worker_id
                if reply.is_pending:
                    found.pop(key, None)
                elif reply.status == "ok":
                    found[key] = index
        return found

    def _look_ahead(self) -> None:
        """When the next sweep should be: a sweep says so for all, other events for their own."""
        cache, work = self._cache, self.work
        moments: list[int | None]
        if work.gauges:
            moments = [next_moment_ms(one, cache.policy) for one in cache.services.values()]
            moments.append(self._now_ms + cache.policy.sweep_ms)
        else:
            changed = work.changes.keys() | self._read_again
            moments = [rebalancing.due_ms(cache.services[name]) for name in changed]
        earliest = min((one for one in moments if one is not None), default=None)
        if earliest is not None and work.gauges:
            earliest = max(earliest, self._now_ms + LEAST_SWEEP_PAUSE_MS)
        work.next_sweep_ms = earliest

    # --- writing --------------------------------------------------------------------------------

    def _write(self) -> None:
        is_seen_due = self._cache.is_shared
        for name, changes in self.work.changes.items():
            if changes.are_lasting:
                self._write_service(self._cache.services[name], changes)
                is_seen_due = True
            if changes.seen:
                self._cache.unwritten.setdefault(name, set()).update(changes.seen)
        if self._cache.is_shared:
            for name in sorted(self._decided & self._cache.numbers.keys()):
                found = self.work.changes.get(name)
                is_changed = found is not None and found.are_lasting
                self._cache.note_version(self._store, name, is_changed=is_changed)
        if self._checkpoints:
            self._write_checkpoints()
            is_seen_due = True
        self._write_seen(is_due=is_seen_due)

    def _write_service(self, service: Service, changes: ServiceChanges) -> None:
        store, name = self._store, service.name
        if changes.is_put or name not in self._cache.numbers:
            self._cache.numbers[name] = store.put_service(_row_of(service))
        number = self._cache.numbers[name]
        members = service.members
        if changes.members:
            store.remove_members(number, sorted(changes.members - members.keys()))
            kept = sorted(changes.members & members.keys())
            store.put_members(number, [members[worker_id] for worker_id in kept])
        if changes.shards:
            store.put_shards(number, runs_of(service, changes.shards))

    def _write_checkpoints(self) -> None:
        numbers = self._cache.numbers
        self._store.put_checkpoints(
            [
                (numbers[name], shard, one.epoch, self._now_ms, bytes(one.value))
                for (name, shard), one in self._checkpoints.items()
            ]
        )

    def _write_seen(self, *, is_due: bool) -> None:
        """When members were last heard of: with what is written anyway, or once a second."""
        cache = self._cache
        if not cache.unwritten:
            return
        if cache.unwritten_since_ms is None:
            cache.unwritten_since_ms = self._now_ms
        # A clock that was set back must not put this off for long.
        if is_due or abs(self._now_ms - cache.unwritten_since_ms) >= SEEN_KEPT_MS:
            for name, worker_ids in cache.unwritten.items():
                members = cache.services[name].members
                heard = sorted(worker_ids & members.keys())
                self._store.note_seen(cache.numbers[name], [members[one] for one in heard])
            cache.has_written_seen = True


def _in_turn(events: Sequence[object]) -> list[tuple[int, ShardEvent]]:
    """The events about services and their places: what was said is heard before time is up."""
    ours = [one for one in enumerate(events) if type(one[1]) in SHARD_EVENTS]
    sweeps = [one for one in ours if type(one[1]) is SweepServices]
    if sweeps:
        ours = [one for one in ours if type(one[1]) is not SweepServices] + sweeps
    return cast("list[tuple[int, ShardEvent]]", ours)


def _row_of(service: Service) -> PutService:
    return PutService(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        superseded=service.superseded,
    )


def count_shard_work(figures: Figures, work: ShardWork) -> None:
    """Count and log what a committed batch did to services."""
    for name, changes in work.changes.items():
        figures.service(name).note(changes)
        for rebalanced in changes.rebalances:
            log.info(
                "shards rebalanced",
                service=name,
                moved=rebalanced.moved,
                placed=rebalanced.placed,
            )
        for removed in changes.removed:
            log.info(
                "member removed", service=name, worker_id=removed.worker_id, reason=removed.reason
            )
    for name, gauges in work.gauges.items():
        figures.service(name).note_gauges(gauges)
    for name in work.fenced:
        figures.fenced_effects += 1
        if name in figures.services:  # anybody can make up a name; only ours are counted one by one
            figures.services[name].fenced_effects += 1
