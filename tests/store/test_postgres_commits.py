"""Transactions that are begun on one thread and may be finished on another."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from rota.errors import NotLeader, Unavailable
from rota.store.database import StoreIsSlow, Transaction
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.link import ConnectionLost
from tests.databases.schemas import open_leading, schemas, url
from tests.store.test_postgres import eventually
from tests.store.test_postgres_ahead import add, adding, numbers

pytestmark = pytest.mark.only("postgres")

PATIENT_S = 30.0
IMPATIENT_S = 0.01


@pytest.fixture
def address(tmp_path: Path) -> Address:
    return address_of(url(), schemas.lend(str(tmp_path)))


@pytest.fixture
def database(address: Address) -> Iterator[PostgresDatabase]:
    with closing(open_leading(address)) as opened:
        yield opened


@contextmanager
def locked(address: Address) -> Iterator[None]:
    """Another program holds the table of lanes; writes of it wait."""
    with psycopg.connect(url()) as other:
        other.execute(f"LOCK TABLE {address.schema}.lane IN ACCESS EXCLUSIVE MODE".encode())
        yield


def on_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(PATIENT_S)
    assert not thread.is_alive()


def test_a_commit_that_was_sent_is_durable_when_it_is_finished(database: PostgresDatabase) -> None:
    def body(tx: Transaction) -> list[int]:
        add(tx, 1)
        found = numbers(tx)
        add(tx, 2)
        return found

    commit = database.begin(body, wait_s=PATIENT_S)

    assert commit is not None
    assert commit.finish(wait_s=PATIENT_S) == [1]
    assert database.read(numbers) == [1, 2]


def test_a_slow_commit_goes_on_and_another_thread_finishes_it(
    database: PostgresDatabase, address: Address
) -> None:
    database.write(adding(1))
    with locked(address):
        commit = database.begin(adding(2), wait_s=IMPATIENT_S)
        assert commit is not None
        for _ in range(2):
            with pytest.raises(StoreIsSlow):
                commit.finish(wait_s=IMPATIENT_S)

    on_a_thread(commit.finish)

    assert database.read(numbers) == [1, 2]
    database.write(adding(3))
    assert database.read(numbers) == [1, 2, 3]


def test_nothing_is_begun_while_another_write_is_under_way(
    database: PostgresDatabase, address: Address
) -> None:
    with locked(address):
        commit = database.begin(adding(1), wait_s=IMPATIENT_S)
        assert commit is not None
        assert database.begin(adding(2), wait_s=IMPATIENT_S) is None
    commit.finish()

    assert database.read(numbers) == [1]
    following = database.begin(adding(2), wait_s=PATIENT_S)
    assert following is not None
    following.finish()
    assert database.read(numbers) == [1, 2]


def test_a_read_that_is_not_answered_in_time_leaves_nothing_changed(
    database: PostgresDatabase, address: Address
) -> None:
    def body(tx: Transaction) -> None:
        add(tx, 1)
        numbers(tx)

    with locked(address), pytest.raises(StoreIsSlow):
        database.begin(body, wait_s=IMPATIENT_S)

    assert database.begin(adding(2), wait_s=IMPATIENT_S) is None  # without a connection
    database.write(adding(3))
    assert database.read(numbers) == [3]


def test_a_body_that_breaks_off_takes_back_what_it_wrote(database: PostgresDatabase) -> None:
    def body(tx: Transaction) -> None:
        add(tx, 1)
        raise KeyError("ours")

    with pytest.raises(KeyError):
        database.begin(body, wait_s=PATIENT_S)

    database.write(adding(2))
    assert database.read(numbers) == [2]


def test_a_refused_statement_is_raised_when_the_commit_is_finished(
    database: PostgresDatabase,
) -> None:
    database.write(adding(1))
    commit = database.begin(adding(2, 1), wait_s=PATIENT_S)
    assert commit is not None

    with pytest.raises(AssertionError, match="constraint"):
        commit.finish()

    database.write(adding(3))
    assert database.read(numbers) == [1, 3]


def test_a_commit_of_an_epoch_that_is_over_is_refused(
    database: PostgresDatabase, address: Address
) -> None:
    with closing(open_leading(address)) as successor:
        commit = database.begin(adding(1), wait_s=PATIENT_S)
        assert commit is not None

        with pytest.raises(NotLeader):
            commit.finish(wait_s=PATIENT_S)

        assert database.elections.epoch is None
        with pytest.raises(NotLeader):
            database.begin(adding(1), wait_s=PATIENT_S)
        assert successor.read(numbers) == []


def test_a_connection_lost_in_its_commit_leaves_the_outcome_unknown(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write(adding(1))
    plainly = PostgresConnection.last_result

    def lost(connection: PostgresConnection) -> object:
        plainly(connection)
        raise ConnectionLost("the line went dead")

    commit = database.begin(adding(2), wait_s=PATIENT_S)
    assert commit is not None
    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "last_result", lost)
        with pytest.raises(Unavailable, match=r"not known whether .* same key"):
            commit.finish(wait_s=PATIENT_S)

    assert database.begin(adding(3), wait_s=PATIENT_S) is None  # the session has to be ended first
    assert eventually(lambda: database._problem is None)
    database.write(adding(3))
    assert database.read(numbers) == [1, 2, 3]


def test_behind_a_pooler_nothing_is_begun(database: PostgresDatabase) -> None:
    assert database._writer is not None
    database._writer.is_direct = False

    assert database.begin(adding(1), wait_s=PATIENT_S) is None
    assert database.read(numbers) == []
