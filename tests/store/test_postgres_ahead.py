"""Statements that are sent ahead: run in their order, and what is wrong with them is never lost."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from rota.errors import Unavailable
from rota.store.database import Transaction
from rota.store.postgres.address import address_of
from rota.store.postgres.connection import ConnectionLost, PostgresConnection
from rota.store.postgres.database import PostgresDatabase
from tests.databases.schemas import OPTIONS, schemas, url
from tests.store.test_postgres import eventually

pytestmark = pytest.mark.only("postgres")

ADD = "queues.add_lane"
LANES = "queues.lanes"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresDatabase]:
    address = address_of(url(), schemas.lend(str(tmp_path)))
    with closing(PostgresDatabase(address, OPTIONS)) as opened:
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

    assert waits.count == 2  # for the beginning, and for the end


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
    turn = database.change_counter()

    def body(tx: Transaction) -> None:
        add(tx, 2)
        add(tx, 1)

    for _ in range(2):
        with pytest.raises(AssertionError, match="constraint"):
            database.write(body)
    assert database.read(numbers) == [1]
    assert database.change_counter() == turn
    assert not database.write(lambda tx: tx.changed_by_peer)


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

    def lost(connection: PostgresConnection, texts: Sequence[bytes]) -> object:
        plainly(connection, texts)
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
