"""Statements that are sent ahead: run in their order, and what is wrong with them is never lost."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from rota.errors import Unavailable
from rota.store.database import Row, Transaction
from rota.store.postgres.address import address_of
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.link import ConnectionLost
from rota.store.postgres.transaction import PostgresTransaction
from tests.databases.schemas import open_leading, schemas, url
from tests.store.test_postgres import eventually

pytestmark = pytest.mark.only("postgres")

ADD = "queues.add_lane"
LANES = "queues.lanes"
PATIENT_S = 10.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresDatabase]:
    address = address_of(url(), schemas.lend(str(tmp_path)))
    with closing(open_leading(address)) as opened:
        yield opened


def add(tx: Transaction, number: int) -> None:
    tx.pipeline(ADD, number=number, queue="q", name=f"n{number}", requires="[]")


def adding(*given: int) -> Callable[[Transaction], None]:
    def body(tx: Transaction) -> None:
        for number in given:
            add(tx, number)

    return body


def numbers(tx: Transaction) -> list[int]:
    return sorted(row[0] for row in tx.rows(LANES))


class Waits:
    """Counts how often the server was waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("_results", "_drain"):
            monkeypatch.setattr(
                PostgresConnection, name, self._counted(getattr(PostgresConnection, name))
            )

    def _counted(self, plainly: object) -> object:
        def counted(connection: PostgresConnection) -> object:
            self.count += bool(connection._pipelined) or "_results" in str(plainly)
            return plainly(connection)  # type: ignore[operator]  # a method of the connection's

        return counted


def test_what_was_sent_ahead_is_seen_by_whatever_comes_next(database: PostgresDatabase) -> None:
    def body(tx: Transaction) -> list[int]:
        add(tx, 1)
        add(tx, 2)
        found = numbers(tx)
        add(tx, 3)
        assert tx.execute("queues.drop_lanes", numbers=[2]) == 1
        add(tx, 4)
        return found

    assert database.write(body) == [1, 2]
    assert database.read(numbers) == [1, 3, 4]
    assert database.write(numbers) == [1, 3, 4]


def test_statements_that_nobody_waits_for_take_no_way_of_their_own(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):  # until the server has planned all of them
        database.write(adding(number))
    waits = Waits(monkeypatch)

    database.write(adding(*range(3, 10)))

    assert waits.count == 1  # for the end


def test_what_was_refused_is_raised_by_the_next_that_is_waited_for_and_nothing_is_changed(
    database: PostgresDatabase,
) -> None:
    def body(tx: Transaction) -> None:
        add(tx, 1)
        add(tx, 1)
        add(tx, 2)
        numbers(tx)

    with pytest.raises(AssertionError, match="constraint"):
        database.write(body)
    assert database.read(numbers) == []
    database.write(adding(1))
    assert database.read(numbers) == [1]


def test_what_was_refused_is_raised_by_the_commit_if_nothing_else_was_waited_for(
    database: PostgresDatabase,
) -> None:
    database.write(adding(1))

    def body(tx: Transaction) -> None:
        add(tx, 2)
        add(tx, 1)

    for _ in range(2):
        with pytest.raises(AssertionError, match="constraint"):
            database.write(body)
    assert database.read(numbers) == [1]


def test_a_body_that_breaks_off_takes_back_what_was_sent_ahead(database: PostgresDatabase) -> None:
    database.write(adding(1))

    def body(tx: Transaction) -> None:
        add(tx, 2)
        raise KeyError("ours")

    with pytest.raises(KeyError):
        database.write(body)

    assert database.read(numbers) == [1]
    database.write(adding(3))
    assert database.read(numbers) == [1, 3]


def test_a_connection_that_breaks_before_the_next_wait_has_changed_nothing(
    database: PostgresDatabase,
) -> None:
    database.write(adding(1))

    def body(tx: Transaction) -> None:
        add(tx, 2)
        assert database._writer is not None
        with psycopg.connect(url(), autocommit=True) as connection:
            number = database._writer.pgconn.backend_pid
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", [number])
        numbers(tx)

    with pytest.raises(Unavailable, match="nothing was changed"):
        database.write(body)
    database.write(adding(3))
    assert database.read(numbers) == [1, 3]


def test_a_connection_lost_while_it_goes_along_with_the_commit_leaves_the_outcome_unknown(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write(adding(1))
    plainly = PostgresConnection.finish

    def lost(connection: PostgresConnection, text: bytes) -> object:
        plainly(connection, text)
        raise ConnectionLost("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "finish", lost)
        with pytest.raises(Unavailable, match=r"not known whether .* same key"):
            database.write(adding(2))

    assert eventually(lambda: database._problem is None)
    assert database.read(numbers) == [1, 2]


def test_behind_a_pooler_each_statement_is_waited_for(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database._writer is not None
    database._writer.is_direct = False
    waits = Waits(monkeypatch)

    database.write(adding(1, 2, 3))

    assert waits.count == 5
    assert database.read(numbers) == [1, 2, 3]


def test_a_server_that_does_not_answer_to_what_was_sent_ahead_ends_the_wait() -> None:
    connection = PostgresConnection(address_of(url()).url, name="test", limit_ms=100)
    connection.run(b"SELECT pg_sleep(0)", (), ())
    connection.script(b"BEGIN")
    connection._limit_s = 0.05
    connection.send(b"SELECT pg_sleep(60)", (), ())

    with pytest.raises(ConnectionLost, match="does not answer"):
        connection.script(b"COMMIT")
    assert not connection.is_open


def test_a_body_that_reads_takes_one_way_more(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Transaction) -> None:
        add(tx, 1)
        numbers(tx)
        add(tx, 2)

    waits = Waits(monkeypatch)

    database.write(body)

    assert waits.count == 2


def test_a_body_without_statements_asks_once_whether_it_still_leads(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)

    database.write(lambda _: None)

    assert waits.count == 1


def test_what_a_refused_pipeline_did_not_prepare_is_prepared_again(
    database: PostgresDatabase,
) -> None:
    database.write(adding(1))

    def body(tx: Transaction) -> None:
        add(tx, 1)
        tx.pipeline("queues.drop_lanes", numbers=[1])

    with pytest.raises(AssertionError, match="constraint"):
        database.write(body)
    database.write(lambda tx: tx.pipeline("queues.drop_lanes", numbers=[1]))

    assert database.read(numbers) == []


def test_a_large_write_does_not_get_stuck(database: PostgresDatabase) -> None:
    """More than both sides can buffer, so neither may wait for the other before it reads."""
    entry = {"version": 1, "updated_at_ms": 1, "expires_at_ms": None, "owner": None}

    def body(tx: Transaction) -> None:
        for number in range(50):
            tx.pipeline("kv.put", key=str(number), value=os.urandom(1_000_000), **entry)

    database.write(body)

    assert database.read(lambda tx: tx.rows("kv.usage")) == [(None, 50, 50_000_000)]


def test_a_statement_that_has_to_change_so_many_rows_breaks_the_write_off_if_it_does_not(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write(adding(1, 2))

    def dropping(expected: int) -> Callable[[Transaction], None]:
        def body(tx: Transaction) -> None:
            add(tx, 3)
            tx.pipeline_exactly(expected, "queues.drop_lanes", numbers=[1, 2])

        return body

    with pytest.raises(AssertionError, match="changed 2 rows, not 1"):
        database.write(dropping(1))
    assert database.read(numbers) == [1, 2]
    waits = Waits(monkeypatch)
    database.write(dropping(2))
    assert waits.count == 1
    assert database.read(numbers) == [3]


def test_a_server_that_ends_the_connection_before_the_commit_ran_has_changed_nothing(
    database: PostgresDatabase,
) -> None:
    """All travels together, so the server says with which statement it stopped."""
    database.write(adding(1))

    def body(tx: Transaction) -> None:
        add(tx, 2)
        assert isinstance(tx, PostgresTransaction)
        tx._connection.send(b"SELECT pg_terminate_backend(pg_backend_pid())", (), ())
        add(tx, 3)

    with pytest.raises(Unavailable, match="nothing was changed"):
        database.write(body)
    database.write(adding(4))

    assert database.read(numbers) == [1, 4]


# --- reads that go along with the commit ----------------------------------------------------------


def reading_ahead(taken: list[list[int]], *added: int) -> Callable[[Transaction], None]:
    """Add lanes around a read that nobody waits for."""

    def body(tx: Transaction) -> None:
        first, *others = added
        add(tx, first)
        tx.read_ahead(lambda rows: taken.append(sorted(row[0] for row in rows)), LANES)
        adding(*others)(tx)

    return body


def test_a_read_goes_along_with_the_commit_and_finds_what_was_sent_before_it(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[list[int]] = []
    database.write(reading_ahead(taken, 1, 2))  # until the server has planned all of them
    waits = Waits(monkeypatch)

    database.write(reading_ahead(taken, 3, 4))

    assert taken == [[1], [1, 2, 3]]
    assert waits.count == 1  # for the end
    database.write(adding(5))
    assert len(taken) == 2


def test_what_was_read_ahead_is_not_taken_when_its_round_trip_fails(
    database: PostgresDatabase,
) -> None:
    taken: list[list[int]] = []

    def broken_off(tx: Transaction) -> None:
        reading_ahead(taken, 1)(tx)
        raise LookupError

    with pytest.raises(LookupError):
        database.write(broken_off)
    with pytest.raises(AssertionError, match="constraint"):
        database.write(reading_ahead(taken, 1, 2, 2))

    assert taken == []
    database.write(reading_ahead(taken, 1))
    assert taken == [[1]]


def test_a_commit_does_not_fail_by_what_was_read_ahead(database: PostgresDatabase) -> None:
    def body(tx: Transaction) -> str:
        def mistaken(rows: list[Row]) -> None:
            raise LookupError(rows)

        add(tx, 1)
        tx.read_ahead(mistaken, LANES)
        return "written"

    assert database.write(body) == "written"
    assert database.read(numbers) == [1]


def test_a_read_of_a_commit_that_another_thread_finishes_is_taken(
    database: PostgresDatabase,
) -> None:
    taken: list[list[int]] = []

    commit = database.begin(reading_ahead(taken, 1), wait_s=PATIENT_S)

    assert commit is not None
    assert taken == []
    commit.finish(wait_s=PATIENT_S)
    assert taken == [[1]]


def test_behind_a_pooler_nothing_is_read_ahead(database: PostgresDatabase) -> None:
    assert database._writer is not None
    taken: list[list[int]] = []
    assert database.write(lambda tx: tx.can_read_ahead)
    database._writer.is_direct = False

    assert not database.write(lambda tx: tx.can_read_ahead)
    database.write(reading_ahead(taken, 1, 2))
    assert taken == [[1]]
