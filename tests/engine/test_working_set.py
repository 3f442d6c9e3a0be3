"""What the writer holds in memory is what the store has, whatever became of the commits."""

import asyncio
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import CancelTasks, TaskCommand
from rota.core.decisions import NoteQuality, PutWorker, RemoveWorker
from rota.core.tasks.model import NewTask, TaskState
from rota.core.workers.circuit_breaker import CLOSED_BREAKER
from rota.core.workers.model import WorkerRecord
from rota.core.workers.statistics import EMPTY
from rota.engine.working_set import held_workers
from rota.engine.working_set.held_workers import HeldWorkers
from rota.errors import RotaError, Unavailable
from tests.conftest import TurnedClock
from tests.core.model import Model
from tests.core.random_commands import HAPPENINGS, Happening, event_of
from tests.engine.holding import check_working_set, reading_ahead, small_windows
from tests.engine.running import Engine, WatchedDatabase, ask, done, running

LOST = Unavailable("the connection was lost in the commit: the outcome is unknown")


class Fate(Enum):
    """What becomes of a commit."""

    DONE = auto()
    FAILED = auto()
    UNKNOWN_AND_FAILED = auto()
    UNKNOWN_AND_DONE = auto()


def decree(database: WatchedDatabase, fate: Fate) -> None:
    """Let the next commits go this way."""

    def lose() -> None:
        raise LOST

    database.commit_problem, database.on_commit = None, None
    match fate:
        case Fate.DONE:
            pass
        case Fate.FAILED:
            database.commit_problem = OSError("disk")
        case Fate.UNKNOWN_AND_FAILED:
            database.commit_problem = LOST
        case Fate.UNKNOWN_AND_DONE:
            database.on_commit = lose


# --- after any commit ---------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.lists(HAPPENINGS, min_size=1, max_size=4),
        st.sampled_from([*Fate, Fate.DONE, Fate.DONE]),
        st.sampled_from([0, 20, 1_000, 16_000]),
    ),
    min_size=1,
    max_size=8,
)


async def play(steps: list[tuple[list[Happening], Fate, int]]) -> None:
    """Let things happen whose commits fail now and then; the model knows only what was kept."""
    clock = TurnedClock()
    model = Model(clock.now_ms())
    async with running(":memory:", clock, dice=lambda: 0.5) as engine:
        model.watch = engine.coordinator.leading.pipeline._state.watch
        for happenings, fate, pause_ms in [([("register", 0, 2, 0)], Fate.DONE, 0), *steps]:
            events = [event_of(model, happening) for happening in happenings]
            asking: list[TaskCommand] = [ask(worker) for worker in model.workers.values()]
            decree(engine.database, fate)
            known = [event for event in events if event is not None]
            for batch_of in (known, asking):
                await asyncio.gather(
                    *(engine.execute(event) for event in batch_of), return_exceptions=True
                )
            decree(engine.database, Fate.DONE)
            await engine.execute(CancelTasks(()))  # loads again, after a failure
            check_working_set(engine.coordinator)
            if fate in {Fate.DONE, Fate.UNKNOWN_AND_DONE}:
                for event in known:
                    model.handle([event])
                model.handle(asking)
                model.deal()
            model.now_ms += pause_ms
            clock.turn(pause_ms)


@pytest.mark.slow
@given(STEPS)
def test_it_is_what_the_store_has_after_any_batches_and_failures(
    steps: list[tuple[list[Happening], Fate, int]],
) -> None:
    asyncio.run(play(steps))


@pytest.mark.slow
@given(STEPS)
def test_small_windows_are_what_the_store_has_after_any_batches_and_failures(
    steps: list[tuple[list[Happening], Fate, int]],
) -> None:
    with small_windows(), reading_ahead():
        asyncio.run(play(steps))


@pytest.mark.parametrize("fate", [one for one in Fate if one is not Fate.DONE])
async def test_a_commit_that_may_have_failed_is_looked_up_before_the_next_batch(
    engine: Engine, fate: Fate
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    decree(engine.database, fate)
    with pytest.raises(RotaError):
        await engine.report(worker, done(task))

    decree(engine.database, Fate.DONE)
    again = await engine.report(worker, done(task))

    is_done = fate is Fate.UNKNOWN_AND_DONE
    assert again == ["duplicate" if is_done else "accepted"]
    assert (await engine.task(task_id)).state is TaskState.SUCCEEDED
    check_working_set(engine.coordinator)


# --- workers ------------------------------------------------------------------------------------


def worker(worker_id: str, incarnation: int = 1, **changes: Any) -> WorkerRecord:
    fields = {"node_id": "n", "last_heartbeat_ms": 0, "started_at_ms": 0, **changes}
    return WorkerRecord(id=worker_id, incarnation=incarnation, **fields)


def test_the_silent_are_told_from_those_that_beat_as_they_said() -> None:
    held = HeldWorkers()
    for number, (worker_id, heard_ms, interval_ms) in enumerate(
        [
            ("lively", 9_000, 1_000),
            ("slow", 1_000, 5_000),
            ("silent", 7_999, 1_000),
            ("quick", 9_799, 100),
            ("ahead", 10_001, 1_000),  # the clock was set back
        ]
    ):
        times = {"last_heartbeat_ms": heard_ms, "heartbeat_interval_ms": interval_ms}
        held.note_put([PutWorker(worker(worker_id, number, **times))])

    silent = held.silent(now_ms=10_000, intervals=2.0, also={"lively", "nobody"})

    assert silent.keys() == {"silent", "quick", "ahead", "lively"}
    assert held.silent(now_ms=10_000, intervals=100.0, also=()).keys() == {"ahead"}


async def test_qualities_beyond_the_limit_are_read_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_workers, "MOST_QUALITIES", 2)
    workers = [await engine.register(f"w{number}") for number in range(4)]
    for name in ("a", "b"):
        for one in workers:
            await engine.submit_all([NewTask(name=name)])
            (task,) = await engine.lease(one)
            assert await engine.report(one, done(task)) == ["accepted"]

    held = engine.coordinator.leading.pipeline._held.workers
    assert sum(map(len, held.qualities.values())) <= 3
    for one in workers:
        stored = await engine.coordinator.queries.workers.by_id(one.id)
        assert stored is not None
        assert {
            name: quality.statistics.tasks_completed for name, quality in stored.qualities.items()
        } == {"a": 1, "b": 1}


def test_a_worker_that_is_removed_takes_its_qualities_along() -> None:
    held = HeldWorkers()
    held.note_put([PutWorker(worker("w1")), PutWorker(worker("w2", 2))])
    held.note_qualities([NoteQuality(one, "a", EMPTY, CLOSED_BREAKER) for one in ("w1", "w2")])

    held.note_removed([RemoveWorker("w1", 1, "left"), RemoveWorker("w2", 1, "left")])

    assert held.by_id.keys() == {"w2"}
    assert held.qualities == {}
    assert held._quality_count == 0


async def test_two_lease_calls_of_one_worker_in_a_batch_load_its_qualities_once(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        worker = await engine.register()
        await engine.submit("x", "x", "x")
        (task,) = await engine.lease(worker, 1)
        await engine.report(worker, done(task))

    async with running(tmp_path / "rota.db", clock) as engine:
        other = await engine.register("other")
        calls = [engine.lease(one, 1) for one in (worker, worker, other)]
        await asyncio.gather(*calls)

        check_working_set(engine.coordinator)
