"""Services inside a batch: reduces the commands about shards, and writes what they change.

Theory of operation. The domain decides the shard commands of a batch one after the other, before
all other commands. So the batch checks the claim of each result against the newest epochs. At the
end the domain writes the final state of every changed row once.

Heartbeats are frequent, and nearly all of them change nothing. The domain writes the times of all
members' last heartbeats together, once a second. So most batches of heartbeats write nothing, and
a transaction that writes nothing costs no commit. A crash loses at most that second, and no member
loses a lease by it: after a restart all leases start over. On a shared store a peer may end a
lease, too. There the domain writes a heartbeat before it replies, because a member whose lease was
renewed must not look dead to a peer.
"""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from rota.core import limits
from rota.core.commands import EpochClaim, ReportResults
from rota.core.replies import Done, Outcomes
from rota.core.shards import rebalancing
from rota.core.shards.commands import (
    DrainMember,
    SaveCheckpoint,
    ServiceCommand,
    ShardCommand,
    ShardReply,
    SweepServices,
)
from rota.core.shards.decisions import PutService, ShardDecision
from rota.core.shards.members import Assignment
from rota.core.shards.membership import check_owner
from rota.core.shards.reducer import assignment, next_moment_ms, reduce
from rota.core.shards.service import Service
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.request import earlier
from rota.engine.shards.changes import ServiceChanges, gauges_of
from rota.engine.shards.row_ranges import runs_of
from rota.errors import Forbidden, ServiceNotFound, StaleEpoch, TooMany
from rota.store.shards import ShardStore, StoredCheckpoint

# How long a heartbeat may stay unwritten when the batch has nothing else to write. Sweeps check
# this, too, so a heartbeat is written at most a second after it arrived.
SEEN_KEPT_MS = 500
LEAST_SWEEP_PAUSE_MS = 10  # a due time that is always just ahead must not keep the writer busy


class ShardDomain(Domain):
    """The services of one batch."""

    COMMANDS = frozenset(get_args(ShardCommand))

    @classmethod
    def looks_further(cls, kinds: frozenset[type[Any]]) -> bool:
        return ReportResults in kinds

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        """Results may carry a claim of a shard."""
        return super().is_concerned(batch) or (
            ReportResults in batch.kinds and any(_claims_of(batch.commands))
        )

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = ShardStore(batch.tx)
        self._cache = batch.services
        self._context = batch.context
        self._now_ms = batch.context.steady_ms
        self._to_notify: dict[str, set[str]] = {}  # members by service
        self._checkpoints: dict[tuple[str, int], SaveCheckpoint] = {}
        self._has_commands = super().is_concerned(batch)
        self._has_sweep = False

    def reduce(self, command: ShardCommand) -> ShardReply:
        match command:
            case SweepServices():
                self._has_sweep = True  # heartbeats of the same batch count before it
            case SaveCheckpoint():
                self._save(command)
            case _:
                reply = self._decide(self._service_for(command), command)
                if reply is not None:
                    return reply
        return Done()

    def is_half_done(self, command: ShardCommand) -> bool:
        if isinstance(command, SweepServices):
            return False
        service = self._cache.services.get(command.service)
        return service is not None and bool(service.decisions or service.changed)

    def close(self) -> None:
        if self._has_sweep:
            self._sweep()
        claims = set(_claims_of(self.batch.commands))
        stale = {claim for claim in claims if not self._is_current(claim)}
        self.batch.snapshot.stale_claims = stale

    def write(self) -> None:
        if self.batch.snapshot.stale_claims:
            self._note_refused()
        if self._has_commands:
            self._write()
        self._notify_members()
        if self._has_commands:
            self._look_ahead()

    def _note_refused(self) -> None:
        """Count the results that were refused because their claims are stale."""
        for command, outcome in zip(self.batch.commands, self.batch.outcomes, strict=True):
            if isinstance(command, ReportResults) and isinstance(outcome, Outcomes):
                self.batch.fenced += [
                    result.claim.service
                    for result, name in zip(command.results, outcome.outcomes, strict=True)
                    if name == "stale_epoch" and result.claim is not None
                ]

    # --- deciding -------------------------------------------------------------------------------

    def _service_for(self, command: ServiceCommand) -> Service:
        service = self._cache.services.get(command.service) or self._find(command.service)
        if service is not None:
            return service
        if isinstance(command, DrainMember):
            raise ServiceNotFound(command.service)
        if len(self._cache.services) >= limits.MAX_SERVICES:
            raise TooMany(
                f"there are {limits.MAX_SERVICES} services already", most=limits.MAX_SERVICES
            )
        # `_decide` caches it only if the command changes it.
        return Service(command.service, awake_since_ms=self._now_ms)

    def _find(self, name: str) -> Service | None:
        return self._cache.find(self._store, name, now_ms=self._now_ms)

    def _decide(
        self, service: Service, command: ServiceCommand | SweepServices
    ) -> Assignment | None:
        cache, name = self._cache, service.name
        worker_id = getattr(command, "worker_id", None)
        before = service.members.get(worker_id) if worker_id is not None else None
        decisions: Sequence[ShardDecision] = ()
        try:
            decisions, reply = reduce(service, command, self._context)
        finally:
            if decisions or service.decisions or service.changed:
                cache.services[name] = service
                cache.touched.add(name)
        if decisions:
            changes = self.batch.service_changes.get(name)
            if changes is None:
                changes = self.batch.service_changes[name] = ServiceChanges()
            changes.note(decisions)
            after = service.members.get(worker_id) if worker_id is not None else None
            if after is not None and (before is None or before.incarnation != after.incarnation):
                changes.joined.append(after)
        if service.changed:
            self._to_notify.setdefault(name, set()).update(service.take_changed())
        return reply

    def _sweep(self) -> None:
        cache = self._cache
        command = SweepServices(cache.deaf_until_ms)
        cache.fill(self._store, now_ms=self._now_ms)
        for name, service in cache.services.items():
            self._decide(service, command)
            self.batch.service_gauges[name] = gauges_of(service, cache.policy, now_ms=self._now_ms)

    def _save(self, command: SaveCheckpoint) -> None:
        service = self._find(command.service)
        if service is None:
            raise ServiceNotFound(command.service)
        owner = service.owner_at(command.shard, command.epoch)
        if owner is None:
            self.batch.fenced.append(command.service)
            raise StaleEpoch(command.service, command.shard, epoch=command.epoch)
        if command.worker_id not in {None, owner}:
            raise Forbidden(
                f"shard {command.shard} of service {command.service!r} does not belong to worker "
                f"{command.worker_id!r}",
                worker_id=command.worker_id,
            )
        check_owner(service.members.get(owner), command.by)
        self._checkpoints[command.service, command.shard] = command

    def _is_current(self, claim: EpochClaim) -> bool:
        service = self._find(claim.service)
        return service is not None and service.owner_at(claim.shard, claim.epoch) is not None

    # --- notifying ------------------------------------------------------------------------------

    def _notify_members(self) -> None:
        """Push each changed assignment, or put it into the reply that the member gets anyway.

        A member that gets both could read them in the wrong order. Old clients have no generations,
        so they cannot tell which one is newer.
        """
        if not self._to_notify:
            return
        outcomes, replied = self.batch.outcomes, self._replied()
        for name, worker_ids in self._to_notify.items():
            service = self._cache.services[name]
            for worker_id in sorted(worker_ids & service.members.keys()):
                newest = assignment(service, worker_id, self._cache.policy)
                index = replied.get((name, worker_id))
                reply = None if index is None else outcomes[index]
                if (
                    index is None
                    or not isinstance(reply, Assignment)
                    or reply.incarnation != newest.incarnation
                ):
                    self.batch.delivery.pushes.append(newest)
                else:
                    outcomes[index] = assignment(
                        service, worker_id, self._cache.policy, seq=reply.seq
                    )

    def _replied(self) -> dict[tuple[str, str], int]:
        """Return the index of each member's newest reply, unless that reply is pending itself."""
        found: dict[tuple[str, str], int] = {}
        for index, reply in enumerate(self.batch.outcomes):
            if isinstance(reply, Assignment):
                key = reply.service, reply.worker_id
                if reply.is_pending:
                    found.pop(key, None)
                elif reply.status == "ok":
                    found[key] = index
        return found

    def _look_ahead(self) -> None:
        """Set the time of the next sweep: for all services after a sweep, else for changed ones."""
        cache, batch = self._cache, self.batch
        moments: list[int | None]
        if batch.service_gauges:
            moments = [next_moment_ms(one, cache.policy) for one in cache.services.values()]
            moments.append(self._now_ms + cache.policy.sweep_ms)
        else:
            moments = [rebalancing.due_ms(cache.services[name]) for name in batch.service_changes]
        earliest = min((one for one in moments if one is not None), default=None)
        if earliest is not None and batch.service_gauges:
            earliest = max(earliest, self._now_ms + LEAST_SWEEP_PAUSE_MS)
        batch.delivery.next_sweep_ms = earlier(batch.delivery.next_sweep_ms, earliest)

    # --- writing --------------------------------------------------------------------------------

    def _write(self) -> None:
        is_seen_due = False
        for name, changes in self.batch.service_changes.items():
            if changes.are_lasting:
                self._write_service(self._cache.services[name], changes)
                is_seen_due = True
            if changes.seen:
                self._cache.unwritten.setdefault(name, set()).update(changes.seen)
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


def _claims_of(commands: Sequence[object]) -> Iterator[EpochClaim]:
    """Yield the claims of shards that the results in these commands carry."""
    for command in commands:
        if type(command) is ReportResults:
            for result in command.results:
                if result.claim is not None:
                    yield result.claim


def _row_of(service: Service) -> PutService:
    return PutService(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        superseded=service.superseded,
    )
