"""History on PostgreSQL: a table a day, dropped as a whole when all of it is past its time."""

import pytest

from rota.core.ids import COUNTER_BITS
from rota.core.tasks.model import TaskState
from tests.store.opened import Opened

pytestmark = pytest.mark.only("postgres")

DAY_MS = 24 * 3600 * 1000
TODAY_MS = 20_000 * DAY_MS  # a midnight
MOST = 3


def id_at(at_ms: int, number: int = 0) -> int:
    return (at_ms << COUNTER_BITS) + number


def prepare(store: Opened, now_ms: int = TODAY_MS) -> None:
    """Let there be tables, as the duty does."""
    assert store.tasks.prune(0, MOST, now_ms=now_ms) == []


def tables(store: Opened) -> list[int]:
    return [first for (first,) in store.rows("SELECT first_id FROM history_stretch ORDER BY 1")]


def in_tables(store: Opened) -> int:
    ((count,),) = store.rows(
        "SELECT count(*) FROM history WHERE tableoid <> 'history_other'::regclass"
    )
    return int(count)


def ended(store: Opened, *at_ms: int, **options: object) -> list[int]:
    """Tasks that were accepted and ended then."""
    ids = [id_at(one, number) for number, one in enumerate(at_ms)]
    for number, one in zip(ids, at_ms, strict=True):
        store.history(number, TaskState.SUCCEEDED, finished_at_ms=one, **options)
    return ids


def test_there_is_a_table_for_today_and_one_for_tomorrow(store: Opened) -> None:
    for _ in range(2):
        prepare(store)

    assert tables(store) == [id_at(TODAY_MS), id_at(TODAY_MS + DAY_MS)]


def test_tasks_stand_in_the_table_of_their_day(store: Opened) -> None:
    prepare(store)

    ids = ended(store, TODAY_MS, TODAY_MS + DAY_MS)
    ended(store, 1, 2)

    assert in_tables(store) == 2
    assert {store.task(one).state for one in ids} == {TaskState.SUCCEEDED}


def test_a_day_that_is_over_is_dropped_with_all_that_stands_beside_its_tasks(
    store: Opened,
) -> None:
    prepare(store)
    ended(store, *range(TODAY_MS, TODAY_MS + 7), labels=["l"])
    store.history(id_at(TODAY_MS, 90), key="k", finished_at_ms=TODAY_MS)
    later = TODAY_MS + 10 * DAY_MS

    steps = [store.tasks.prune(later - DAY_MS, MOST, now_ms=later) for _ in range(4)]

    assert [len(step) for step in steps] == [3, 3, 2, 0]
    assert id_at(TODAY_MS) not in tables(store)
    assert store.rows("SELECT * FROM history") == []
    assert store.rows("SELECT * FROM task_label") == []
    assert store.rows("SELECT * FROM task_key") == []


def test_a_day_is_kept_while_one_of_its_tasks_is(store: Opened) -> None:
    prepare(store)
    ended(store, *range(TODAY_MS, TODAY_MS + 5))
    later = TODAY_MS + 10 * DAY_MS
    store.history(id_at(TODAY_MS, 90), finished_at_ms=later)

    gone = store.tasks.prune(later - DAY_MS, MOST, now_ms=later)

    # Too many to be deleted one by one, and their table is not past its time yet.
    assert gone == []
    assert id_at(TODAY_MS) in tables(store)


def test_a_few_tasks_past_their_time_go_at_once(store: Opened) -> None:
    prepare(store)
    ids = ended(store, TODAY_MS, TODAY_MS + 1)

    gone = store.tasks.prune(TODAY_MS + 1, MOST, now_ms=TODAY_MS + 2)

    assert gone == ids[:1]


def test_a_day_whose_tasks_stand_elsewhere_gets_no_table(store: Opened) -> None:
    ids = ended(store, *range(TODAY_MS, TODAY_MS + 5))

    prepare(store)
    gone = [store.tasks.prune(TODAY_MS + 10, MOST, now_ms=TODAY_MS + 11) for _ in range(2)]

    assert tables(store) == [id_at(TODAY_MS + DAY_MS)]
    assert sorted(gone[0] + gone[1]) == ids


def test_what_ends_after_its_day_was_dropped_is_kept_and_forgotten_all_the_same(
    store: Opened,
) -> None:
    prepare(store)
    late = id_at(TODAY_MS, 5)
    store.running(late)
    later = TODAY_MS + 10 * DAY_MS
    store.tasks.prune(later - DAY_MS, MOST, now_ms=later)
    assert id_at(TODAY_MS) not in tables(store)

    store.finish(late, finished_at_ms=later)
    assert store.task(late).state is TaskState.SUCCEEDED
    gone = store.tasks.prune(later + 1, MOST, now_ms=later + 1)

    assert gone == [late]
