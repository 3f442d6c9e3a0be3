"""Compares what the writer holds in memory with what the store has."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rota.core.ids import TaskId
from rota.engine.coordinator import Coordinator
from rota.engine.working_set import lane_windows
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_schedules import HeldSchedules
from rota.engine.working_set.held_tenants import HeldTenants
from rota.engine.working_set.lane_windows import RECORD_BYTES, LaneWindows
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.sqlite.database import SqliteTransaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import FIRST_PLACE
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

MANY = 10**9


@contextmanager
def small_windows() -> Iterator[None]:
    """Let windows be cut and filled again all the time."""
    with patch.multiple(
        lane_windows, MOST_PLACES=3, MOST_PER_READ=1, MOST_BYTES=3 * lane_windows.RECORD_BYTES
    ):
        yield


@contextmanager
def reading_ahead() -> Iterator[None]:
    """Let batches on SQLite read ahead, as those on a server do."""
    with patch.object(SqliteTransaction, "can_read_ahead", True):  # noqa: FBT003 - the value
        yield


def check_working_set(coordinator: Coordinator) -> None:
    """Compare a coordinator's working set with one that is freshly loaded from its store.

    After a batch that failed there is nothing to compare: the next batch loads it again.
    """
    if coordinator._leading is None:
        return  # it has stopped, or another coordinator leads
    pipeline = coordinator.leading.pipeline
    if pipeline._held._is_certain:
        pipeline._database.read(lambda tx: _check(pipeline._held, tx, pipeline._lanes))


def _check(held: WorkingSet, tx: Transaction, lanes: Lanes) -> None:
    fresh = WorkingSet()
    fresh.load(tx, lanes)
    assert held.workers.by_id == fresh.workers.by_id
    assert held.workers.last_incarnation == fresh.workers.last_incarnation
    assert held.workers.cancelled == fresh.workers.cancelled
    assert held.workers.open_breakers == fresh.workers.open_breakers
    stored = WorkerStore(tx).qualities([*held.workers.qualities])
    assert held.workers.qualities == {one: stored.get(one, {}) for one in held.workers.qualities}
    assert held.workers._quality_count == sum(map(len, stored.values()))
    assert held.leases.by_task == fresh.leases.by_task
    assert held.leases._by_incarnation == fresh.leases._by_incarnation
    assert held.leases.run_tokens == fresh.leases.run_tokens
    tasks = TaskStore(tx, lanes)
    _check_windows(held.windows, tasks, set(tasks.open_lanes()))
    _check_windows(held.flows.windows, tasks, {*fresh.flows.open})
    _check_flows(held.flows, fresh.flows)
    # A task that an operator has retried no longer holds its key, and may be among those held.
    assert fresh.leases.key_holders <= held.leases.key_holders <= held.leases.by_task.keys()
    _check_schedules(held.schedules, fresh.schedules)


def _check_schedules(held: HeldSchedules, fresh: HeldSchedules) -> None:
    assert held._names == fresh._names
    assert held._due == fresh._due
    assert {(due_ms, name) for name, due_ms in held._due.items()} <= set(held._heap)
    assert held._items.keys() | held._woken.keys() >= fresh._woken.keys()


def _check_flows(held: HeldFlows, fresh: HeldFlows) -> None:
    """Recount the limits, and look for every flow in exactly one place."""
    ours, theirs = held.limits, fresh.limits
    assert ours.by_key == theirs.by_key
    assert ours.running == theirs.running
    assert +ours.owned == theirs.owned
    assert ours.waiting == theirs.waiting
    assert ours.slots == theirs.slots
    assert ours.kept == theirs.kept
    assert held.queues.depths == fresh.queues.depths
    assert held.queues.missed == fresh.queues.missed
    _check_tenants(held.tenants, fresh.tenants)
    assert held.flows_of_queue == fresh.flows_of_queue
    assert {number: flow.queued for number, flow in held.open.items()} == {
        number: flow.queued for number, flow in fresh.open.items()
    }
    assert held.admission.blocked_count == sum(
        one.blocked_by is not None for one in held.open.values()
    )
    blocking: dict[int, Counter[str]] = {}
    for one in held.open.values():
        if one.blocked_by is not None:
            blocking.setdefault(one.lane, Counter())[one.blocked_by] += 1
    assert held.admission._blocking == blocking
    for flow in held.open.values():
        assert flow.holders == fresh.open[flow.number].holders
        blocked = held.admission.blocked.items()
        places = [key for key, lanes in blocked if flow in lanes.get(flow.lane, ())]
        is_active = flow in held.admission.active.get(flow.lane, ())
        assert places == ([] if flow.blocked_by is None else [flow.blocked_by])
        assert is_active == (flow.blocked_by is None), "a flow is active or blocked"


def _check_tenants(held: HeldTenants, fresh: HeldTenants) -> None:
    """Recount the tasks of tenants, and look for each tenant at the level of its load."""

    def loads(tenants: HeldTenants) -> dict[tuple[str, str], tuple[int, int]]:
        found = {(one.queue, one.key): (one.queued, one.running) for one in tenants}
        return {place: load for place, load in found.items() if load != (0, 0)}

    def running(tenants: HeldTenants) -> dict[TaskId, str]:
        return {task_id: one.tenant.key for task_id, one in tenants.running.items()}

    assert loads(held) == loads(fresh)
    assert running(held) == running(fresh)
    levels = {
        (queue, key): level
        for queue, by_level in held._levels.items()
        for level, of_level in by_level.items()
        for key in of_level
    }
    assert levels == {
        place: sum(load).bit_length() for place, load in loads(held).items() if place[1]
    }
    counts = Counter(queue for queue, _ in levels)
    assert {queue: count for queue, count in held._counts.items() if count} == counts


def _check_windows(windows: LaneWindows, tasks: TaskStore, stored_lanes: set[int]) -> None:
    assert stored_lanes <= windows.by_lane.keys()
    for lane, window in windows.by_lane.items():
        stored = tasks.queued_after(lane, FIRST_PLACE, limit=MANY, most_bytes=MANY)
        covered = {place: task for place, task in stored if window.covers(place)}
        assert [*window.places] == [*covered]
        whole = {task.id: task for task in covered.values() if task is not None}
        assert window.tasks.items() <= whole.items()
        assert window.places or window.bound is not None, "a lane without work has no window"
    of_all = [*windows.by_lane.values()]
    assert windows.place_count == sum(len(one.places) for one in of_all)
    assert windows.held_bytes == sum(
        RECORD_BYTES + len(task.payload) for one in of_all for task in one.tasks.values()
    )
