import threading
from itertools import permutations

import pytest

from rota.core.tasks import Lane
from rota.errors import TooMany
from rota.store import lanes as lanes_module
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.sqlite import SqliteDatabase
from tests.store.opened import Opened


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
