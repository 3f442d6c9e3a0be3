from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.access import LOCAL, Caller, Scope
from rota.core.commands import (
    BeatWorker,
    CancelTasks,
    LeaseWork,
    LeaveWorker,
    RegisterWorker,
    ReportLogs,
    ReportProgress,
    ReportResults,
    SetWorkerState,
    SweepWorkers,
    TaskCommand,
)
from rota.core.decisions import (
    ChangeWorkerState,
    Decision,
    FinishTask,
    ForgetCancelled,
    NoteHeartbeat,
    NoteWatch,
    PutWorker,
    RemoveWorker,
    RequeueTask,
)
from rota.core.ids import TaskId
from rota.core.replies import Beat, Done, Registered
from rota.core.tasks.model import Ending
from rota.core.workers.eviction_guards import HoldReason, SweepState
from rota.core.workers.model import Health, WorkerState
from rota.core.workers.registry import SWEEP_INTERVAL_MS
from rota.errors import Forbidden, StaleIncarnation, WorkerNotFound
from tests.core.snapshots import (
    NOW_MS,
    Situation,
    add_running,
    add_worker,
    ask,
    beat,
    done,
    reduce,
    report,
    situation,
)

LEASE_MS = 15_000  # of a worker with the default interval
JUST_SWEPT = SweepState(previous_sweep_ms=NOW_MS - SWEEP_INTERVAL_MS, resumed_at_ms=0)


def register(worker_id: str = "w1", **changes: Any) -> RegisterWorker:
    return RegisterWorker(worker_id=worker_id, node_id="n1", **changes)


def beaten(snapshot: Situation, event: BeatWorker) -> tuple[list[Decision], Beat]:
    decisions, reply = reduce(snapshot, event)
    assert isinstance(reply, Beat)
    return decisions, reply


def endings(decisions: list[Decision]) -> list[tuple[int, Ending]]:
    return [(one.id, one.ended.ending) for one in decisions if isinstance(one, RequeueTask)]


# --- registering --------------------------------------------------------------------------------


def test_a_newcomer_is_put_into_the_registry() -> None:
    snapshot = situation()
    snapshot.next_incarnation = 8

    decisions, reply = reduce(
        snapshot, register(capabilities=("gpu",), max_concurrent_tasks=4, labels=["spot"])
    )

    assert isinstance(reply, Registered)
    worker = reply.worker
    assert decisions == [PutWorker(worker)]
    assert (worker.incarnation, worker.capabilities, worker.labels) == (8, ("gpu",), ["spot"])
    assert (worker.started_at_ms, worker.last_heartbeat_ms) == (NOW_MS, NOW_MS)
    assert (worker.state, reply.lease_ms) == (WorkerState.ACTIVE, LEASE_MS)


def test_a_worker_that_comes_back_has_a_new_incarnation_and_its_old_work_moves_on() -> None:
    snapshot = situation()
    old = add_worker(snapshot)
    add_running(snapshot, 1, worker=old, attempt=1)
    add_running(snapshot, 2, worker=old, attempt=3, max_attempts=3)
    add_running(snapshot, 3, worker=add_worker(snapshot, "w2"))

    decisions, reply = reduce(snapshot, register())

    assert isinstance(reply, Registered)
    assert reply.worker.incarnation == 3
    assert endings(decisions) == [(1, Ending.LOST)]
    assert [one.id for one in decisions if isinstance(one, FinishTask)] == [2]
    assert list(snapshot.leases) == [3]


def test_what_an_old_incarnation_should_have_been_told_is_forgotten() -> None:
    snapshot = situation()
    old = add_worker(snapshot)
    lease = add_running(snapshot, worker=old)
    reduce(snapshot, CancelTasks((lease.id,)))

    decisions, _ = reduce(snapshot, register())

    assert ForgetCancelled(old.incarnation, lease.id) in decisions


def test_registering_twice_in_one_batch_leaves_the_second_incarnation() -> None:
    snapshot = situation()

    _, first = reduce(snapshot, register())
    _, second = reduce(snapshot, register())

    assert isinstance(first, Registered)
    assert isinstance(second, Registered)
    assert second.worker.incarnation > first.worker.incarnation
    assert snapshot.workers["w1"] == second.worker
    assert snapshot.fleet == 1


def test_a_large_fleet_beats_less_often_than_it_asks() -> None:
    snapshot = situation()
    snapshot.fleet = 20_000

    _, reply = reduce(snapshot, register())

    assert isinstance(reply, Registered)
    assert reply.worker.heartbeat_interval_ms > 5_000
    assert reply.lease_ms == 3 * reply.worker.heartbeat_interval_ms


CALLS: list[TaskCommand] = [
    BeatWorker(worker_id="w1", incarnation=1),
    LeaseWork(worker_id="w1", incarnation=1, most=1),
    ReportResults(worker_id="w1", incarnation=1, results=[]),
    LeaveWorker(worker_id="w1", incarnation=1),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_zombie_is_refused(call: TaskCommand) -> None:
    snapshot = situation()
    add_worker(snapshot, incarnation=2)

    with pytest.raises(StaleIncarnation) as refusal:
        reduce(snapshot, call)

    assert refusal.value.facts == {"worker_id": "w1", "given": 1, "current": 2}


@pytest.mark.parametrize(
    "call",
    [*CALLS, SetWorkerState(worker_id="w1", state=WorkerState.DRAINING)],
    ids=lambda call: type(call).__name__,
)
def test_a_worker_that_is_not_registered_is_told_to_register(call: TaskCommand) -> None:
    with pytest.raises(WorkerNotFound, match="not found"):
        reduce(situation(), call)


# --- beating ------------------------------------------------------------------------------------


def test_a_beat_is_noted_with_its_load() -> None:
    snapshot = situation()
    worker = add_worker(snapshot, last_heartbeat_ms=1, state=WorkerState.DRAINING)

    decisions, reply = beaten(
        snapshot,
        BeatWorker(worker_id="w1", incarnation=worker.incarnation, load={"lag_ms": 2.0}),
    )

    assert decisions == [NoteHeartbeat("w1", NOW_MS, {"lag_ms": 2.0})]
    assert reply == Beat(
        health=Health.HEALTHY,
        state=WorkerState.DRAINING,
        cancel=(),
        lost=(),
        heartbeat_interval_ms=5_000,
        lease_ms=LEASE_MS,
    )
    assert snapshot.workers["w1"].last_heartbeat_ms == NOW_MS


def test_a_beat_lists_what_is_no_longer_the_workers() -> None:
    snapshot = situation()
    worker, other = add_worker(snapshot), add_worker(snapshot, "w2")
    add_running(snapshot, 1, worker=worker)
    add_running(snapshot, 2, worker=other)

    _, reply = beaten(snapshot, beat(worker, 1, 2, 3))

    assert reply.lost == (2, 3)


def test_a_worker_is_told_of_a_cancellation_until_it_has_let_go() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    reduce(snapshot, CancelTasks((lease.id,)))

    still, told = beaten(snapshot, beat(worker, 1))
    silent, also_told = beaten(snapshot, BeatWorker(worker_id="w1", incarnation=worker.incarnation))
    through, told_last = beaten(snapshot, beat(worker))

    for reply in (told, also_told, told_last):
        assert (reply.cancel, reply.lost) == ((1,), ())
    forget = ForgetCancelled(worker.incarnation, lease.id)
    assert [forget in decisions for decisions in (still, silent, through)] == [False, False, True]


def test_a_worker_that_reports_on_a_cancelled_task_is_through_with_it() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    reduce(snapshot, CancelTasks((lease.id,)))

    decisions, _ = reduce(snapshot, report(worker, done(lease)))

    assert decisions == [ForgetCancelled(worker.incarnation, lease.id)]


@pytest.mark.parametrize(("age_ms", "is_released"), [(30_000, False), (30_001, True)])
def test_a_lease_the_worker_never_lists_was_never_received(
    age_ms: int,
    is_released: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, started_at_ms=NOW_MS - age_ms)
    add_running(snapshot, 2, worker=worker, started_at_ms=NOW_MS - 10 * age_ms)

    decisions, _ = beaten(snapshot, beat(worker, 2))

    assert endings(decisions) == ([(1, Ending.RELEASED)] if is_released else [])


def test_an_unlisted_lease_is_left_alone_for_at_least_one_lease_time() -> None:
    snapshot = situation()
    slow = add_worker(snapshot, heartbeat_interval_ms=60_000)
    add_running(snapshot, 1, worker=slow, started_at_ms=NOW_MS - 180_000)

    decisions, _ = beaten(snapshot, beat(slow))

    assert endings(decisions) == []


def test_a_worker_that_does_not_say_what_it_runs_loses_nothing() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, started_at_ms=0)

    decisions, reply = beaten(snapshot, BeatWorker(worker_id="w1", incarnation=worker.incarnation))

    assert endings(decisions) == []
    assert reply.lost == ()


@pytest.mark.parametrize(("interval_ms", "known_for_ms"), [(60_000, 1_000), (2_000, 200)])
def test_any_call_is_a_sign_of_life_noted_when_the_last_note_is_old(
    interval_ms: int, known_for_ms: int
) -> None:
    snapshot = situation()
    worker = add_worker(
        snapshot,
        heartbeat_interval_ms=interval_ms,
        last_heartbeat_ms=NOW_MS - known_for_ms - 1,
    )

    first, _ = reduce(snapshot, ask(worker))
    second, _ = reduce(snapshot, ask(worker))
    snapshot.now_ms += known_for_ms
    third, _ = reduce(snapshot, ask(worker))

    assert first == [NoteHeartbeat("w1", NOW_MS)]
    assert second == third == []


def test_a_beat_is_noted_however_soon_it_comes_after_another() -> None:
    snapshot = situation()
    worker = add_worker(snapshot, last_heartbeat_ms=NOW_MS - 1)

    decisions, _ = beaten(snapshot, BeatWorker(worker_id="w1", incarnation=worker.incarnation))

    assert NoteHeartbeat("w1", NOW_MS) in decisions


# --- leaving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("incarnation", [None, 1])
def test_a_worker_that_leaves_gives_its_leases_back_unused(incarnation: int | None) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, attempt=3, max_attempts=3)

    decisions, reply = reduce(snapshot, LeaveWorker(worker_id="w1", incarnation=incarnation))

    assert endings(decisions) == [(1, Ending.RELEASED)]
    assert decisions[-1] == RemoveWorker("w1", 1, "left")
    assert reply == Done(1)
    assert (snapshot.workers, snapshot.fleet) == ({}, 0)


# --- what operators set -------------------------------------------------------------------------


@given(st.lists(st.sampled_from(WorkerState), min_size=1, max_size=6))
def test_an_operator_may_set_any_state_and_setting_it_again_writes_nothing(
    wanted: list[WorkerState],
) -> None:
    snapshot = situation()
    before = add_worker(snapshot).state

    for state in wanted:
        decisions, reply = reduce(snapshot, SetWorkerState(worker_id="w1", state=state))
        assert isinstance(reply, Registered)
        assert reply.worker.state is state
        assert decisions == ([] if state is before else [ChangeWorkerState("w1", 1, state)])
        before = state


# --- silence ------------------------------------------------------------------------------------


def fleet_of(snapshot: Situation, count: int, *, silent: int, since_ms: int = LEASE_MS + 1) -> None:
    """So many workers, of which the first ones have been silent for a while; each runs a task."""
    for number in range(1, count + 1):
        age_ms = since_ms if number <= silent else 0
        worker = add_worker(snapshot, f"w{number:03}", last_heartbeat_ms=snapshot.now_ms - age_ms)
        add_running(snapshot, number, worker=worker)


def swept(snapshot: Situation) -> tuple[list[str], NoteWatch, list[Decision]]:
    decisions, reply = reduce(snapshot, SweepWorkers())
    removed = [one.worker_id for one in decisions if isinstance(one, RemoveWorker)]
    (watch,) = [one for one in decisions if isinstance(one, NoteWatch)]
    assert reply == Done(len(removed))
    return removed, watch, decisions


def test_a_silent_worker_is_removed_and_its_work_is_lost_to_it() -> None:
    snapshot = situation()
    snapshot.watch = JUST_SWEPT
    fleet_of(snapshot, 3, silent=1)

    removed, watch, decisions = swept(snapshot)

    assert removed == ["w001"]
    assert endings(decisions) == [(1, Ending.LOST)]
    assert RemoveWorker("w001", 1, "unhealthy") in decisions
    assert watch.watch.previous_sweep_ms == NOW_MS
    assert sorted(snapshot.workers) == ["w002", "w003"]


def test_a_worker_is_not_removed_a_moment_too_early() -> None:
    snapshot = situation()
    snapshot.watch = JUST_SWEPT
    fleet_of(snapshot, 1, silent=1, since_ms=LEASE_MS)

    removed, _, _ = swept(snapshot)

    assert removed == []


def test_a_worker_that_called_in_the_same_batch_lives() -> None:
    snapshot = situation()
    snapshot.watch = JUST_SWEPT
    fleet_of(snapshot, 1, silent=1)

    reduce(snapshot, ask(snapshot.workers["w001"]))
    removed, _, _ = swept(snapshot)

    assert removed == []


@pytest.mark.parametrize(
    "watch",
    [
        SweepState(),
        SweepState(previous_sweep_ms=NOW_MS - 3 * SWEEP_INTERVAL_MS - 1, resumed_at_ms=0),
        SweepState(previous_sweep_ms=NOW_MS - 1_000, resumed_at_ms=NOW_MS - LEASE_MS + 1),
    ],
    ids=["just started", "just back from a pause", "back for less than a lease"],
)
def test_nobody_is_blamed_for_silence_while_the_coordinator_itself_was_away(
    watch: SweepState,
) -> None:
    snapshot = situation()
    snapshot.watch = watch
    fleet_of(snapshot, 2, silent=2)

    removed, _, _ = swept(snapshot)

    assert removed == []


@pytest.mark.parametrize(("swept_ago_ms", "expected"), [(250, ["w1"]), (251, []), (1_000, [])])
def test_a_quick_beater_is_gone_only_if_the_sweep_before_agrees(
    swept_ago_ms: int, expected: list[str]
) -> None:
    snapshot = situation()
    # A pause of our own of up to three sweeps goes unnoticed; this worker's lease is shorter.
    snapshot.watch = SweepState(previous_sweep_ms=NOW_MS - swept_ago_ms, resumed_at_ms=0)
    add_worker(snapshot, heartbeat_interval_ms=500, last_heartbeat_ms=NOW_MS - 1_751)

    removed, _, _ = swept(snapshot)

    assert removed == expected


def test_amnesty_ends_after_one_lease() -> None:
    snapshot = situation()
    snapshot.watch = msgspec.structs.replace(JUST_SWEPT, resumed_at_ms=NOW_MS - LEASE_MS)
    fleet_of(snapshot, 2, silent=1)

    removed, _, _ = swept(snapshot)

    assert removed == ["w001"]


def test_a_mass_death_is_not_believed_at_first() -> None:
    snapshot = situation()
    snapshot.watch = JUST_SWEPT
    fleet_of(snapshot, 20, silent=4)

    removed, watch, decisions = swept(snapshot)

    assert removed == []
    assert endings(decisions) == []
    assert watch.held_because is HoldReason.MASS_DEATH
    assert watch.watch.held_since_ms == NOW_MS


def test_a_mass_death_is_believed_when_it_lasts() -> None:
    snapshot = situation()
    since_ms = NOW_MS - 30_000
    snapshot.watch = msgspec.structs.replace(JUST_SWEPT, held_since_ms=since_ms)
    fleet_of(snapshot, 20, silent=4, since_ms=60_000)

    removed, watch, _ = swept(snapshot)

    assert len(removed) == 4
    assert watch.held_because is None


def test_a_beat_from_the_future_is_put_back_when_the_clock_was_set_back() -> None:
    snapshot = situation()
    snapshot.watch = SweepState(previous_sweep_ms=NOW_MS + 3_600_000, resumed_at_ms=0)
    add_worker(snapshot, last_heartbeat_ms=NOW_MS + 3_600_000)

    removed, watch, decisions = swept(snapshot)

    assert removed == []
    assert NoteHeartbeat("w1", NOW_MS) in decisions
    assert watch.watch.previous_sweep_ms == NOW_MS


def test_a_dead_worker_goes_one_lease_after_the_clock_was_set_back_and_not_an_hour() -> None:
    snapshot = situation()
    # The coordinator had resumed just before the clock was set back by an hour.
    snapshot.watch = SweepState(
        previous_sweep_ms=NOW_MS + 3_600_000, resumed_at_ms=NOW_MS + 3_599_000
    )
    add_worker(snapshot, last_heartbeat_ms=NOW_MS + 3_600_000)
    removed: list[str] = []
    sweeps = 0

    while not removed and sweeps < 100:
        removed, watch, decisions = swept(snapshot)
        for note in decisions:
            if isinstance(note, NoteHeartbeat):
                worker = snapshot.workers[note.worker_id]
                snapshot.workers[note.worker_id] = msgspec.structs.replace(
                    worker, last_heartbeat_ms=note.at_ms
                )
        snapshot.watch = watch.watch
        snapshot.now_ms += SWEEP_INTERVAL_MS
        sweeps += 1

    assert removed == ["w1"]
    assert sweeps <= LEASE_MS // SWEEP_INTERVAL_MS + 2


def test_one_task_of_each_kind_ends_as_it_should_when_its_worker_is_gone() -> None:
    snapshot = situation()
    snapshot.watch = JUST_SWEPT
    worker = add_worker(snapshot, last_heartbeat_ms=0)
    add_running(snapshot, 1, worker=worker, attempt=1)
    add_running(snapshot, 2, worker=worker, attempt=3)

    _, _, decisions = swept(snapshot)

    assert endings(decisions) == [(TaskId(1), Ending.LOST)]
    assert [one.id for one in decisions if isinstance(one, FinishTask)] == [2]


# --- who owns a worker --------------------------------------------------------------------------

OF_MAIL = Caller(name="mail", scopes=(Scope.WORKER,), queues=("mail",), services=())
ROTATED = Caller(name="mail-2", scopes=(Scope.WORKER,), queues=("mail",), services=())
OF_MORE = Caller(name="more", scopes=(Scope.WORKER,), queues=("film", "mail"), services=())
OF_FILM = Caller(name="film", scopes=(Scope.WORKER,), queues=("film",), services=())
OF_ID = Caller(name="id", scopes=(Scope.WORKER,), worker_id="w1")
UNBOUND = Caller(name="any", scopes=(Scope.WORKER,))
OWNERS = (OF_MAIL, OF_MORE, OF_FILM, OF_ID, UNBOUND)


def is_refused(snapshot: Situation, event: TaskCommand) -> bool:
    try:
        reduce(snapshot, event)
    except Forbidden:
        return True
    return False


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("other", [*OWNERS, ROTATED, LOCAL])
def test_a_worker_id_belongs_to_the_binding_that_registered_it(
    owner: Caller, other: Caller
) -> None:
    snapshot = situation()
    snapshot.next_incarnation = 7
    reduce(snapshot, register(by=owner))
    is_own = other.binding == owner.binding or other is LOCAL

    events: list[TaskCommand] = [
        BeatWorker(worker_id="w1", incarnation=7, by=other),
        LeaseWork(worker_id="w1", incarnation=7, most=1, by=other),
        ReportResults(worker_id="w1", incarnation=7, results=[], by=other),
        ReportProgress(worker_id="w1", incarnation=7, items=[], by=other),
        ReportLogs(worker_id="w1", incarnation=7, items=[], by=other),
        register(incarnation=7, by=other),
        register(by=other),
        LeaveWorker(worker_id="w1", by=other),
    ]

    assert [is_refused(snapshot, event) for event in events] == [not is_own] * len(events)
    assert ("w1" in snapshot.workers) is not is_own


def test_who_may_not_speak_for_a_worker_is_not_told_its_incarnation() -> None:
    snapshot = situation()
    add_worker(snapshot, owner=OF_MAIL.binding)

    with pytest.raises(Forbidden) as refused:
        reduce(snapshot, BeatWorker(worker_id="w1", incarnation=99, by=OF_FILM))

    assert refused.value.facts == {"worker_id": "w1"}


@pytest.mark.parametrize(
    ("caller", "is_own"),
    [(OF_MAIL, True), (OF_MORE, True), (OF_FILM, False), (OF_ID, True), (UNBOUND, True)],
)
def test_a_worker_from_before_owners_were_kept_is_judged_by_its_queues(
    caller: Caller, *, is_own: bool
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot, queues=("mail",))
    assert worker.owner is None

    beat = BeatWorker(worker_id="w1", incarnation=worker.incarnation, by=caller)
    assert is_refused(snapshot, beat) is not is_own
    assert snapshot.workers["w1"].owner is None
    assert is_refused(snapshot, register(queues=("mail",), by=caller)) is not is_own
    assert snapshot.workers["w1"].owner == (caller.binding if is_own else None)


def test_a_worker_of_all_queues_from_before_owners_were_kept_is_no_bound_tokens() -> None:
    snapshot = situation()
    add_worker(snapshot)

    assert is_refused(snapshot, register(queues=("mail",), by=OF_MAIL))
