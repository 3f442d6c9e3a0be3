"""What every database does for the stores, whichever it is."""

import threading
from array import array
from pathlib import Path

import pytest

from rota.store.database import Database, Transaction
from rota.store.tasks.queues import QueueStore
from tests.databases.schemas import open_store

TIMEOUT_S = 30.0


class Broken(Exception):  # noqa: N818 - a sign, not an error
    """What a body raises on purpose."""


def traces(database: Database) -> set[str]:
    return database.read(lambda tx: QueueStore(tx).known())


def leave(database: Database, name: str) -> None:
    database.write(lambda tx: QueueStore(tx).set_paused(name, paused=True, at_ms=1))


# --- transactions -------------------------------------------------------------------------------


def test_what_was_committed_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    first = open_store(path)
    leave(first, "kept")
    first.close()

    second = open_store(path)

    assert traces(second) == {"kept"}
    second.close()


def test_a_body_that_raises_leaves_nothing_and_the_next_one_works(
    database: Database,
) -> None:
    def body(tx: Transaction) -> None:
        QueueStore(tx).set_paused("lost", paused=True, at_ms=1)
        raise Broken

    with pytest.raises(Broken):
        database.write(body)
    leave(database, "kept")

    assert traces(database) == {"kept"}


def test_a_broken_constraint_is_our_mistake_and_not_the_disks(database: Database) -> None:
    def body(tx: Transaction) -> None:
        for _ in range(2):
            tx.execute("queues.add_lane", number=1, queue="q", name="n", requires="[]")

    with pytest.raises(AssertionError, match="constraint"):
        database.write(body)
    leave(database, "kept")

    assert traces(database) == {"kept"}


def test_readers_see_commits_and_nothing_before_them(database: Database) -> None:
    def body(tx: Transaction) -> set[str]:
        QueueStore(tx).set_paused("new", paused=True, at_ms=1)
        return traces(database)

    seen_meanwhile = database.write(body)

    assert seen_meanwhile == set()
    assert traces(database) == {"new"}


def test_a_reader_keeps_its_view_and_does_not_hold_up_the_writer(
    database: Database,
) -> None:
    leave(database, "before")

    def body(tx: Transaction) -> tuple[set[str], set[str]]:
        first = QueueStore(tx).known()
        leave(database, "meanwhile")
        return first, QueueStore(tx).known()

    first, second = database.read(body)

    assert first == second == {"before"}
    assert traces(database) == {"before", "meanwhile"}


def test_a_reader_that_raises_gives_its_connection_back(database: Database) -> None:
    def body(_tx: Transaction) -> None:
        raise Broken

    for _ in range(20):
        with pytest.raises(Broken):
            database.read(body)

    assert traces(database) == set()


def test_many_threads_may_read_at_once(database: Database) -> None:
    leave(database, "there")
    everybody = threading.Barrier(4)
    seen: list[set[str]] = []

    def body(tx: Transaction) -> None:
        everybody.wait(TIMEOUT_S)
        seen.append(QueueStore(tx).known())

    threads = [threading.Thread(target=database.read, args=(body,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)

    assert seen == [{"there"}] * 4


# --- sets of values -----------------------------------------------------------------------------


def test_an_empty_set_of_values_matches_nothing(database: Database) -> None:
    def body(tx: Transaction) -> None:
        QueueStore(tx).set_paused("there", paused=True, at_ms=1)
        for query in ("tasks.leases", "tasks.live", "tasks.finished", "workers.by_ids"):
            assert tx.rows(query, ids=[]) == []
        for query in ("tasks.drop_tasks", "tasks.drop_leases", "tasks.drop_history"):
            assert tx.execute(query, ids=[]) == 0
        assert tx.rows("tasks.count_queued", lanes=[]) == [(0,)]

    database.write(body)


def test_a_set_of_values_may_be_large(database: Database) -> None:
    numbers = list(range(2**62, 2**62 + 20_000))

    assert database.read(lambda tx: tx.rows("tasks.live", ids=numbers)) == []
    assert array("q", numbers)[-1] == numbers[-1]
