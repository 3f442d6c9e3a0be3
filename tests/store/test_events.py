from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rota.core.events import EVERYTHING, Event, EventFilter, LoggedEvent, PruneEvents
from rota.store.database import Transaction
from rota.store.events import Bounds, EventStore
from rota.store.sqlite.database import SqliteDatabase
from tests.store.opened import NOW_MS

T = TypeVar("T")
ALL = 1_000


def told(subject: str, kind: str = "task-submitted") -> Event:
    return Event(type=kind, subject=subject, data={"queue": "default"})


@pytest.fixture
def log(database: SqliteDatabase) -> SqliteDatabase:
    """Six notices, a minute apart."""

    def body(tx: Transaction) -> None:
        notices = EventStore(tx)
        for seq in range(6):
            kind = "task-failed" if seq % 2 else "task-submitted"
            notice = told(f"{'ab'[seq // 3]}{seq}", kind)
            notices.add([notice], after=seq, at_ms=NOW_MS + seq * 60_000)

    database.write(body)
    return database


def ask(database: SqliteDatabase, question: Callable[[EventStore], T]) -> T:
    return database.write(lambda tx: question(EventStore(tx)))


def seqs(found: list[LoggedEvent]) -> list[int]:
    return [one.seq for one in found]


def prune(database: SqliteDatabase, *, before_ms: int = 0, most: int = ALL, step: int = ALL) -> int:
    event = PruneEvents(before_ms=before_ms, most=most)
    return ask(database, lambda notices: notices.prune(event, step=step))


# --- adding and reading -------------------------------------------------------------------------


def test_a_notice_is_read_as_it_was_written(database: SqliteDatabase) -> None:
    notice = Event(type="task-failed", subject="a\x00b", data={"error": {"type": "ü"}, "n": [1]})

    ask(database, lambda notices: notices.add([notice], after=41, at_ms=NOW_MS))

    found = ask(database, lambda log: log.after(EVERYTHING, after=0, until=ALL, limit=ALL))
    assert found == [
        LoggedEvent(
            seq=42, at_ms=NOW_MS, type=notice.type, subject=notice.subject, data=notice.data
        )
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EVERYTHING, [1, 2, 3, 4, 5, 6]),
        (EventFilter(types=frozenset({"task-failed"})), [2, 4, 6]),
        (EventFilter(types=frozenset({"task-failed", "task-submitted"})), [1, 2, 3, 4, 5, 6]),
        (EventFilter(types=frozenset({"run-failed"})), []),
        (EventFilter(subject="b3"), [4]),
        (EventFilter(prefix="a"), [1, 2, 3]),
        (EventFilter(types=frozenset({"task-failed"}), prefix="b"), [4, 6]),
    ],
)
def test_a_filter_is_held_against_each_notice(
    log: SqliteDatabase, wanted: EventFilter, expected: list[int]
) -> None:
    up = ask(log, lambda notices: notices.after(wanted, after=0, until=ALL, limit=ALL))
    down = ask(log, lambda notices: notices.newest(wanted, after=0, until=ALL, limit=ALL))

    assert seqs(up) == expected
    assert seqs(down) == expected[::-1]


def test_a_part_of_the_log_is_read_in_either_direction(log: SqliteDatabase) -> None:
    up = ask(log, lambda notices: notices.after(EVERYTHING, after=1, until=5, limit=3))
    down = ask(log, lambda notices: notices.newest(EVERYTHING, after=1, until=5, limit=3))

    assert seqs(up) == [2, 3, 4]
    assert seqs(down) == [5, 4, 3]


def test_a_number_can_not_be_given_twice(log: SqliteDatabase) -> None:
    with pytest.raises(AssertionError, match="constraint"):
        ask(log, lambda notices: notices.add([told("again")], after=5, at_ms=NOW_MS))


# --- bounds and forgetting ----------------------------------------------------------------------


def test_an_empty_log_begins_with_one(database: SqliteDatabase) -> None:
    assert ask(database, EventStore.bounds) == Bounds(oldest_seq=1, last_seq=0)


def test_what_is_past_its_time_is_forgotten(log: SqliteDatabase) -> None:
    assert prune(log, before_ms=NOW_MS + 120_000) == 2
    assert ask(log, EventStore.bounds) == Bounds(oldest_seq=3, last_seq=6)


def test_no_more_are_kept_than_may_be_however_young(log: SqliteDatabase) -> None:
    assert prune(log, most=2) == 4
    assert ask(log, EventStore.bounds) == Bounds(oldest_seq=5, last_seq=6)


def test_forgetting_goes_in_steps(log: SqliteDatabase) -> None:
    counts = [prune(log, most=1, step=2) for _ in range(4)]

    assert counts == [2, 2, 1, 0]


def test_nothing_is_forgotten_before_its_time(log: SqliteDatabase) -> None:
    assert prune(log, before_ms=NOW_MS) == 0
    assert ask(log, EventStore.bounds) == Bounds(oldest_seq=1, last_seq=6)


def test_numbers_go_on_when_everything_is_forgotten_and_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    first = SqliteDatabase(path)
    ask(first, lambda log: log.add([told("a"), told("b")], after=0, at_ms=NOW_MS))
    prune(first, before_ms=NOW_MS + 1)
    first.close()

    second = SqliteDatabase(path)
    bounds = ask(second, EventStore.bounds)
    second.close()

    assert bounds == Bounds(oldest_seq=3, last_seq=2)
