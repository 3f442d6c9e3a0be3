from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.locks import LockState, LockStatus, LockWaiter
from rota.store.locks import LockStore
from rota.store.sqlite.database import SqliteDatabase
from tests.store.opened import NOW_MS, Opened, in_memory
from tests.store.test_plans import Steps

UNTIL_MS = NOW_MS + 1_000


def waiter(ticket: int, **changes: Any) -> LockWaiter:
    fields: dict[str, Any] = {
        "asked": ticket + 1,
        "owner": f"w{ticket}",
        "ttl_ms": 10,
        "until_ms": UNTIL_MS,
    }
    return LockWaiter(ticket=ticket, **{**fields, **changes})


def held(name: str = "door", **changes: Any) -> LockState:
    fields: dict[str, Any] = {
        "owner": "ann",
        "fence": 7,
        "asked": 6,
        "ttl_ms": 30_000,
        "expires_at_ms": NOW_MS + 30_000,
    }
    return LockState(name=name, **{**fields, **changes})


@pytest.fixture
def locks(store: Opened) -> LockStore:
    return LockStore(store.tx)


def put(locks: LockStore, *many: LockState) -> None:
    for lock in many:
        locks.put(lock, before=locks.get(lock.name), places={})


# --- a lock and its line ------------------------------------------------------------------------


def test_a_lock_that_nobody_knows_is_free(locks: LockStore) -> None:
    assert locks.get("door") == LockState(name="door")


def test_a_lock_comes_back_with_its_line_in_order(locks: LockStore) -> None:
    lock = held(waiters=(waiter(3), waiter(5), waiter(12)))

    put(locks, lock, held("other", waiters=(waiter(4),)))

    assert locks.get("door") == lock


def test_what_has_changed_is_written(locks: LockStore) -> None:
    put(locks, held(waiters=(waiter(3), waiter(5), waiter(12))))
    changed = held(
        owner="w3",
        fence=13,
        asked=4,
        ttl_ms=10,
        expires_at_ms=NOW_MS + 10,
        waiters=(waiter(5, asked=14, ttl_ms=99, until_ms=UNTIL_MS + 9), waiter(12), waiter(15)),
    )

    put(locks, changed)

    assert locks.get("door") == changed


def test_a_lock_that_nobody_has_or_waits_for_leaves_nothing(
    locks: LockStore, store: Opened
) -> None:
    put(locks, held(waiters=(waiter(3),)))

    put(locks, LockState(name="door", fence=7))

    assert locks.get("door") == LockState(name="door")
    assert store.rows("SELECT * FROM lock") == store.rows("SELECT * FROM lock_waiter") == []


def test_a_free_lock_with_kept_places_stays(locks: LockStore) -> None:
    free = held(owner=None, waiters=(waiter(3),), expires_at_ms=UNTIL_MS + 5_000)

    put(locks, free)

    assert locks.get("door") == free


def test_after_a_restart_nobody_is_in_line_and_owners_are_what_they_were(locks: LockStore) -> None:
    put(locks, held(waiters=(waiter(3),)), held("other", waiters=(waiter(4),)))

    locks.delete_waiters()

    assert [locks.get(name) for name in ("door", "other")] == [held(), held("other")]


Line = st.lists(st.integers(1, 9), unique=True, max_size=6).map(sorted)


@given(st.lists(st.tuples(Line, st.integers(0, 3)), max_size=5))
def test_any_line_that_is_put_is_the_line_that_comes_back(
    lines: list[tuple[list[int], int]],
) -> None:
    with in_memory() as store:
        locks = LockStore(store.tx)
        for tickets, asked in lines:
            lock = held(waiters=tuple(waiter(one, asked=asked) for one in tickets))
            put(locks, lock)
            assert locks.get("door") == lock


@pytest.mark.only("sqlite")  # whose steps are counted
def test_a_change_in_a_long_line_costs_what_has_changed(
    locks: LockStore, database: SqliteDatabase
) -> None:
    costs = []
    for length in (10, 1_000):
        line = tuple(waiter(one) for one in range(length))
        put(locks, held(waiters=line))
        before = locks.get("door")
        after = held(waiters=(*line[1:], waiter(length)))
        with Steps(database) as steps:
            locks.put(after, before=before, places={})
        costs.append(steps.count)
        put(locks, LockState(name="door"))

    assert costs[1] <= 1.1 * costs[0]


# --- time ---------------------------------------------------------------------------------------


def test_locks_whose_time_is_over_are_found_oldest_first(locks: LockStore) -> None:
    put(
        locks,
        held("now", expires_at_ms=NOW_MS),
        held("before", expires_at_ms=NOW_MS - 1, waiters=(waiter(3),)),
        held("free", owner=None, expires_at_ms=NOW_MS - 2, waiters=(waiter(4),)),
        held("later"),
    )

    assert locks.expired(NOW_MS, 9) == ["free", "before", "now"]
    assert locks.expired(NOW_MS, 1) == ["free"]
    assert locks.expired(NOW_MS - 3, 9) == []


def test_the_next_moment_is_the_earliest_of_all(locks: LockStore) -> None:
    assert locks.next_expiry_ms() is None

    put(locks, held("b", expires_at_ms=NOW_MS + 2), held("a", expires_at_ms=NOW_MS + 1))

    assert locks.next_expiry_ms() == NOW_MS + 1


# --- looking ------------------------------------------------------------------------------------


def test_a_look_tells_who_has_it_and_how_many_are_there(locks: LockStore) -> None:
    put(locks, held(waiters=(waiter(3), waiter(5, until_ms=NOW_MS), waiter(12))))

    assert locks.status("door", now_ms=NOW_MS) == LockStatus(
        name="door", owner="ann", fence=7, expires_at_ms=NOW_MS + 30_000, waiting=2
    )


def test_a_lock_whose_time_is_over_looks_free(locks: LockStore) -> None:
    put(
        locks,
        held(expires_at_ms=NOW_MS),
        held("free", owner=None, expires_at_ms=NOW_MS + 9, waiters=(waiter(4),)),
    )

    assert locks.status("door", now_ms=NOW_MS) == LockStatus(name="door")
    assert locks.status("free", now_ms=NOW_MS) == LockStatus(name="free")
    assert locks.status("never", now_ms=NOW_MS) == LockStatus(name="never")
    assert locks.page(after="", now_ms=NOW_MS, limit=9) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 99])
def test_locks_are_listed_in_the_order_of_names_page_by_page(locks: LockStore, limit: int) -> None:
    names = ["%", "A", "[x]", "a", "a/b", "a_b", "b\0c", "é", "日本", "\U0010ffff"]
    put(locks, *(held(name) for name in reversed(names)))

    listed: list[str] = []
    while page := locks.page(after=listed[-1] if listed else "", now_ms=NOW_MS, limit=limit):
        assert len(page) <= limit
        listed += [one.name for one in page]

    assert listed == names
