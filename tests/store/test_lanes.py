import threading
from itertools import permutations

import pytest

from rota.core import limits
from rota.core.tasks.model import Lane, NewTask, TaskState
from rota.errors import TooMany
from rota.store.database import Transaction
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks.lanes import Lanes
from tests.store.opened import NOW_MS, Opened


def test_each_distinct_wish_has_one_number(store: Opened) -> None:
    wishes = [
        ("default", "a", ()),
        ("default", "b", ()),
        ("other", "a", ()),
        ("default", "a", ("gpu",)),
    ]

    numbers = [store.lanes.number(store.tx, *wish) for wish in wishes]
    again = [store.lanes.number(store.tx, *wish) for wish in wishes]

    assert numbers == again == [1, 2, 3, 4]
    assert store.lanes.number_of(Lane("other", "a")) == 3


def test_the_order_and_repetition_of_capabilities_make_no_difference(store: Opened) -> None:
    numbers = {
        store.lanes.number(store.tx, "q", "n", (*order, order[0]))
        for order in permutations(["gpu", "big", "eu"])
    }

    assert numbers == {1}
    assert store.lanes.by_number[1].requires == ("big", "eu", "gpu")


def test_the_book_is_the_same_when_it_is_read_again(store: Opened) -> None:
    store.lanes.number(store.tx, "q ü", 'n,["', ("c\0d", "b"))
    store.lanes.number(store.tx, "q", "n", ())
    fresh = Lanes()

    fresh.load(store.tx)

    assert fresh.by_number == store.lanes.by_number
    assert fresh.number(store.tx, "q ü", 'n,["', ("b", "c\0d")) == 1


def test_lanes_of_a_transaction_that_was_rolled_back_are_gone_after_reading(
    database: SqliteDatabase,
) -> None:
    lanes = Lanes()
    database.write(lambda tx: lanes.number(tx, "q", "kept", ()))

    class Broken(Exception):  # noqa: N818 - a sign, not an error
        pass

    def body(tx: Transaction) -> None:
        lanes.number(tx, "q", "lost", ())
        raise Broken

    with pytest.raises(Broken):
        database.write(body)
    database.read(lanes.load)

    assert [lane.name for lane in lanes.by_number.values()] == ["kept"]
    assert database.write(lambda tx: lanes.number(tx, "q", "next", ())) == 2


def test_there_is_an_end_to_new_lanes_and_known_ones_go_on(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES", 2)
    store.add(1, name="a")
    store.add(2, name="b")

    with pytest.raises(TooMany, match="more than 2 distinct"):
        store.add(3, name="c")
    store.add(4, name="a")

    assert store.task(4).lane.name == "a"


def occupy(store: Opened) -> list[str]:
    """Lanes with a task in every state, and three without any; the names of the former."""
    names = ["queued", "unused", "leased", "finished", "idle", "later", "cancelled", "last"]
    for name in names:
        store.lanes.number(store.tx, "default", name, ())
    store.add(1, name="queued")
    store.add(2, name="leased")
    store.lease(2)
    store.add(3, name="finished")
    store.lease(3)
    store.finish(3)
    store.add(4, name="later", due_at_ms=NOW_MS + 1)
    store.add(5, name="cancelled")
    store.finish(5, was=TaskState.QUEUED, state=TaskState.CANCELLED)
    return ["queued", "leased", "finished", "later", "cancelled"]


def test_lanes_that_no_task_is_left_of_are_dropped_when_there_are_many(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = occupy(store)

    assert store.lanes.drop_unused_if_many(store.tx) == 0  # there is room
    monkeypatch.setattr(limits, "MAX_LANES", 14)
    assert store.lanes.drop_unused_if_many(store.tx) == 2

    kept = [lane.name for lane in store.lanes.current().values()]
    assert kept == [*used, "last"]
    assert [store.task(number).lane.name for number in range(1, 6)] == used


def test_a_number_of_a_lane_that_was_dropped_never_comes_again(store: Opened) -> None:
    occupy(store)
    before = dict(store.lanes.by_number)

    store.lanes.drop_unused(store.tx)
    added = [store.lanes.number(store.tx, "default", name, ()) for name in ("unused", "another")]

    assert store.lanes.number_of(Lane("default", "last")) == 9
    assert added == [10, 11]
    assert {number: store.lanes.by_number[number] for number in before} == before
    fresh = Lanes()
    fresh.load(store.tx)
    assert fresh.current() == store.lanes.current()


def test_a_book_that_others_have_dropped_lanes_from_is_read_again(store: Opened) -> None:
    used = occupy(store)
    other = Lanes()
    other.load(store.tx)

    store.lanes.drop_unused(store.tx)
    other.refresh(store.tx)

    assert [lane.name for lane in other.current().values()] == [*used, "last"]
    assert other.number(store.tx, "default", "unused", ()) == 10


def test_room_is_made_for_new_lanes_when_a_queue_has_its_share(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = occupy(store)
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 8)
    new = [NewTask(name="new")]

    room = store.lanes.room_for(store.tx, new, NOW_MS)

    assert room is not None
    assert room.by_queue == {"default": len(used) + 1}
    room.take({Lane("default", "new")})
    assert store.lanes.room_for(store.tx, [NewTask(name="queued")], NOW_MS) is None


def test_unused_lanes_are_not_looked_for_in_every_batch(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 2)
    new = [NewTask(name="new")]
    for name in ("a", "b"):
        store.lanes.number(store.tx, "default", name, ())
    store.add(1, name="a")
    store.add(2, name="b")
    store.lanes.room_for(store.tx, new, NOW_MS)
    for number in (1, 2):
        store.finish(number, was=TaskState.QUEUED, state=TaskState.CANCELLED)
    store.tasks.prune(NOW_MS + 1, 10)

    later_ms = NOW_MS + limits.LANE_SWEEP_INTERVAL_MS
    counts = []
    for now_ms in (later_ms - 1, later_ms):
        room = store.lanes.room_for(store.tx, new, now_ms)
        assert room is not None
        counts.append(room.total)

    assert counts == [2, 1]


def test_lanes_are_chosen_by_queue_and_name(store: Opened) -> None:
    for queue, name in (("q1", "a"), ("q1", "b"), ("q2", "a")):
        store.lanes.number(store.tx, queue, name, ())

    assert store.lanes.matching() == [1, 2, 3]
    assert store.lanes.matching(queue="q1") == [1, 2]
    assert store.lanes.matching(name="a") == [1, 3]
    assert store.lanes.matching(queue="q2", name="b") == []


def test_readers_may_look_while_the_writer_adds(store: Opened) -> None:
    problems: list[Exception] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            try:
                store.lanes.matching(queue="q")
            except RuntimeError as error:
                problems.append(error)
                return

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(2_000):
        store.lanes.number(store.tx, "q", f"n{number}", ())
    is_over.set()
    reader.join()

    assert problems == []
