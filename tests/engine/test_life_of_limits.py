"""Limits through any order of what may happen to tasks, workers and the coordinator."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.commands import CancelTasks, PruneHistory, RetryTasks
from rota.core.flows.commands import ChangeSettings, PutLimit, QueueChange
from rota.core.flows.model import Concurrency, Rate
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.core.workers.model import WorkerRecord
from tests.engine.holding import check_working_set, small_windows
from tests.engine.limiting import failed, fleet
from tests.engine.running import Engine, done, running

KEYS = ("a", "b")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": st.lists(
            st.builds(
                Concurrency,
                key=st.sampled_from(KEYS),
                limit=st.just(1),
                hold=st.sampled_from(["attempt", "task"]),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda one: one.key,
        ),
        "rate": st.builds(Rate, key=st.just("r"), limit=st.just(2), per_ms=st.just(1_000)),
        "fair_key": st.sampled_from(["x", "y"]),
        "priority": st.integers(0, 1),
        "name": st.sampled_from(["work", "other"]),
        "delay_ms": st.sampled_from([None, 700]),
    },
)
SETTINGS = st.sampled_from(
    [
        QueueChange(aging_ms=1_000),
        QueueChange(aging_ms=None),
        QueueChange(fairness="time"),
        QueueChange(max_running=3),
        QueueChange(max_running=None, fairness="tasks"),
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.lists(OPTIONS, min_size=1, max_size=4)),
        st.tuples(st.just("lease"), st.integers(1, 4)),
        st.tuples(st.just("done"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.integers(0, 5)),
        st.tuples(st.just("snooze"), st.integers(0, 5)),
        st.tuples(st.just("limited"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("retry"), st.integers(0, 9)),
        st.tuples(st.just("beat"), st.just(0)),
        st.tuples(st.just("turn"), st.sampled_from([100, 700])),
        st.tuples(st.just("limit"), st.integers(0, 2)),
        st.tuples(st.just("settings"), SETTINGS),
        st.tuples(st.just("reload"), st.just(0)),
        st.tuples(st.just("prune"), st.just(0)),
    ),
    max_size=25,
)


class Crowd:
    """One worker that runs what it gets, and checks at the handler who else is in the slot."""

    def __init__(self, engine: Engine, worker: WorkerRecord) -> None:
        self.engine = engine
        self.worker = worker
        self.running: dict[TaskId, TaskRecord] = {}
        self.ids: list[TaskId] = []

    async def take(self, step: str, argument: Any) -> None:
        if step in {"done", "fail", "snooze", "limited"}:
            await self._end(step, argument)
        else:
            await self._act(step, argument)

    async def _end(self, step: str, index: int) -> None:
        if index >= len(self.running):
            return
        task = self.running.pop([*self.running][index])
        results = {
            "done": done(task),
            "fail": failed(task),
            "snooze": done(task, snooze_ms=300),
            "limited": done(task, snooze_ms=300, rate_limited=True),
        }
        await self.engine.report(self.worker, results[step])

    async def _act(self, step: str, argument: Any) -> None:
        engine, worker = self.engine, self.worker
        if step == "submit":
            tasks = [NewTask(**{"name": "work", **options}) for options in argument]
            self.ids += await engine.submit_all(tasks)
        elif step == "lease":
            for task in await engine.lease(worker, argument):
                self.running[task.id] = task
        elif step in {"cancel", "retry"} and argument < len(self.ids):
            kind = CancelTasks if step == "cancel" else RetryTasks
            await engine.execute(kind((self.ids[argument],)))
        elif step == "beat":
            told = await engine.beat(worker, [*self.running])
            for task_id in {*told.cancel, *told.lost} & self.running.keys():
                del self.running[task_id]
            await engine.beat(worker, [*self.running])
        elif step == "turn":
            await engine.turn(argument)
        elif step == "limit":
            await engine.execute(PutLimit(key="a", limit=max(1, argument)))
        elif step == "settings":
            await engine.execute(ChangeSettings(queue="default", change=argument))
        else:
            await self._maintain(step)

    async def _maintain(self, step: str) -> None:
        if step == "prune":
            await self.engine.execute(PruneHistory(0))
        elif step == "reload":
            self.engine.coordinator.leading.pipeline._held._is_certain = False

    def check(self) -> None:
        held = self.engine.coordinator.leading.pipeline._held
        for key in KEYS:
            inside = [
                one
                for one in self.running.values()
                if any(slot.key == key for slot in _listed(one.options.concurrency))
            ]
            assert len(inside) <= 2, "no limit was ever higher"
            assert held.flows.limits.running.get(key, 0) >= len(inside), "every handler is counted"


def _listed(given: Any) -> list[Concurrency]:
    return given if isinstance(given, list) else []


@pytest.mark.only("sqlite")
@settings(deadline=None)
@given(steps=STEPS, windows=st.sampled_from([small_windows, nullcontext]))
async def test_limits_hold_and_nothing_is_left_behind(
    steps: list[tuple[str, Any]], windows: Callable[[], AbstractContextManager[None]]
) -> None:
    with windows():
        async with running(":memory:") as engine:
            crowd = Crowd(engine, await fleet(engine))
            for step, argument in steps:
                await crowd.take(step, argument)
                crowd.check()
                check_working_set(engine.coordinator)
            await _drain(crowd)
            left = [await engine.task(one) for one in crowd.ids]
            assert {one.state for one in left} <= {
                TaskState.SUCCEEDED,
                TaskState.CANCELLED,
                TaskState.FAILED,
            }


async def _drain(crowd: Crowd) -> None:
    """Let everything finish; bounded, so that a task that is stuck fails the test."""
    for _ in range(200):
        await crowd.take("beat", 0)
        for task in [*crowd.running.values()]:
            await crowd.take("done", [*crowd.running].index(task.id))
        await crowd.take("turn", 60_000)
        await crowd.take("lease", 100)
        if not crowd.running:
            return
