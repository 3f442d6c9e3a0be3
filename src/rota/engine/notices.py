"""What is the outside told of a batch? Made from what was decided, and written with it.

Those of tasks are in `task_notices`. Runs, memory and locks say themselves what there is to tell.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

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
from rota.core.notices import Noted, Notice, healths_now
from rota.core.snapshot import Snapshot
from rota.core.workers import Health
from rota.engine import task_notices
from rota.engine.happened import Happened
from rota.engine.shard_changes import ServiceChanges
from rota.store.database import Transaction
from rota.store.notices import Notices

PRUNED_PER_STEP = 10_000  # notices looked at in one transaction, so that none is long

Data = dict[str, Any]


class Told(Struct, frozen=True):
    """The notices of a commit, and where they stand in the log."""

    notices: Sequence[Notice]
    last_seq: int  # of them; without any, of those before
    at_ms: int

    def noted(self) -> list[Noted]:
        first = self.last_seq - len(self.notices) + 1
        return [
            Noted(seq=seq, at_ms=self.at_ms, type=one.type, subject=one.subject, data=one.data)
            for seq, one in enumerate(self.notices, first)
        ]


def write_notices(tx: Transaction, happened: Happened, *, last_seq: int) -> Told:
    """Tell what has happened, under the numbers that follow, in the batch's own transaction."""
    notices, at_ms = notices_of(happened), happened.snapshot.now_ms
    if notices:
        Notices(tx).add(notices, after=last_seq, at_ms=at_ms)
    return Told(notices, last_seq + len(notices), at_ms)


def notices_of(happened: Happened) -> Sequence[Notice]:
    """In an order in which causes come first: an end before the run that goes on with it."""
    decisions = happened.decisions
    kinds: list[type[Any]] = [kind for kind in decisions if kind in MAKERS]
    if not happened.told and not happened.services and len(kinds) < 2:  # nearly always
        return MAKERS[kinds[0]](happened, decisions[kinds[0]]) if kinds else ()
    sources: dict[type[Any], Any] = {kind: decisions[kind] for kind in kinds}
    if happened.told:
        sources[Notice] = happened.told
    if happened.services:
        sources[ServiceChanges] = happened.services
    return [
        notice
        for kind in sorted(sources, key=PLACES.__getitem__)
        for notice in MAKERS[kind](happened, sources[kind])
    ]


# --- workers ------------------------------------------------------------------------------------


def healths_after(
    before: Mapping[str, Health],
    decisions: Mapping[type[Decision], list[Any]],
    snapshot: Snapshot,
) -> Mapping[str, Health]:
    """The workers that are not healthy: judged in each sweep, and remembered until the next."""
    if sweeps := decisions.get(NoteWatch):
        return healths_now(
            snapshot.workers,
            resumed_at_ms=sweeps[-1].watch.resumed_at_ms,
            now_ms=snapshot.now_ms,
            policy=snapshot.rules.health,
        )
    if not before:
        return before
    # One that comes back begins anew, and one that has left is nobody's concern.
    gone = {one.worker.id for one in decisions.get(PutWorker, ())}
    gone |= {one.worker_id for one in decisions.get(RemoveWorker, ())}
    return {one: health for one, health in before.items() if one not in gone} if gone else before


def _swept(happened: Happened, _: Sequence[NoteWatch]) -> list[Notice]:
    """Whose health is another than at the sweep before; whoever was evicted was unhealthy."""
    before, after = happened.healths, happened.healths_now
    workers = happened.snapshot.workers
    standing = (before.keys() | after.keys()) & workers.keys()
    found = {one: (after.get(one, Health.HEALTHY), workers[one].incarnation) for one in standing}
    for removed in happened.decisions.get(RemoveWorker, ()):
        if removed.reason == Health.UNHEALTHY:
            found[removed.worker_id] = Health.UNHEALTHY, removed.incarnation
    return [
        Notice(
            type="worker-health",
            subject=worker_id,
            data={
                "health": health,
                "was": before.get(worker_id, Health.HEALTHY),
                "incarnation": incarnation,
            },
        )
        for worker_id, (health, incarnation) in sorted(found.items())
        if health is not before.get(worker_id, Health.HEALTHY)
    ]


def _registered(_: Happened, put: Sequence[PutWorker]) -> list[Notice]:
    notices = []
    for one in put:
        worker = one.worker
        data: Data = {"incarnation": worker.incarnation, "node_id": worker.node_id}
        if worker.capabilities:
            data["capabilities"] = worker.capabilities
        if worker.queues is not None:
            data["queues"] = worker.queues
        if worker.group is not None:
            data["group"] = worker.group
        notices.append(Notice(type="worker-registered", subject=worker.id, data=data))
    return notices


def _steered(_: Happened, changed: Sequence[ChangeWorkerState]) -> list[Notice]:
    return [
        Notice(
            type="worker-state",
            subject=one.worker_id,
            data={"state": one.state, "incarnation": one.incarnation},
        )
        for one in changed
    ]


def _removed(_: Happened, removed: Sequence[RemoveWorker]) -> list[Notice]:
    return [
        Notice(
            type="worker-unregistered",
            subject=one.worker_id,
            data={"incarnation": one.incarnation, "reason": one.reason},
        )
        for one in removed
    ]


# --- queues, tokens, services -------------------------------------------------------------------


def _queue_changed(happened: Happened, changed: Sequence[ChangeQueue]) -> list[Notice]:
    paused = set(happened.paused)
    notices = []
    for one in changed:
        if one.paused != (one.queue in paused):  # asked for twice, it happens once
            kind = "queue-paused" if one.paused else "queue-resumed"
            notices.append(Notice(type=kind, subject=one.queue))
            paused ^= {one.queue}
    return notices


def _token_put(_: Happened, put: Sequence[PutToken]) -> list[Notice]:
    notices = []
    for one in put:
        data: Data = {"name": one.token.name, "scopes": one.token.scopes}
        if one.token.expires_at_ms is not None:
            data["expires_at_ms"] = one.token.expires_at_ms
        notices.append(Notice(type="token-created", subject=one.token.id, data=data))
    return notices


def _token_dropped(_: Happened, dropped: Sequence[DropToken]) -> list[Notice]:
    return [Notice(type="token-revoked", subject=one.token_id) for one in dropped]


def _told(_: Happened, told: Sequence[Notice]) -> Sequence[Notice]:
    """Those of runs, memory and locks, as they were made."""
    return told


def _services_changed(_: Happened, services: Mapping[str, ServiceChanges]) -> list[Notice]:
    return [one for name, changes in services.items() for one in _of_service(name, changes)]


def _of_service(name: str, changes: ServiceChanges) -> Iterator[Notice]:
    for left in changes.removed:
        yield _member("member-left", name, left.worker_id, left.incarnation, reason=left.reason)
    for joined in changes.joined:
        yield _member("member-joined", name, joined.worker_id, joined.incarnation)
    for one in changes.rebalances:
        data = {"moved": one.moved, "placed": one.placed}
        yield Notice(type="shards-rebalanced", subject=name, data=data)


def _member(kind: str, service: str, worker_id: str, incarnation: str, **more: str) -> Notice:
    data: Data = {"worker_id": worker_id}
    if incarnation:
        data["incarnation"] = incarnation
    return Notice(type=kind, subject=service, data=data | more)


# In the order in which they are told.
MAKERS: dict[type[Any], Callable[[Happened, Any], Sequence[Notice]]] = {
    NoteWatch: _swept,
    RemoveWorker: _removed,
    PutWorker: _registered,
    ChangeWorkerState: _steered,
    FinishTask: task_notices.finished,
    RequeueTask: task_notices.requeued,
    ReviveTask: task_notices.revived,
    Notice: _told,
    AddTask: task_notices.submitted,
    ChangeQueue: _queue_changed,
    PutToken: _token_put,
    DropToken: _token_dropped,
    LeaseTask: task_notices.started,
    ServiceChanges: _services_changed,
}
PLACES = {kind: place for place, kind in enumerate(MAKERS)}
