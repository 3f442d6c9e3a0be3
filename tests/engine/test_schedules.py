"""Schedules on a running engine: each time fires once, and what happens when it cannot."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rota.core import limits
from rota.core.commands import CancelTasks, TaskFilter
from rota.core.ids import TaskId
from rota.core.schedules.commands import DeleteSchedule, FireSchedules, PutSchedule
from rota.core.schedules.model import encode_spec
from rota.core.tasks.model import NewTask, TaskError, TaskState
from rota.core.workflow.states import RunState
from rota.engine.duties import SCHEDULES
from rota.errors import Invalid, ScheduleNotFound, Unavailable
from tests.conftest import TurnedClock
from tests.engine.flows import Flows
from tests.engine.running import Engine, done, running
from tests.engine.scheduling import HOUR_MS, MINUTE_MS, START_MS, Schedules, run_of, spec_of
from tests.engine.virtual import in_virtual_time, let_pass

WAITS = "name: waits\ninitial_node: n\nnodes: {n: {wait_for: {event: go}}}\ntransitions: []\n"
NO_RETRY: dict[str, Any] = {"name": "work", "max_attempts": 1}
EVERYTHING = TaskFilter()
FAILED = {"ok": False, "error": TaskError(message="boom")}


@pytest.fixture
def schedules(engine: Engine) -> Schedules:
    return Schedules(engine)


# --- firing ---------------------------------------------------------------------------------------


async def test_a_schedule_submits_its_task_at_each_time_and_not_before(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow", task=NewTask(name="work", queue="mail", priority=3))

    await engine.turn(MINUTE_MS - 1)
    before = await schedules.outcomes()
    await engine.turn(1)
    await engine.turn(MINUTE_MS)

    assert before == []
    first, second = await schedules.firings()
    assert (first.nominal_ms, second.nominal_ms) == (START_MS + MINUTE_MS, START_MS + 2 * MINUTE_MS)
    assert first.fired_at_ms == START_MS + MINUTE_MS
    task = await engine.task(TaskId(first.id or 0))
    assert (task.lane.queue, task.priority, task.state) == ("mail", 3, TaskState.QUEUED)
    assert task.key == f"schedule:clean:{first.nominal_ms}"


async def test_a_firing_is_one_transaction(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(overlap="allow")
    engine.clock.turn(MINUTE_MS)
    engine.database.commits = 0

    await engine.execute(FireSchedules())

    assert engine.database.commits == 1
    assert await schedules.outcomes() == ["fired"]
    assert (await schedules.look()).record.state.next_nominal_ms == START_MS + 2 * MINUTE_MS


async def test_a_waiting_worker_gets_the_task_in_the_transaction_that_fires_it(
    engine: Engine, schedules: Schedules
) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    await schedules.put()
    call = await engine.parked(worker)
    engine.clock.turn(MINUTE_MS)

    await engine.execute(FireSchedules())

    (task,) = (await call).leases
    assert task.lane.name == "work"


async def test_a_schedule_starts_runs(engine: Engine, schedules: Schedules) -> None:
    flows = Flows(engine)
    await flows.put(WAITS)
    await schedules.put(run=run_of("waits", input={"a": 1}), with_times=True)

    await engine.turn(MINUTE_MS)

    (firing,) = await schedules.firings()
    assert firing.is_run
    run = await flows.record(firing.id or 0)
    times = {"scheduled_for_ms": START_MS + MINUTE_MS, "previous_success_ms": None}
    assert run.input == {"a": 1, **times}
    assert run.key == f"schedule:clean:{START_MS + MINUTE_MS}"


async def test_a_run_that_cannot_start_is_a_refused_firing(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(run=run_of("unknown"))

    await engine.turn(MINUTE_MS)

    (firing,) = await schedules.firings()
    assert firing.outcome == "refused"
    assert "'unknown' not found" in firing.reason
    assert (await schedules.look()).record.state.next_nominal_ms == START_MS + 2 * MINUTE_MS


async def test_many_schedules_fire_over_several_batches(
    engine: Engine, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.schedules.schedule_domain.SCHEDULES_PER_STEP", 3)
    monkeypatch.setattr("rota.engine.schedules.schedule_domain.FIRED_PER_STEP", 2)
    for number in range(8):
        await schedules.put(f"s{number}")

    await engine.turn(MINUTE_MS)

    assert [await schedules.nominals(f"s{number}") for number in range(8)] == [[1]] * 8


async def test_the_history_keeps_the_newest_firings(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(every_ms=1_000, overlap="allow", missed="all")
    most = limits.MAX_KEPT_FIRINGS

    await engine.turn((most + 50) * 1_000)

    firings = await schedules.firings()
    assert [one.number for one in firings] == list(range(51, most + 51))
    assert firings[-1].nominal_ms == START_MS + (most + 50) * 1_000


async def test_a_schedule_ends_after_its_last_time_and_its_last_firing(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put("twice", overlap="allow", max_firings=2)
    await schedules.put("short", overlap="allow", ends_at_ms=START_MS + 2 * MINUTE_MS)

    for _ in range(4):
        await engine.turn(MINUTE_MS)

    assert await schedules.nominals("twice") == [1, 2]
    assert await schedules.nominals("short") == [1]
    assert (await schedules.look("twice")).record.state.next_nominal_ms is None


async def test_the_payload_gets_its_times_where_asked(engine: Engine, schedules: Schedules) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    payload = Raw(b'{"to": 1e999, "scheduled_for_ms": 7}')
    await schedules.put(with_times=True, task=NewTask(name="work", payload=payload))

    await engine.turn(MINUTE_MS)
    first = await schedules.lease(worker)
    await engine.report(worker, done(first))
    await engine.turn(MINUTE_MS)
    second = await schedules.lease(worker)

    assert first.payload == (
        b'{"to": 1e999, "scheduled_for_ms": 7,"scheduled_for_ms":1800000060000,'
        b'"previous_success_ms":null}'
    )
    assert b'"previous_success_ms":1800000060000' in second.payload


# --- missed times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("last", [60]), ("skip", []), ("all", list(range(1, 61)))],
)
async def test_times_that_passed_unseen_fire_as_the_schedule_says(
    engine: Engine, schedules: Schedules, missed: Any, fired: list[int]
) -> None:
    await schedules.put(missed=missed, overlap="allow")

    # A little late, so that the last time was missed, too.
    await engine.turn(60 * MINUTE_MS + limits.SCHEDULE_ON_TIME_MS + 1)

    assert await schedules.nominals() == fired
    await engine.turn(MINUTE_MS - limits.SCHEDULE_ON_TIME_MS - 1)
    assert (await schedules.nominals())[-1] == 61


async def test_times_that_are_too_old_are_skipped_under_every_policy(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put("last", missed="last", catch_up_ms=60_000, every_ms=HOUR_MS)
    await schedules.put("all", missed="all", catch_up_ms=HOUR_MS, every_ms=HOUR_MS)

    await engine.turn(5 * HOUR_MS + 5 * MINUTE_MS)

    assert await schedules.outcomes("last") == ["skipped_missed"]
    (skipped,) = await schedules.firings("last")
    assert skipped.count == 5
    assert await schedules.nominals("all") == [300]


async def test_a_long_absence_is_passed_over_in_bounded_steps(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(every_ms=1_000)

    await engine.turn(30 * 24 * HOUR_MS)

    assert (await schedules.firings())[-1].nominal_ms == START_MS + 30 * 24 * HOUR_MS
    state = (await schedules.look()).record.state
    assert state.next_nominal_ms == START_MS + 30 * 24 * HOUR_MS + 1_000


async def test_a_clock_that_is_set_back_fires_nothing_again(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow")
    await engine.turn(3 * MINUTE_MS)

    await engine.turn(-2 * MINUTE_MS)
    await engine.turn(MINUTE_MS)
    await engine.turn(2 * MINUTE_MS)

    assert await schedules.nominals() == [3, 4]


# --- overlaps -------------------------------------------------------------------------------------


async def test_a_time_is_skipped_while_the_last_task_has_not_ended(
    engine: Engine, schedules: Schedules
) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    await schedules.put()

    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)
    await schedules.work_off(worker)
    await engine.turn(MINUTE_MS)

    assert await schedules.outcomes() == ["fired", "skipped_overlap", "fired"]


async def test_one_firing_waits_and_fires_as_soon_as_the_running_one_ends(
    engine: Engine, schedules: Schedules
) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    await schedules.put(overlap="queue_one")
    for _ in range(3):
        await engine.turn(MINUTE_MS)
    waiting = await schedules.outcomes()

    await schedules.work_off(worker)
    await engine.turn(1)

    assert waiting == ["fired", "queued", "dropped"]
    assert await schedules.outcomes() == ["fired", "fired", "dropped"]
    assert await schedules.nominals() == [1, 2]


async def test_all_firings_wait_in_order(engine: Engine, schedules: Schedules) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    await schedules.put(overlap="queue_all")
    for _ in range(4):
        await engine.turn(MINUTE_MS)

    ended = []
    for _ in range(4):
        ended.append(await schedules.work_off(worker))
        await engine.turn(1)

    assert ended == [1, 1, 1, 1]
    assert await schedules.nominals() == [1, 2, 3, 4]


async def test_a_running_task_is_cancelled_for_the_next_one(
    engine: Engine, schedules: Schedules
) -> None:
    worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
    await schedules.put(overlap="cancel_running")
    await engine.turn(MINUTE_MS)
    task = await schedules.lease(worker)

    await engine.turn(MINUTE_MS)

    assert (await engine.task(task.id)).state is TaskState.CANCELLED
    assert (await engine.beat(worker, [task.id])).cancel == (task.id,)
    assert await schedules.nominals() == [1, 2]


async def test_a_run_is_cancelled_for_the_next_one(engine: Engine, schedules: Schedules) -> None:
    flows = Flows(engine)
    await flows.put(WAITS)
    await schedules.put(run=run_of("waits"), overlap="cancel_running")

    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)

    first, second = await schedules.firings()
    assert await flows.state(first.id or 0) == RunState.CANCELLED
    assert await flows.state(second.id or 0) == RunState.RUNNING


async def test_a_firing_that_waits_for_a_run_fires_when_the_run_ends(
    engine: Engine, schedules: Schedules
) -> None:
    flows = Flows(engine)
    await flows.put(WAITS)
    await schedules.put(run=run_of("waits"), overlap="queue_one")
    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)

    await flows.signal((await schedules.firings())[0].id or 0, "go")
    await engine.turn(1)

    assert await schedules.nominals() == [1, 2]


async def test_a_waiting_firing_survives_a_restart(
    store_kind: str, tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        schedules = Schedules(engine)
        await schedules.put(overlap="queue_one")
        await engine.turn(MINUTE_MS)
        await engine.turn(MINUTE_MS)
        (fired, _) = await schedules.firings()

    async with running(tmp_path / "rota.db", clock) as engine:
        schedules = Schedules(engine)
        await engine.turn(1)
        still_waiting = await schedules.outcomes()
        await engine.execute(CancelTasks((TaskId(fired.id or 0),)))
        await engine.turn(1)

        assert still_waiting == ["fired", "queued"]
        assert await schedules.nominals() == [1, 2]


async def test_a_waiting_firing_is_looked_at_again_after_a_failed_commit(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="queue_one")
    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)
    fired = (await schedules.firings())[0]
    # The commit succeeds, but the coordinator does not learn of it.
    lost = Unavailable("the connection was lost")

    def lose() -> None:
        engine.database.on_commit = None
        raise lost

    engine.database.on_commit = lose
    with pytest.raises(Unavailable):
        await engine.execute(CancelTasks((TaskId(fired.id or 0),)))
    await engine.submit("other")
    await engine.turn(1)

    assert await schedules.nominals() == [1, 2]


# --- failures and pauses --------------------------------------------------------------------------


async def test_a_schedule_pauses_after_failures_in_a_row(
    engine: Engine, schedules: Schedules
) -> None:
    worker = await engine.register(heartbeat_interval_ms=24 * HOUR_MS)
    await schedules.put(pause_on_failure=2, task=NewTask(**NO_RETRY))
    results: list[dict[str, Any]] = [FAILED, {}, FAILED, FAILED]
    for result in results:
        await engine.turn(MINUTE_MS)
        await schedules.work_off(worker, **result)

    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)

    pause = (await schedules.look()).record.state.pause
    assert pause is not None
    assert pause.note == "2 failures in a row"
    assert await schedules.nominals() == [1, 2, 3, 4]
    await schedules.resume()
    await engine.turn(MINUTE_MS)
    assert await schedules.nominals() == [1, 2, 3, 4, 7]


async def test_times_during_a_pause_are_not_missed(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(missed="all", overlap="allow")
    await engine.turn(MINUTE_MS)

    paused = await schedules.pause(note="moving house")
    await engine.turn(10 * MINUTE_MS)
    await schedules.resume()
    await engine.turn(MINUTE_MS)

    assert paused.state.pause is not None
    assert paused.state.pause.note == "moving house"
    assert await schedules.nominals() == [1, 12]


async def test_a_waiting_firing_fires_after_the_pause(engine: Engine, schedules: Schedules) -> None:
    worker = await engine.register(heartbeat_interval_ms=24 * HOUR_MS)
    await schedules.put(overlap="queue_one")
    await engine.turn(MINUTE_MS)
    await engine.turn(MINUTE_MS)

    await schedules.pause()
    await schedules.work_off(worker)
    await engine.turn(1)
    during = await schedules.nominals()
    await schedules.resume()
    await engine.turn(1)

    assert (during, await schedules.nominals()) == ([1], [1, 2])


# --- on demand ------------------------------------------------------------------------------------


async def test_a_schedule_runs_on_demand_also_while_it_is_paused(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow")
    await schedules.pause()

    first, second = await schedules.run(), await schedules.run()

    assert (first.outcome, first.is_manual, first.nominal_ms) == ("fired", True, START_MS)
    assert first.id != second.id
    assert (await engine.task(TaskId(first.id or 0))).key == f"schedule:clean:run-{START_MS}-1"


async def test_a_firing_on_demand_follows_the_rule_for_overlaps(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put("skips")
    await schedules.put("waits", overlap="queue_one")

    outcomes = [(await schedules.run(name)).outcome for name in ("skips", "waits") * 2]

    assert outcomes == ["fired", "fired", "skipped_overlap", "queued"]


async def test_commands_of_one_batch_see_what_the_earlier_ones_fired(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put("task")
    await schedules.put("run", run=run_of("waits"))
    await Flows(engine).put(WAITS)
    engine.clock.turn(MINUTE_MS)

    for name in ("task", "run"):
        await asyncio.gather(
            schedules.run(name), engine.execute(FireSchedules()), schedules.run(name)
        )

    outcomes = [await schedules.outcomes(name) for name in ("task", "run")]
    assert [sorted(one) for one in outcomes] == [
        ["fired", "skipped_overlap", "skipped_overlap"]
    ] * 2


async def test_a_firing_on_demand_does_not_take_the_place_of_a_time(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow", max_firings=1)
    engine.clock.turn(MINUTE_MS)

    await schedules.run()
    await engine.turn(0)

    assert len(await schedules.nominals()) == 2


async def test_a_backfill_fires_times_that_have_passed_once(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow")
    await engine.turn(MINUTE_MS)
    from_ms, to_ms = START_MS - 3 * MINUTE_MS, START_MS + HOUR_MS

    counted = await schedules.backfill(from_ms, to_ms, is_dry_run=True)
    before = await schedules.nominals()
    filled = await schedules.backfill(from_ms, to_ms)

    # The time that is now does not count, and the minute at the start has no task yet.
    assert (counted, filled, before) == (4, 4, [1])
    assert sorted(set(await schedules.nominals())) == [-3, -2, -1, 0, 1]
    assert len({one.id for one in await schedules.firings()}) == 5


async def test_a_backfill_takes_a_bounded_range(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(every_ms=1_000)

    with pytest.raises(Invalid, match="more than 1000 times"):
        await schedules.backfill(START_MS - HOUR_MS, START_MS)


# --- changing -------------------------------------------------------------------------------------


async def test_a_change_of_the_task_keeps_the_times(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(every_ms=HOUR_MS)
    engine.clock.turn(HOUR_MS + 1)

    await schedules.put(every_ms=HOUR_MS, task=NewTask(name="other"))
    await engine.turn(0)

    (firing,) = await schedules.firings()
    assert (await engine.task(TaskId(firing.id or 0))).lane.name == "other"


async def test_changed_times_count_from_now_on(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(every_ms=HOUR_MS)
    engine.clock.turn(HOUR_MS + 1)

    await schedules.put(every_ms=2 * HOUR_MS)
    await engine.turn(0)

    assert await schedules.outcomes() == []


@pytest.mark.parametrize(
    "timing",
    [
        {"every_ms": None, "at_ms": (START_MS - 1,)},
        {"every_ms": None, "cron": "0 0 * 2 MON#5", "ends_at_ms": START_MS + HOUR_MS},
        {"ends_at_ms": START_MS},
        {"exclude": ("* * * * *",)},
    ],
)
async def test_a_schedule_without_a_time_in_the_future_is_refused(
    engine: Engine, schedules: Schedules, timing: Any
) -> None:
    with pytest.raises(Invalid, match="no time in the future"):
        await schedules.put(**timing)


async def test_a_deleted_schedule_is_gone_with_its_history(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow")
    await engine.turn(MINUTE_MS)
    await schedules.run()
    fired = {one.id for one in await schedules.firings()}

    await engine.execute(DeleteSchedule(name="clean"))
    await engine.turn(MINUTE_MS)

    assert await engine.coordinator.queries.schedules.by_name("clean") is None
    await schedules.put()
    assert await schedules.outcomes() == []
    assert (await schedules.run()).id not in fired
    with pytest.raises(ScheduleNotFound):
        await engine.execute(DeleteSchedule(name="other"))


async def test_a_schedule_whose_time_zone_is_gone_pauses_and_leaves_the_others_alone(
    engine: Engine, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schedules.put("far", every_ms=None, cron="* * * * *", timezone="Asia/Tokyo")
    await schedules.put("near")
    monkeypatch.setattr("rota.core.schedules.times._zone_names", lambda: frozenset({"UTC"}))

    await engine.turn(MINUTE_MS)

    pause = (await schedules.look("far")).record.state.pause
    assert pause is not None
    assert "Asia/Tokyo" in pause.note
    assert await schedules.nominals("near") == [1]


# --- restarts and failed commits ------------------------------------------------------------------


async def test_a_restart_goes_on_where_the_schedule_was(
    store_kind: str, tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        await Schedules(engine).put(missed="all", overlap="allow")
        await engine.turn(2 * MINUTE_MS)
    clock.turn(2 * MINUTE_MS)
    async with running(tmp_path / "rota.db", clock) as engine:
        await engine.turn(MINUTE_MS)

        assert await Schedules(engine).nominals() == [1, 2, 3, 4, 5]


async def test_a_failed_commit_fires_nothing_and_the_next_one_fires_once(
    engine: Engine, schedules: Schedules
) -> None:
    await schedules.put(overlap="allow")
    engine.clock.turn(MINUTE_MS)
    engine.database.commit_problem = OSError("no space left on device")
    with pytest.raises(Unavailable):
        await engine.execute(FireSchedules())
    engine.database.commit_problem = None
    during = await schedules.outcomes()

    await engine.turn(0)
    await engine.turn(0)

    assert (during, await schedules.nominals()) == ([], [1])
    assert len(await engine.coordinator.queries.tasks.page(EVERYTHING, limit=10)) == 1


async def test_a_commit_of_unknown_outcome_fires_once(engine: Engine, schedules: Schedules) -> None:
    await schedules.put(overlap="allow")
    engine.clock.turn(MINUTE_MS)

    def lose() -> None:
        engine.database.on_commit = None
        raise Unavailable("the connection was lost")

    engine.database.on_commit = lose
    with pytest.raises(Unavailable):
        await engine.execute(FireSchedules())
    await engine.turn(0)

    assert await schedules.nominals() == [1]
    assert len(await engine.coordinator.queries.tasks.page(EVERYTHING, limit=10)) == 1


# --- costs and timers -----------------------------------------------------------------------------


async def test_idle_schedules_cost_no_transaction(engine: Engine, schedules: Schedules) -> None:
    for number in range(20):
        await schedules.put(f"s{number}", every_ms=HOUR_MS)
    await engine.turn(1)
    engine.database.tries = 0

    await engine.coordinator.leading.duties._run(SCHEDULES)

    assert engine.database.tries == 0


def test_a_schedule_fires_in_the_millisecond_it_is_due() -> None:
    async def body(engine: Engine) -> list[int]:
        schedules = Schedules(engine)
        start_ms = engine.clock.now_ms()
        await schedules.put(every_ms=7_001, overlap="allow")
        await let_pass(30_000)
        return [one.fired_at_ms - one.nominal_ms for one in await schedules.firings()] + [start_ms]

    *late, _ = in_virtual_time(body)

    assert len(late) in {4, 5}
    assert max(late) <= 1


def test_a_waiting_firing_fires_at_the_end_it_waits_for() -> None:
    async def body(engine: Engine) -> int:
        schedules = Schedules(engine)
        worker = await engine.register(heartbeat_interval_ms=HOUR_MS)
        await schedules.put(every_ms=10_000, overlap="queue_one")
        (task,) = await engine.lease(worker, wait_ms=HOUR_MS)
        await let_pass(12_345)
        ended_ms = engine.clock.now_ms()
        await engine.report(worker, done(task))
        (again,) = await engine.lease(worker, wait_ms=HOUR_MS)
        assert again.started_at_ms is not None
        return again.started_at_ms - ended_ms

    assert in_virtual_time(body) <= 2


async def test_a_new_schedule_is_counted_once(engine: Engine, schedules: Schedules) -> None:
    documents = [encode_spec(spec_of(every_ms=HOUR_MS + n * 1_000)) for n in range(3)]
    for document in documents:
        await engine.execute(PutSchedule(name="one", document=document))

    assert len(engine.coordinator.leading.pipeline._held.schedules) == 1
