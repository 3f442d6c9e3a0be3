"""Schedules and their history in the store."""

from typing import Any

import pytest
from msgspec.structs import replace

from rota.core import limits
from rota.core.decisions import AddTask, FinishTask
from rota.core.ids import TaskId
from rota.core.schedules.firing import FiredEnd
from rota.core.schedules.model import (
    FiredItem,
    Firing,
    SchedulePause,
    ScheduleRecord,
    ScheduleSpec,
    ScheduleState,
    WaitingFiring,
    encode_spec,
)
from rota.core.tasks.model import NewTask, TaskState
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RunState
from rota.store.schedules import ScheduleAlarm, ScheduleStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore
from tests.store.opened import NOW_MS, Opened

MOST = limits.MAX_KEPT_FIRINGS


def schedule(name: str = "clean", queue: str = "mail", **state: Any) -> ScheduleRecord:
    spec = ScheduleSpec(every_ms=1_000, task=NewTask(name="work", queue=queue))
    fields: dict[str, Any] = {"created_at_ms": 1, "updated_at_ms": 2, "next_nominal_ms": 3, **state}
    return ScheduleRecord(name=name, document=encode_spec(spec), state=ScheduleState(**fields))


def firing(number: int) -> Firing:
    return Firing(number=number, nominal_ms=number, fired_at_ms=number, outcome="fired", id=number)


@pytest.fixture
def schedules(store: Opened) -> ScheduleStore:
    return ScheduleStore(store.tx)


def test_a_schedule_comes_back_as_it_was_put(schedules: ScheduleStore) -> None:
    whole = schedule(
        firings=4,
        last_number=5,
        open=(FiredItem(2**62, 7, is_run=True),),
        waiting=(WaitingFiring(8, 9, is_manual=True),),
        failures=1,
        previous_success_ms=2,
        pause=SchedulePause(at_ms=3, by="ann\0", note="n"),
        source="shop",
        code_hash="h",
        is_pinned=True,
        is_orphaned=True,
    )
    schedules.put(whole)

    assert schedules.by_names(["clean", "other"]) == {"clean": whole}


def test_alarms_say_what_has_to_be_looked_at_and_when(schedules: ScheduleStore) -> None:
    waiting = (WaitingFiring(1, 2),)
    pause = SchedulePause(at_ms=1)
    for one in (
        schedule("due", next_nominal_ms=7),
        schedule("over", next_nominal_ms=None),
        schedule("paused", pause=pause, waiting=waiting),
        schedule("waits", waiting=waiting),
    ):
        schedules.put(one)

    assert sorted(schedules.alarms()) == [
        ScheduleAlarm("due", 7, is_waiting=False),
        ScheduleAlarm("over", None, is_waiting=False),
        ScheduleAlarm("paused", None, is_waiting=False),
        ScheduleAlarm("waits", 3, is_waiting=True),
    ]


def test_states_advance_together_and_only_of_schedules_that_exist(
    schedules: ScheduleStore, store: Opened
) -> None:
    before = [schedule("a"), schedule("b"), schedule("c")]
    for one in before:
        schedules.put(one)
    after = [replace(one, state=replace(one.state, next_nominal_ms=9)) for one in before[:2]]

    schedules.advance(after)

    assert schedules.by_names("abc") == {one.name: one for one in [*after, before[2]]}


@pytest.mark.only("sqlite")  # PostgreSQL reports it in the commit
def test_the_state_of_a_schedule_that_is_gone_is_not_written(schedules: ScheduleStore) -> None:
    with pytest.raises(AssertionError, match=r"schedules\.advance changed 0 rows"):
        schedules.advance([schedule()])


def test_the_history_keeps_the_newest_rows(schedules: ScheduleStore) -> None:
    schedules.add_firings({"a": [firing(n) for n in range(1, MOST + 8)], "b": [firing(1)]})
    schedules.add_firings({"a": [firing(MOST + 8), replace(firing(MOST + 7), id=1)]})

    found = schedules.firings("a")

    assert [one.number for one in found] == list(range(MOST + 8, 8, -1))
    assert found[1].id == 1
    last = schedules.last_firings(["a", "b", "c"])
    assert {name: one.number for name, one in last.items()} == {"a": MOST + 8, "b": 1}


def test_a_deleted_schedule_leaves_nothing(schedules: ScheduleStore) -> None:
    schedules.put(schedule("a"))
    schedules.put(schedule("b"))
    schedules.add_firings({"a": [firing(1)], "b": [firing(1)]})

    schedules.delete("a")

    assert schedules.by_names("ab").keys() == {"b"}
    assert (schedules.firings("a"), len(schedules.firings("b"))) == ([], 1)


def test_pages_go_by_name_and_by_queue(schedules: ScheduleStore) -> None:
    for name, queue in (("a", "x"), ("b", "y"), ("c", "z"), ("d", "x")):
        schedules.put(schedule(name, queue))

    def page(queues: list[str] | None, after: str, limit: int) -> list[str]:
        return [one.name for one in schedules.page(queues=queues, after=after, limit=limit)]

    assert page(None, "", 3) == ["a", "b", "c"]
    assert page(None, "b", 3) == ["c", "d"]
    assert page(["x", "y"], "", 2) == ["a", "b"]
    assert page(["x", "y"], "b", 9) == ["d"]
    assert page([], "", 9) == []


def test_the_schedules_of_an_app_are_found(schedules: ScheduleStore) -> None:
    schedules.put(schedule("b", source="shop"))
    schedules.put(schedule("a", source="shop"))
    schedules.put(schedule("c", source="other"))
    schedules.put(schedule("d"))

    assert schedules.of_source("shop") == ["a", "b"]


def test_the_ends_of_what_was_fired_are_found(store: Opened, schedules: ScheduleStore) -> None:
    lanes = Lanes()
    tasks = TaskStore(store.tx, lanes)
    tasks.add([AddTask(TaskId(n), NewTask(name="work"), NOW_MS) for n in (1, 2, 3, 4)])
    states = {2: TaskState.SUCCEEDED, 3: TaskState.FAILED, 4: TaskState.CANCELLED}
    tasks.finish(
        [
            FinishTask(TaskId(n), TaskState.QUEUED, state, 0, 0, finished_at_ms=NOW_MS + n)
            for n, state in states.items()
        ]
    )
    runs = RunStore(store.tx)
    for number in (11, 12, 13):
        record = RunRecord(
            id=number, workflow="w", version=1, state=RunState.RUNNING, input={}, created_at_ms=1
        )
        runs.add(record)
    for number, state in ((12, RunState.COMPLETED), (13, RunState.TIMED_OUT)):
        runs.set_state(number, state, context={}, output=None, error=None, finished_at_ms=NOW_MS)
    runs.flush()
    items = [FiredItem(n, 0) for n in (1, 2, 3, 4, 5)]
    items += [FiredItem(n, 0, is_run=True) for n in (11, 12, 13, 14)]

    assert schedules.ends(items) == {
        2: FiredEnd(is_success=True, at_ms=NOW_MS + 2),
        3: FiredEnd(is_success=False, at_ms=NOW_MS + 3),
        4: FiredEnd(is_success=None, at_ms=NOW_MS + 4),
        5: FiredEnd(is_success=None),
        12: FiredEnd(is_success=True, at_ms=NOW_MS),
        13: FiredEnd(is_success=False, at_ms=NOW_MS),
        14: FiredEnd(is_success=None),
    }
