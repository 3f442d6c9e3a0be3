"""What is PostgreSQL's own: others who write, connections that break, and what is asserted."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from rota.errors import Invalid, StoreError, StoreTooNew, Unavailable
from rota.store.database import Transaction
from rota.store.postgres import schema
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.link import ConnectionLost, StatementRefused
from rota.store.postgres.session import StoreSession
from rota.store.tasks.queues import QueueStore
from tests.databases.schemas import OPTIONS, open_leading, schemas, seen, url
from tests.databases.server import Server

pytestmark = pytest.mark.only("postgres")

PATIENCE_S = 60.0
SECRET = "correct-horse"


@pytest.fixture
def address(tmp_path: Path) -> Address:
    return address_of(url(), schemas.lend(str(tmp_path)))


@pytest.fixture
def database(address: Address) -> Iterator[PostgresDatabase]:
    with closing(open_leading(address)) as opened:
        yield opened


def leave(database: PostgresDatabase, name: str) -> None:
    database.write(lambda tx: QueueStore(tx).set_paused(name, paused=True, at_ms=1))


def traces(database: PostgresDatabase) -> set[str]:
    return database.read(lambda tx: QueueStore(tx).known())


def end_connections(connection: PostgresConnection) -> None:
    """As an operator would, or a restart."""
    with psycopg.connect(url(), autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.pgconn.backend_pid])


def eventually(holds: Callable[[], bool]) -> bool:
    patience = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not holds():
        if time.monotonic() > patience:
            return False
        pause.wait(0.01)
    return True


# --- connections that break ---------------------------------------------------------------------


def test_a_connection_lost_before_the_commit_has_changed_nothing(
    database: PostgresDatabase,
) -> None:
    def body(tx: Transaction) -> None:
        QueueStore(tx).set_paused("lost", paused=True, at_ms=1)
        assert database._writer is not None
        end_connections(database._writer)
        QueueStore(tx).known()

    with pytest.raises(Unavailable, match="nothing was changed"):
        database.write(body)
    leave(database, "kept")

    assert traces(database) == {"kept"}


def test_a_connection_lost_during_the_commit_leaves_the_outcome_unknown(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = PostgresConnection.finish

    def lost(connection: PostgresConnection, text: bytes) -> object:
        plainly(connection, text)
        raise ConnectionLost("the line went dead")

    leave(database, "before")
    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "finish", lost)
        with pytest.raises(Unavailable, match=r"not known whether .* same key"):
            leave(database, "perhaps")

    assert eventually(lambda: database._problem is None)
    assert traces(database) == {"before", "perhaps"}


def test_idle_connections_that_were_ended_cost_nobody_a_call(database: PostgresDatabase) -> None:
    leave(database, "first")
    traces(database)
    assert database._writer is not None
    for connection in (database._writer, *database._readers):
        end_connections(connection)

    leave(database, "second")

    assert traces(database) == {"first", "second"}


def test_a_statement_that_is_never_answered_ends_the_wait(address: Address) -> None:
    connection = PostgresConnection(address.url, name="test", limit_ms=100)
    connection._limit_s = 0.1

    with pytest.raises(ConnectionLost, match="does not answer"):
        connection.script(b"SELECT pg_sleep(30)")

    assert not connection.is_open


def test_a_connection_whose_first_statement_is_refused_is_closed(address: Address) -> None:
    opened: list[PostgresConnection] = []

    class Refused(PostgresConnection):
        def _is_direct(self) -> bool:
            opened.append(self)
            self.script(b"SELECT 1 / 0")
            return True

    with pytest.raises(StatementRefused, match="division by zero"):
        Refused(address.url, name="test", limit_ms=1_000)

    assert not opened[0].is_open


def test_a_connection_made_while_the_store_closes_is_closed_too(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_leading(address)
    plainly, is_connecting = database._connect, threading.Event()
    made: list[StoreSession] = []

    def connect_late() -> StoreSession:
        is_connecting.set()
        assert database._closed.wait(PATIENCE_S)
        made.append(plainly())
        return made[-1]

    monkeypatch.setattr(database, "_connect", connect_late)
    database._set_unavailable("the line went dead")
    assert is_connecting.wait(PATIENCE_S)

    database.close()

    assert [one.is_open for one in made] == [False]


def test_readers_wait_for_a_connection_and_no_longer_than_they_may(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.postgres.database.READER_WAIT_S", 0.05)
    with closing(PostgresDatabase(address, OPTIONS._replace(readers=1))) as database:

        def body(_: Transaction) -> None:
            with pytest.raises(Unavailable, match="busy"):
                traces(database)

        database.read(body)

        assert traces(database) == set()


@pytest.mark.slow
def test_a_server_that_was_away_is_found_again(tmp_path: Path) -> None:
    server = Server().start()
    database = open_leading(address_of(server.url))
    try:
        leave(database, "before")
        server.kill()
        for _ in range(3):
            with pytest.raises(Unavailable, match="nothing was changed"):
                leave(database, "away")
        with pytest.raises(Unavailable):
            traces(database)
        server.start()

        assert eventually(lambda: database._problem is None)
        leave(database, "after")
        assert traces(database) == {"before", "after"}
    finally:
        database.close()
        server.close()


def test_nothing_is_kept_in_a_session_behind_a_pooler(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pool that hands out connections by transaction, and cleans them in between."""
    plainly = PostgresConnection.script

    def cleaned(connection: PostgresConnection, text: bytes) -> object:
        answer = plainly(connection, text)
        if connection.is_idle:
            plainly(connection, b"DISCARD ALL")
        return answer

    monkeypatch.setattr(PostgresConnection, "_is_direct", lambda _: False)
    monkeypatch.setattr(PostgresConnection, "script", cleaned)
    with closing(open_leading(address)) as database:
        leave(database, "first")
        leave(database, "second")

        assert traces(database) == {"first", "second"}


def test_a_statement_is_planned_once_where_the_server_will_know_it_again(
    database: PostgresDatabase,
) -> None:
    def planned(tx: Transaction) -> list[int]:
        QueueStore(tx).known()
        QueueStore(tx).known()
        counted = seen(
            tx, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%FROM queue%'"
        )
        return [number for (number,) in counted]

    # The question itself is a statement too.
    assert database.write(planned) == [2]
    assert database.write(planned) == [2]


def test_a_number_of_a_process_that_is_not_the_servers_is_a_poolers(address: Address) -> None:
    connection = PostgresConnection(address.url, name="test", limit_ms=5_000)
    try:
        assert connection.is_direct

        connection.pgconn = _Pooled(connection.pgconn)  # type: ignore[assignment]  # as much of it as is asked

        assert not connection._is_direct()
    finally:
        connection.close()


class _Pooled:
    """A connection whose other end makes up the number of its process, as poolers do."""

    def __init__(self, pgconn: object) -> None:
        self._pgconn = pgconn

    @property
    def backend_pid(self) -> int:
        return 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._pgconn, name)


# --- what is asserted ---------------------------------------------------------------------------


def test_a_server_that_may_lose_commits_is_refused(address: Address) -> None:
    careless = address._replace(url=f"{address.url}&options=-c%20synchronous_commit%3Doff")

    with pytest.raises(StoreError, match=r"synchronous_commit = off.*ALTER ROLE"):
        PostgresDatabase(careless, OPTIONS)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    nowhere = f"postgresql://rota:{SECRET}@127.0.0.1:1/rota"

    with pytest.raises(StoreError, match="cannot be used as a store") as refusal:
        PostgresDatabase(address_of(nowhere), OPTIONS)

    assert SECRET not in refusal.value.detail
    assert "127.0.0.1" in refusal.value.detail


@pytest.mark.parametrize(
    "broken",
    [
        f"postgresql://rota:{SECRET}@[::1/rota",
        f"postgresql://rota:{SECRET}@host:port/rota",
        f"postgresql://rota:{SECRET}@host/rota?nonsense=1",
        f"postgresql://rota:{SECRET}@host/rota?schema=Not%20this",
    ],
)
def test_a_url_that_is_wrong_is_refused_without_its_password(broken: str) -> None:
    with pytest.raises(Invalid) as refusal:
        address_of(broken)

    assert SECRET not in refusal.value.detail
    assert SECRET not in str(refusal.value.facts)


def test_the_schema_is_the_urls_or_else_the_settings() -> None:
    asked = address_of("postgresql://h/d?schema=mine&sslmode=require", "theirs")

    assert (asked.schema, asked.url) == ("mine", "postgresql://h/d?sslmode=require")
    assert address_of("postgresql://h/d", "theirs").schema == "theirs"
    assert address_of("postgresql://h/d").schema == "rota"


# --- migrations ---------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Address]:
    """A schema that is not there, and is gone at the end."""
    chosen = address_of(url(), f"rota_empty_{abs(hash(str(tmp_path))) % 10**12}")
    yield chosen
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {chosen.schema} CASCADE".encode())


def note_version(address: Address, number: int, *, post: bool = False) -> None:
    with psycopg.connect(url(), autocommit=True) as connection:
        text = f"INSERT INTO {address.schema}.schema_version VALUES (%s, %s)"
        connection.execute(text.encode(), [number, post])


def test_a_new_schema_is_made_once_by_however_many_start(empty: Address) -> None:
    opened: list[PostgresDatabase] = []
    starts = [
        threading.Thread(target=lambda: opened.append(PostgresDatabase(empty, OPTIONS)))
        for _ in range(4)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join(PATIENCE_S)
    for database in opened:
        database.close()

    newest = schema.newest_version()
    assert sorted(one.migrated for one in opened) == sorted([(0, newest)] + 3 * [(newest, newest)])


def test_the_script_for_offline_use_makes_the_same_schema(empty: Address) -> None:
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(schema.offline(empty.schema).encode())

    with closing(open_leading(empty)) as database:
        leave(database, "there")

        assert database.migrated == (schema.newest_version(), schema.newest_version())
        assert traces(database) == {"there"}


def test_a_coordinator_of_the_version_before_works_on_the_next_schema(empty: Address) -> None:
    PostgresDatabase(empty, OPTIONS).close()
    note_version(empty, schema.newest_version() + 1)

    with closing(open_leading(empty)) as database:
        leave(database, "there")

        assert traces(database) == {"there"}


@pytest.mark.parametrize(("ahead", "post"), [(2, False), (1, True)])
def test_a_schema_that_is_too_new_is_refused(empty: Address, ahead: int, *, post: bool) -> None:
    PostgresDatabase(empty, OPTIONS).close()
    newest = schema.newest_version()
    for number in range(newest + 1, newest + ahead + 1):
        note_version(empty, number)
    if post:
        note_version(empty, newest + ahead, post=True)

    with pytest.raises(StoreTooNew, match="newer Rota"):
        PostgresDatabase(empty, OPTIONS)


def test_a_migration_that_breaks_leaves_nothing_of_itself(
    empty: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schema.migrations()
    broken = {**known, max(known) + 1: "CREATE TABLE half (a bigint); SELECT 1 / 0"}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: broken)
        with pytest.raises(StoreError, match="division by zero"):
            PostgresDatabase(empty, OPTIONS)

    with closing(PostgresDatabase(empty, OPTIONS)) as database:
        assert database.migrated == (0, max(known))
        assert database.drop_legacy() == list(schema.migrations(post=True))
        assert database.drop_legacy() == []
