"""The windows over the heads of the lanes: what enters them, what leaves, and what is read."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core.commands import CancelTasks, StartJob
from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask
from rota.engine.working_set import lane_windows
from rota.engine.working_set.lane_windows import LaneWindow, LaneWindows
from rota.store.tasks import row_types
from rota.store.tasks.row_types import QueuedPlace
from tests.engine.flows import Flows
from tests.engine.graphs import CHILD
from tests.engine.holding import check_working_set, reading_ahead, small_windows
from tests.engine.running import Engine
from tests.engine.test_statements import reads_of
from tests.store.opened import NOW_MS, Opened, in_memory

QUEUED = st.lists(st.tuples(st.integers(1, 6), st.integers(-2, 2)), max_size=40)
KNOWN = st.sampled_from(["noted", "loaded"])


@contextmanager
def opened() -> Iterator[Opened]:
    """A store with six lanes."""
    with in_memory() as store:
        for number in range(1, 7):
            store.lanes.number(store.tx, "default", f"lane {number}", ())
        yield store


def add(store: Opened, windows: LaneWindows, number: int, **options: int) -> None:
    fields = {"name": "lane 1", **options}
    added = [AddTask(TaskId(number), NewTask(**fields), NOW_MS)]  # type: ignore[arg-type]
    store.tasks.add(added)
    windows.note_added(added)


def claim(store: Opened, windows: LaneWindows, most: int) -> list[int]:
    """Take the next tasks out of the first lane."""
    head = windows.head(store.tx, [1], most)
    for task in head:
        store.lease(task.id)
    windows.note_left(head)
    return [task.id for task in head]


# --- order --------------------------------------------------------------------------------------


@given(QUEUED, st.sets(st.integers(1, 6), min_size=1), st.integers(1, 50), KNOWN)
def test_the_head_over_many_lanes_is_what_sorting_all_of_them_would_give(
    queued: list[tuple[int, int]], wanted: set[int], most: int, known: str
) -> None:
    with opened() as store, small_windows():
        windows = LaneWindows(store.lanes)
        for number, (lane, priority) in enumerate(queued, start=1):
            added = [AddTask(TaskId(number), NewTask(name=f"lane {lane}", priority=priority), 0)]
            store.tasks.add(added)
            windows.note_added(added)
        if known == "loaded":
            windows = LaneWindows.load(store.tx, store.lanes)

        head = windows.head(store.tx, sorted(wanted), most)

        everything = [(-priority, n, lane) for n, (lane, priority) in enumerate(queued, start=1)]
        expected = sorted(row for row in everything if row[2] in wanted)[:most]
        assert [task.id for task in head] == [number for _, number, _ in expected]
        assert head == [store.task(task.id) for task in head]


# --- tasks that enter later ---------------------------------------------------------------------


def test_a_task_that_is_noted_alone_is_there_when_the_windows_are_asked() -> None:
    with opened() as store:
        windows = LaneWindows(store.lanes)
        add(store, windows, 1)
        add(store, windows, 2, priority=5)

        assert (windows.place_count, windows.task_count) == (0, 2)
        assert windows.open_lanes() == [1]
        assert (windows.place_count, windows.task_count) == (2, 2)
        assert claim(store, windows, 100) == [2, 1]


def test_only_a_few_tasks_enter_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_LATER", 3)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        counts = []
        for number in range(1, 6):
            add(store, windows, number)
            counts.append(windows.place_count)

        assert counts == [0, 0, 3, 3, 3]
        assert claim(store, windows, 100) == [1, 2, 3, 4, 5]


def test_tasks_that_are_noted_together_come_after_those_that_enter_later() -> None:
    with opened() as store:
        windows = LaneWindows(store.lanes)
        add(store, windows, 1)
        together = [AddTask(TaskId(number), NewTask(name="lane 1"), 0) for number in (2, 3)]
        store.tasks.add(together)
        windows.note_added(together)

        assert windows.place_count == 3
        assert claim(store, windows, 100) == [1, 2, 3]


def test_a_large_task_enters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_LATER_BYTES", 0)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        add(store, windows, 1)

        assert windows.place_count == 1


# --- the bound ----------------------------------------------------------------------------------


def test_a_window_that_grows_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 3)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        add(store, windows, 1)
        for number in range(2, 7):
            add(store, windows, number, priority=number)
        whole = windows.by_lane[1].bound
        add(store, windows, 7, priority=7)
        window = windows.by_lane[1]

        assert whole is None
        assert [*window.places] == [(-7, 7), (-6, 6), (-5, 5)]
        assert window.bound == (-5, 5)
        assert (windows.place_count, len(window.tasks)) == (3, 3)
        assert claim(store, windows, 100) == [7, 6, 5, 4, 3, 2, 1]


def test_a_task_that_comes_last_does_not_enter_a_full_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PER_LANE", 3)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number in range(1, 4):
            add(store, windows, number)
        whole = windows.by_lane[1].bound
        add(store, windows, 4)
        window = windows.by_lane[1]

        assert whole is None
        assert [*window.places] == [(0, 1), (0, 2), (0, 3)]
        assert window.bound == (0, 3)
        assert (windows.place_count, len(window.tasks)) == (3, 3)
        assert claim(store, windows, 100) == [1, 2, 3, 4]


def test_a_task_enters_a_cut_window_only_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 3)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number in range(1, 8):
            add(store, windows, number)
        add(store, windows, 8)
        add(store, windows, 9, priority=-1)
        add(store, windows, 10, priority=1)

        assert [*windows.by_lane[1].places] == [(-1, 10), (0, 1), (0, 2), (0, 3)]
        assert claim(store, windows, 100) == [10, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert windows.by_lane == {}


def test_a_window_is_filled_from_its_bound_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PER_READ", 2)
    with opened() as store:
        for number in range(1, 6):
            store.add(number, name="lane 1")
        windows = LaneWindows.load(store.tx, store.lanes)
        bounds = []
        for _ in range(5):
            claim(store, windows, 1)
            bounds.append(windows.by_lane[1].bound if windows.by_lane else None)

        assert bounds == [(0, 2), (0, 2), (0, 4), (0, 4), None]


def test_a_task_behind_the_bound_leaves_the_store_and_not_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 2)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number in range(1, 7):
            add(store, windows, number)
        far = store.task(6)
        store.finish(6)
        windows.note_left([far])

        assert claim(store, windows, 100) == [1, 2, 3, 4, 5]


def test_a_task_that_should_be_in_the_window_and_is_not_is_an_error() -> None:
    window = LaneWindow()
    window.places.append((0, TaskId(1)))

    with pytest.raises(AssertionError):
        window.remove([(0, TaskId(2))])


def test_many_lanes_share_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 12)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number in range(240):
            add(store, windows, number + 1, name=f"lane {1 + number % 6}")  # type: ignore[arg-type]

        assert {len(one.places) for one in windows.by_lane.values()} <= {2, 3, 4}
        assert windows.place_count <= 2 * 12 + 6


def test_a_large_payload_is_read_when_its_task_is_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PAYLOAD_BYTES", 10)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number, size in ((1, 10), (2, 11)):
            task = NewTask(name="lane 1", payload=Raw(b"1" * size))
            store.tasks.add([AddTask(TaskId(number), task, NOW_MS)])
            windows.note_added([AddTask(TaskId(number), task, NOW_MS)])
        held = set(windows.by_lane[1].tasks)

        assert held == {1}
        assert [len(task.payload) for task in windows.head(store.tx, [1], 5)] == [10, 11]


def test_tasks_that_have_come_back_are_held_within_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PAYLOAD_BYTES", 10)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        sizes = {1: 11, 2: 10, 3: 11, 4: 10}
        for number, size in sizes.items():
            task = NewTask(name="lane 1", payload=Raw(b"1" * size))
            store.tasks.add([AddTask(TaskId(number), task, NOW_MS)])
            windows.note_queued([QueuedPlace(1, 0, TaskId(number))])

        (first,) = windows.head(store.tx, [1], 1)

        window = windows.by_lane[1]
        assert len(first.payload) == 11
        assert set(window.tasks) == {2, 4}
        assert windows.held_bytes == 2 * (lane_windows.RECORD_BYTES + 10)
        assert window.unread == {1}
        assert claim(store, windows, 4) == [1, 2, 3, 4]
        assert windows.held_bytes == 0


def test_no_task_is_read_ahead_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_BYTES", lane_windows.RECORD_BYTES)
    with opened() as store:
        windows = LaneWindows(store.lanes)
        for number in (1, 2, 3):
            store.tasks.add([AddTask(TaskId(number), NewTask(name="lane 1"), NOW_MS)])
            windows.note_queued([QueuedPlace(1, 0, TaskId(number))])

        windows.head(store.tx, [1], 1)

        assert windows.by_lane[1].tasks == {}
        assert windows.by_lane[1].unread == {1, 2, 3}


# --- what travels with a commit -------------------------------------------------------------------


def batch(store: Opened, windows: LaneWindows, most: int) -> list[int]:
    """Take tasks in a batch that reads ahead and is committed."""
    claimed = claim(store, windows, most)
    windows.read_ahead_of_commit(store.tx)
    windows.commit()
    return claimed


def test_a_steady_drain_finds_its_tasks_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PER_READ", 1)
    with opened() as store, reading_ahead():
        for number in range(1, 31):
            store.add(number, name="lane 1")
        windows = LaneWindows.load(store.tx, store.lanes)
        claimed = batch(store, windows, 4) + batch(store, windows, 1)

        for most in (4, 1, 4, 1, 4):
            assert not windows.is_dry(1, most - 1)
            claimed += batch(store, windows, most)

        assert claimed == [*range(1, 20)]


def test_a_task_that_was_noted_before_is_not_entered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PER_READ", 2)
    with opened() as store, reading_ahead():
        store.add(1, name="lane 1")
        store.add(2, name="lane 1")
        windows = LaneWindows.load(store.tx, store.lanes)
        claimed = claim(store, windows, 2)
        add(store, windows, 3)  # it enters its window later, and the read finds it as well
        windows.read_ahead_of_commit(store.tx)
        windows.commit()

        assert [task_id for _, task_id in windows.by_lane[1].places] == [3]
        assert claimed + batch(store, windows, 9) == [1, 2, 3]


def test_what_an_uncommitted_batch_has_read_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PER_READ", 2)
    with opened() as store, reading_ahead():
        for number in range(1, 9):
            store.add(number, name="lane 1")
        windows = LaneWindows.load(store.tx, store.lanes)
        claim(store, windows, 2)

        windows.read_ahead_of_commit(store.tx)

        assert not windows.by_lane[1].places


def test_few_lanes_at_once_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_windows, "MOST_AHEAD", 1)
    with opened() as store, reading_ahead():
        for number in range(1, 9):
            store.add(number, name=f"lane {number % 2 + 1}")
        windows = LaneWindows.load(store.tx, store.lanes)
        monkeypatch.setattr(lane_windows, "MOST_PER_READ", 1)
        for lane in (1, 2):
            windows.note_left(windows.head(store.tx, [lane], 2))

        with reads_of() as reads:
            windows.read_ahead_of_commit(store.tx)

        assert reads == []


# --- in the engine ------------------------------------------------------------------------------


async def test_many_queued_tasks_take_no_more_room_than_the_windows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 50)
    monkeypatch.setattr(lane_windows, "MOST_BYTES", 20_000)
    for _ in range(8):
        await engine.submit_all([NewTask(name=name) for name in "abc"] * 50)

    windows = engine.coordinator.leading.pipeline._held.windows

    assert windows.place_count <= 2 * 50 + 3
    assert windows.held_bytes <= 20_000


async def test_a_task_of_a_run_that_is_read_later_knows_its_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows were loaded when there was no run, and do not cover the run's task."""
    monkeypatch.setattr(lane_windows, "MOST_PER_LANE", 2)
    monkeypatch.setattr(lane_windows, "MOST_PER_READ", 2)
    await engine.submit(*["work"] * 5)
    run_id = await Flows(engine).start(CHILD)
    worker = await engine.register()

    leased = await engine.lease(worker)

    assert [task.run for task in leased] == [None] * 5 + [run_id]


async def test_jobs_and_cancellations_take_tasks_out_of_the_middle(engine: Engine) -> None:
    worker = await engine.register()
    ids = await engine.submit_all([NewTask(name="work")] * 6)
    await engine.execute(StartJob(task_id=ids[1], holder="me"))
    await engine.execute(CancelTasks((ids[3],)))
    check_working_set(engine.coordinator)

    assert [task.id for task in await engine.lease(worker)] == [ids[0], ids[2], ids[4], ids[5]]


async def test_a_window_that_is_wrong_is_noticed_and_loaded_again(engine: Engine) -> None:
    worker = await engine.register()
    ids = await engine.submit_all([NewTask(name="work")] * 3)
    window = engine.coordinator.leading.pipeline._held.windows.by_lane[1]
    del window.places[1]  # which must never happen

    leased = await engine.lease(worker)

    assert [task.id for task in leased] == ids
    assert "writer_state_was_wrong" in [line["event"] for line in engine.log]


@pytest.mark.only("postgres")  # on SQLite nothing is read ahead
async def test_a_batch_counts_once_though_what_it_has_read_ahead_cannot_be_decoded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_windows, "MOST_PLACES", 3)
    worker = await engine.register()
    ids = await engine.submit(*["work"] * 6, max_attempts=5)

    broken = patch.object(row_types, "decode_options", side_effect=ValueError("of a newer version"))
    with broken as decode:
        leased, others = await asyncio.gather(engine.lease(worker, 3), engine.submit("other"))

    assert decode.called
    assert [task.id for task in leased] == ids[:3]
    waiting = await engine.lease(worker)
    assert [task.id for task in waiting] == [*ids[3:], *others]
