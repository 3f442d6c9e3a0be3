import threading
from itertools import permutations

import pytest

from rota.core.tasks import Lane, TaskState
from rota.errors import TooMany
from rota.store import lanes as lanes_module
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.sqlite import SqliteDatabase
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

    fresh.read(store.tx)

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
    database.read(lanes.read)

    assert [lane.name for lane in lanes.by_number.values()] == ["kept"]
    assert database.write(lambda tx: lanes.number(tx, "q", "next", ())) == 2


def test_there_is_an_end_to_new_lanes_and_known_ones_go_on(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "MAX_LANES", 2)
    store.add(1, name="a")
    store.add(2, name="b")

    with pytest.raises(TooMany, match="more than 2 distinct"):
        store.add(3, name="c")
    store.add(4, name="a")

    assert store.task(4).lane.name == "a"


def test_lanes_that_no_task_is_left_of_are_struck_out_when_there_are_many(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["queued", "unused", "leased", "finished", "later", "cancelled", "last"]
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

    assert store.lanes.strike_out(store.tx) == 0  # there is room
    monkeypatch.setattr(lanes_module, "MAX_LANES", 12)
    assert store.lanes.strike_out(store.tx) == 2

    kept = [lane.name for lane in store.lanes.by_number.values()]
    assert kept == ["queued", "leased", "finished", "later", "cancelled"]
    assert [store.task(number).lane.name for number in range(1, 6)] == kept
    assert store.lanes.number(store.tx, "default", "unused", ()) == 7
    fresh = Lanes()
    fresh.read(store.tx)
    assert fresh.by_number == store.lanes.by_number
    assert fresh.number(store.tx, "default", "another", ()) == 8


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
