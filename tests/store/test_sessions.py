"""What is kept for sessions: which tasks they asked for, and of which ends they do not know."""

import pytest

from rota.core.ids import TaskId
from rota.core.sessions import SessionNotification
from rota.store.sessions import SessionStore
from tests.store.opened import Opened


@pytest.fixture
def sessions(store: Opened) -> SessionStore:
    return SessionStore(store.tx)


def news(seq: int, task: int, session: str = "s") -> SessionNotification:
    return SessionNotification(seq=seq, session_id=session, task_id=TaskId(task))


def test_a_task_may_be_asked_for_by_several_sessions(sessions: SessionStore) -> None:
    assert not sessions.has_tasks()

    sessions.add([(TaskId(1), "s"), (TaskId(1), "t"), (TaskId(2), "s"), (TaskId(1), "s")])

    assert sessions.has_tasks()
    assert sorted(sessions.of_tasks([1, 3])) == [(1, "s"), (1, "t")]


def test_news_are_kept_in_order_until_they_were_told(sessions: SessionStore) -> None:
    sessions.add([(TaskId(number), "s") for number in range(1, 5)])

    sessions.add_notifications([news(1, 3), news(2, 1), news(3, 2)], most=10)

    assert sessions.last_notification() == 3
    assert sessions.notifications("s", after=0, limit=2) == [news(1, 3), news(2, 1)]
    assert sessions.notifications("s", after=2, limit=2) == [news(3, 2)]
    sessions.drop_notifications([news(1, 3), news(3, 2)])
    assert sessions.notifications("s", after=0, limit=9) == [news(2, 1)]


def test_news_that_are_newer_than_what_was_told_stay(sessions: SessionStore) -> None:
    sessions.add([(TaskId(1), "s")])
    sessions.add_notifications([news(1, 1)], most=10)
    sessions.add_notifications([news(2, 1)], most=10)

    sessions.drop_notifications([news(1, 1)])

    assert sessions.notifications("s", after=0, limit=9) == [news(2, 1)]


def test_of_too_many_news_the_oldest_are_forgotten(sessions: SessionStore) -> None:
    sessions.add([(TaskId(number), one) for number in range(1, 6) for one in ("s", "t")])

    dropped = sessions.add_notifications([news(number, number) for number in range(1, 6)], most=3)
    sessions.add_notifications([news(6, 1, "t")], most=3)

    assert dropped == 2
    assert [one.seq for one in sessions.notifications("s", after=0, limit=9)] == [3, 4, 5]
    assert [one.seq for one in sessions.notifications("t", after=0, limit=9)] == [6]


def test_a_task_that_is_forgotten_is_no_news(sessions: SessionStore) -> None:
    sessions.add([(TaskId(1), "s"), (TaskId(2), "s")])
    sessions.add_notifications([news(1, 1), news(2, 2)], most=10)

    sessions.drop_tasks([1])

    assert sessions.notifications("s", after=0, limit=9) == [news(2, 2)]
