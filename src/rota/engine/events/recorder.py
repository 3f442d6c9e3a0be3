"""Turns the outcome of a batch into public events, written in the same transaction.

`task_events` makes the events about tasks. Runs, values and locks make their own events.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never, get_args

from rota.core.commands import HousekeepingCommand, KeepMinutes
from rota.core.context import Context
from rota.core.decisions import (
    AddTask,
    ChangeQueue,
    ChangeWorkerState,
    Decision,
    DropToken,
    FinishTask,
    LeaseTask,
    NoteWatch,
    PutToken,
    PutWorker,
    RemoveWorker,
    RequeueTask,
    ReviveTask,
)
from rota.core.dispatch import stuck_queues
from rota.core.dispatch.stuck_queues import NoteStuckQueues
from rota.core.events import Event, EventBatch, PruneEvents, healths_now
from rota.core.replies import Done
from rota.core.snapshot import Snapshot
from rota.core.workers.model import Health
from rota.engine.commit.batch import Batch, Domain, counts_of
from rota.engine.events import task_events
from rota.engine.shards.changes import ServiceChanges
from rota.store.dashboard import DashboardStore
from rota.store.events import EventStore
from rota.store.tasks.queues import QueueStore

PRUNED_PER_STEP = 10_000  # events examined in one transaction, so that none is long

Data = dict[str, Any]


class HistoryDomain(Domain):
    """What a batch leaves for later: its public events, and the minutes of the charts."""

    COMMANDS = frozenset(get_args(HousekeepingCommand))
    CONCERNS_ALL = True

    def reduce(self, command: HousekeepingCommand) -> Done:
        tx = self.batch.tx
        match command:
            case PruneEvents():
                return Done(EventStore(tx).prune(command, step=PRUNED_PER_STEP))
            case KeepMinutes():
                return Done(DashboardStore(tx).put_minutes(command))
            case NoteStuckQueues():
                return Done(self._note_stuck(command))
            case _:
                assert_never(command)

    def _note_stuck(self, command: NoteStuckQueues) -> int:
        """Record the queues that have become stuck, and those that are stuck no more."""
        queues, now_ms = QueueStore(self.batch.tx), self.batch.context.now_ms
        before = queues.stuck()
        after, events = stuck_queues.note(before, command, now_ms)
        for queue in before.keys() ^ after.keys():
            queues.set_stuck(queue, after.get(queue))
        self.batch.events += events
        return len(events)

    def write(self) -> None:
        """Write the batch's events after the last of the log, in the batch's own transaction."""
        batch = self.batch
        before, at_ms = batch.state.last_seq, batch.context.now_ms
        batch.counts = counts_of(batch.decisions)
        batch.healths = healths_after(
            batch.state.healths, batch.decisions, batch.snapshot, batch.context
        )
        events = events_of(batch)
        batch.last_seq = before + len(events)
        if events:
            EventStore(batch.tx).add(events, after=before, at_ms=at_ms)
            batch.delivery.events.append(EventBatch(events, batch.last_seq, at_ms))


def events_of(batch: Batch) -> Sequence[Event]:
    """Return the batch's events, causes first: a task's end comes before its run's next step."""
    decisions = batch.decisions
    kinds: list[type[Any]] = [kind for kind in decisions if kind in MAKERS]
    if not batch.events and not batch.service_changes and len(kinds) < 2:  # nearly always
        return MAKERS[kinds[0]](batch, decisions[kinds[0]]) if kinds else ()
    sources: dict[type[Any], Any] = {kind: decisions[kind] for kind in kinds}
    if batch.events:
        sources[Event] = batch.events
    if batch.service_changes:
        sources[ServiceChanges] = batch.service_changes
    return [
        event
        for kind in sorted(sources, key=PLACES.__getitem__)
        for event in MAKERS[kind](batch, sources[kind])
    ]


# --- workers ------------------------------------------------------------------------------------


def healths_after(
    before: Mapping[str, Health],
    decisions: Mapping[type[Decision], list[Any]],
    snapshot: Snapshot,
    context: Context,
) -> Mapping[str, Health]:
    """Return the workers that are not healthy, as the last sweep judged them."""
    if sweeps := decisions.get(NoteWatch):
        return healths_now(
            snapshot.workers,
            resumed_at_ms=sweeps[-1].watch.resumed_at_ms,
            now_ms=context.now_ms,
            policy=context.rules.health,
        )
    if not before:
        return before
    # A worker that registers again starts as healthy, and a removed worker has no health.
    gone = {one.worker.id for one in decisions.get(PutWorker, ())}
    gone |= {one.worker_id for one in decisions.get(RemoveWorker, ())}
    return {one: health for one, health in before.items() if one not in gone} if gone else before


def _swept(batch: Batch, _: Sequence[NoteWatch]) -> list[Event]:
    """Report each worker whose health differs from the last sweep; evicted ones are unhealthy."""
    before, after = batch.state.healths, batch.healths
    workers = batch.snapshot.workers
    standing = (before.keys() | after.keys()) & workers.keys()
    found = {
        one: (after.get(one, Health.HEALTHY), workers[one].incarnation, workers[one].queues)
        for one in standing
    }
    for removed in batch.decisions.get(RemoveWorker, ()):
        if removed.reason == Health.UNHEALTHY:
            found[removed.worker_id] = Health.UNHEALTHY, removed.incarnation, removed.queues
    return [
        Event(
            type="worker-health",
            subject=worker_id,
            data={
                "health": health,
                "was": before.get(worker_id, Health.HEALTHY),
                "incarnation": incarnation,
                **_served(queues),
            },
        )
        for worker_id, (health, incarnation, queues) in sorted(found.items())
        if health is not before.get(worker_id, Health.HEALTHY)
    ]


def _served(queues: tuple[str, ...] | None) -> Data:
    """Return the worker's queues, which decide who may see the event; none if it serves all."""
    return {} if queues is None else {"queues": queues}


def _registered(_: Batch, put: Sequence[PutWorker]) -> list[Event]:
    events = []
    for one in put:
        worker = one.worker
        data: Data = {"incarnation": worker.incarnation, "node_id": worker.node_id}
        if worker.capabilities:
            data["capabilities"] = worker.capabilities
        data |= _served(worker.queues)
        if worker.group is not None:
            data["group"] = worker.group
        events.append(Event(type="worker-registered", subject=worker.id, data=data))
    return events


def _steered(batch: Batch, changed: Sequence[ChangeWorkerState]) -> list[Event]:
    workers = batch.snapshot.workers
    events = []
    for one in changed:
        worker = workers.get(one.worker_id)
        data: Data = {"state": one.state, "incarnation": one.incarnation}
        data |= _served(None if worker is None else worker.queues)
        events.append(Event(type="worker-state", subject=one.worker_id, data=data))
    return events


def _removed(_: Batch, removed: Sequence[RemoveWorker]) -> list[Event]:
    return [
        Event(
            type="worker-unregistered",
            subject=one.worker_id,
            data={"incarnation": one.incarnation, "reason": one.reason, **_served(one.queues)},
        )
        for one in removed
    ]


# --- queues, tokens, services -------------------------------------------------------------------


def _queue_changed(batch: Batch, changed: Sequence[ChangeQueue]) -> list[Event]:
    paused = set(batch.state.paused)
    events = []
    for one in changed:
        if one.paused != (one.queue in paused):  # a repeated request changes nothing
            kind = "queue-paused" if one.paused else "queue-resumed"
            events.append(Event(type=kind, subject=one.queue))
            paused ^= {one.queue}
    return events


def _token_put(_: Batch, put: Sequence[PutToken]) -> list[Event]:
    events = []
    for one in put:
        data: Data = {"name": one.token.name, "scopes": one.token.scopes}
        if one.token.expires_at_ms is not None:
            data["expires_at_ms"] = one.token.expires_at_ms
        events.append(Event(type="token-created", subject=one.token.id, data=data))
    return events


def _token_dropped(_: Batch, dropped: Sequence[DropToken]) -> list[Event]:
    return [Event(type="token-revoked", subject=one.token_id) for one in dropped]


def _told(_: Batch, told: Sequence[Event]) -> Sequence[Event]:
    """Return the events that runs, values and locks have made, unchanged."""
    return told


def _services_changed(_: Batch, services: Mapping[str, ServiceChanges]) -> list[Event]:
    return [one for name, changes in services.items() for one in _of_service(name, changes)]


def _of_service(name: str, changes: ServiceChanges) -> Iterator[Event]:
    for left in changes.removed:
        yield _member("member-left", name, left.worker_id, left.incarnation, reason=left.reason)
    for joined in changes.joined:
        yield _member("member-joined", name, joined.worker_id, joined.incarnation)
    for one in changes.rebalances:
        data = {"moved": one.moved, "placed": one.placed}
        yield Event(type="shards-rebalanced", subject=name, data=data)


def _member(kind: str, service: str, worker_id: str, incarnation: str, **more: str) -> Event:
    data: Data = {"worker_id": worker_id}
    if incarnation:
        data["incarnation"] = incarnation
    return Event(type=kind, subject=service, data=data | more)


# The order of the entries is the order of the events in the log.
MAKERS: dict[type[Any], Callable[[Batch, Any], Sequence[Event]]] = {
    NoteWatch: _swept,
    RemoveWorker: _removed,
    PutWorker: _registered,
    ChangeWorkerState: _steered,
    FinishTask: task_events.finished,
    RequeueTask: task_events.requeued,
    ReviveTask: task_events.revived,
    Event: _told,
    AddTask: task_events.submitted,
    ChangeQueue: _queue_changed,
    PutToken: _token_put,
    DropToken: _token_dropped,
    LeaseTask: task_events.started,
    ServiceChanges: _services_changed,
}
PLACES = {kind: place for place, kind in enumerate(MAKERS)}
