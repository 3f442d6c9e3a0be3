from rota.store.tasks.queues import LaneCounts
from tests.store.opened import NOW_MS, Opened, requeue


def test_a_queue_is_known_by_its_tasks_or_by_what_was_asked_of_it(store: Opened) -> None:
    store.history(1, queue="mail")
    store.queues.set_paused("film", paused=True, at_ms=NOW_MS)

    assert store.queues.known() == {"mail", "film"}


def test_a_queue_is_paused_until_it_is_resumed(store: Opened) -> None:
    store.queues.set_paused("mail", paused=True, at_ms=1)
    store.queues.set_paused("film", paused=True, at_ms=2)
    store.queues.set_paused("mail", paused=False, at_ms=3)

    assert store.queues.paused() == {"film"}


def test_figures_count_what_stands_in_each_lane(store: Opened) -> None:
    store.add(1, name="a")
    store.add(2, name="a")
    store.running(3, name="a")
    store.add(4, name="b", due_at_ms=NOW_MS + 5)
    store.history(5, name="c")

    assert store.queues.lane_counts() == {
        1: LaneCounts(queued=2, oldest_since_ms=NOW_MS, running=1),
        2: LaneCounts(scheduled=1),
    }


def test_a_task_is_as_old_as_its_waiting(store: Opened) -> None:
    lease = store.running()
    store.tasks.requeue([requeue(lease)], now_ms=NOW_MS + 50)

    assert store.queues.lane_counts()[1].oldest_since_ms == NOW_MS + 50
