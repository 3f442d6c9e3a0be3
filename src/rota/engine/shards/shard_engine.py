"""Executes the shard commands of a batch, inside the batch's transaction.

Theory of operation. The engine decides the shard commands of a batch one after the other, before
all other commands. So the batch checks the claim of each result against the newest epochs. At the
end the engine writes the final state of every changed row once.

Heartbeats are frequent, and nearly all of them change nothing. The engine writes the times of all
members' last heartbeats together, once a second. So most batches of heartbeats write nothing, and
a transaction that writes nothing costs no commit. A crash loses at most that second, and no member
loses a lease by it: after a restart all leases start over. On a shared store a peer may end a
lease, too. There the engine writes a heartbeat before it replies, because a member whose lease was
renewed must not look dead to a peer.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import cast, get_args

import structlog
from msgspec import Struct

from rota.core import limits
from rota.core.commands import ReportResults, ShardClaim
from rota.core.replies import Done, Outcomes
from rota.core.shards import rebalancing
from rota.core.shards.commands import (
    BeatMember,
    DrainMember,
    SaveCheckpoint,
    ServiceCommand,
    ShardCommand,
    SweepServices,
)
from rota.core.shards.decisions import PutService
from rota.core.shards.members import Assignment
from rota.core.shards.membership import check_owner
from rota.core.shards.reducer import assignment, next_moment_ms, reduce
from rota.core.shards.service import Service
from rota.engine.metrics.metrics import Metrics
from rota.engine.shards.cache import ShardCache
from rota.engine.shards.changes import ServiceChanges, ServiceGauges, gauges_of
from rota.engine.shards.row_ranges import runs_of
from rota.errors import Forbidden, RotaError, ServiceNotFound, StaleEpoch, TooMany
from rota.store.database import Transaction
from rota.store.shards import ShardStore, StoredCheckpoint

log = structlog.get_logger("rota.shards")

ShardReply = Assignment | Done
SHARD_COMMANDS = frozenset(get_args(ShardCommand))
# How long a heartbeat may stay unwritten when the batch has nothing else to write. Sweeps check
# this, too, so a heartbeat is written at most a second after it arrived.
SEEN_KEPT_MS = 500
LEAST_SWEEP_PAUSE_MS = 10  # a due time that is always just ahead must not keep the writer busy


class ShardWork(Struct):
    """The effects of a batch on services, for the notifier and the metrics after the commit."""

    pushes: list[Assignment] = []
    next_sweep_ms: int | None = None
    changes: dict[str, ServiceChanges] = {}  # by service
    gauges: dict[str, ServiceGauges] = {}  # by service, from a sweep
    fenced: list[str] = []  # the service of each refused effect


class ShardEngine:
    """Executes the shard commands of one batch."""

    def __init__(self, tx: Transaction, cache: ShardCache, *, now_ms: int) -> None:
        self._store = ShardStore(tx)
        self._cache = cache
        self._now_ms = now_ms
        self._answers: dict[int, ShardReply | RotaError] = {}
        self._to_tell: dict[str, set[str]] = {}  # members by service
        self._checkpoints: dict[tuple[str, int], SaveCheckpoint] = {}
        self._decided: set[str] = set()  # services that a command of the batch addressed
        self._read_again: set[str] = set()  # services that peers have changed
        self.work = ShardWork()

    def refresh(self, signature: int) -> None:
        """Read the services that peers have changed, before the batch decides anything."""
        self._read_again = self._cache.refresh(self._store, signature, now_ms=self._now_ms)
        self._cache.has_unheard = True

    def hear_others(self, kinds: AbstractSet[type]) -> None:
        """Read the heartbeats that peers have received, if a command of the batch needs them."""
        # A heartbeat concerns only its own member. Every other command may judge other members.
        if self._cache.has_unheard and (SHARD_COMMANDS & kinds) - {BeatMember}:
            self._cache.hear(self._store, now_ms=self._now_ms)

    def execute(self, events: Sequence[object]) -> dict[int, ShardReply | RotaError]:
        """Decide all shard commands and write the changes; return the replies by command index."""
        for index, event in _in_turn(events):
            try:
                self._answers[index] = self._execute(event)
            except RotaError as error:
                if self._is_half_done(event):
                    # The pipeline rolls the batch back, and retries the other commands without it.
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
        """Return the claims of this batch's results whose epoch has no owner any more."""
        claims = {
            result.claim
            for event in events
            if type(event) is ReportResults
            for result in event.results
            if result.claim is not None
        }
        return {claim for claim in claims if not self._is_current(claim)}

    def note_refused(self, events: Sequence[object], outcomes: Sequence[object]) -> None:
        """Count the results that were refused because their claims are stale."""
        for event, outcome in zip(events, outcomes, strict=True):
            if isinstance(event, ReportResults) and isinstance(outcome, Outcomes):
                self.work.fenced += [
                    result.claim.service
                    for result, name in zip(event.results, outcome.outcomes, strict=True)
                    if name == "stale_epoch" and result.claim is not None
                ]

    # --- deciding -------------------------------------------------------------------------------

    def _execute(self, event: ShardCommand) -> ShardReply:
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

    def _service_for(self, event: ServiceCommand) -> Service:
        service = self._cache.services.get(event.service) or self._find(event.service)
        if service is not None:
            return service
        if isinstance(event, DrainMember):
            raise ServiceNotFound(event.service)
        if len(self._cache.services) >= limits.MAX_SERVICES:
            raise TooMany(
                f"there are {limits.MAX_SERVICES} services already", most=limits.MAX_SERVICES
            )
        # `_decide` caches it only if the command changes it.
        return Service(event.service, awake_since_ms=self._now_ms)

    def _find(self, name: str) -> Service | None:
        return self._cache.find(self._store, name, now_ms=self._now_ms)

    def _decide(self, service: Service, event: ServiceCommand | SweepServices) -> Assignment | None:
        cache, name = self._cache, service.name
        self._decided.add(name)
        worker_id = getattr(event, "worker_id", None)
        before = service.members.get(worker_id) if worker_id is not None else None
        try:
            reply = reduce(service, event, now_ms=self._now_ms, policy=cache.policy)
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

    def _is_half_done(self, event: ShardCommand) -> bool:
        """Whether a command was refused after it had already changed something."""
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
        check_owner(service.members.get(owner), event.by)
        self._checkpoints[event.service, event.shard] = event

    def _is_current(self, claim: ShardClaim) -> bool:
        service = self._find(claim.service)
        return service is not None and service.owner_at(claim.shard, claim.epoch) is not None

    # --- notifying ------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Push each changed assignment, or put it into the reply that the member gets anyway.

        A member that gets both could read them in the wrong order. Old clients have no generations,
        so they cannot tell which one is newer.
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
        """Return the index of each member's newest reply, unless that reply is pending itself."""
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
        """Set the time of the next sweep: for all services after a sweep, else for changed ones."""
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
                StoredCheckpoint(numbers[name], shard, one.epoch, self._now_ms, bytes(one.value))
                for (name, shard), one in self._checkpoints.items()
            ]
        )

    def _write_seen(self, *, is_due: bool) -> None:
        """Write the times of members' heartbeats: with any other write, or once a second."""
        cache = self._cache
        if not cache.unwritten:
            return
        if cache.unwritten_since_ms is None:
            cache.unwritten_since_ms = self._now_ms
        # `abs`: a clock that was set back must not delay this write for long.
        if is_due or abs(self._now_ms - cache.unwritten_since_ms) >= SEEN_KEPT_MS:
            for name, worker_ids in cache.unwritten.items():
                members = cache.services[name].members
                heard = sorted(worker_ids & members.keys())
                self._store.record_heartbeats(cache.numbers[name], [members[one] for one in heard])
            cache.has_written_seen = True


def _in_turn(events: Sequence[object]) -> list[tuple[int, ShardCommand]]:
    """Return the shard commands with their indexes, sweeps last: heartbeats count before expiry."""
    ours = [one for one in enumerate(events) if type(one[1]) in SHARD_COMMANDS]
    sweeps = [one for one in ours if type(one[1]) is SweepServices]
    if sweeps:
        ours = [one for one in ours if type(one[1]) is not SweepServices] + sweeps
    return cast("list[tuple[int, ShardCommand]]", ours)


def _row_of(service: Service) -> PutService:
    return PutService(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        superseded=service.superseded,
    )


def count_shard_work(metrics: Metrics, work: ShardWork) -> None:
    """Count and log the effects of a committed batch on services."""
    for name, changes in work.changes.items():
        metrics.service(name).note(changes)
        for rebalanced in changes.rebalances:
            log.info(
                "shards_rebalanced",
                service=name,
                moved=rebalanced.moved,
                placed=rebalanced.placed,
            )
        for removed in changes.removed:
            log.info(
                "member_removed", service=name, worker_id=removed.worker_id, reason=removed.reason
            )
    for name, gauges in work.gauges.items():
        metrics.service(name).note_gauges(gauges)
    for name in work.fenced:
        metrics.fenced_effects += 1
        if name in metrics.services:  # a caller can invent names; count only existing services
            metrics.services[name].fenced_effects += 1
