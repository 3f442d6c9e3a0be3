"""A store from before keys had queues is opened, and every key still names its task."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from rota.core.sessions import key_of, name_of
from rota.core.tasks.keys import ESCAPE, kept_forms
from rota.core.tasks.model import TaskRecord
from rota.store import migrator
from rota.store.database import Database, Transaction
from rota.store.postgres import schema
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore
from tests.databases.schemas import OPTIONS, url

SQLITE, POSTGRES = 9, 5  # the migrations that these tests are about
LONG_QUEUE, LONG_KEY = chr(0x1F680) * 200, chr(0x1F680) * 500  # too long for one index entry
LANES = {1: "a", 2: "b", 3: LONG_QUEUE}
ROWS = [  # id, lane, key; the first three are live
    (1, 1, "plain"),
    (2, 2, key_of("b", "named")),
    (3, 1, f"{ESCAPE}odd"),
    (4, 2, "finished"),
    (5, 2, f"{ESCAPE}{ESCAPE}odd"),
    (6, 1, key_of("b", "squatted")),
]
LIVE = 3


def statements(
    extra: Iterable[tuple[int, int, str]] = (),
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """What a coordinator of the version before has written."""
    for number, queue in LANES.items():
        yield "INSERT INTO lane VALUES (?, ?, 'work', '[]')", (number, queue)
    for number, lane, key in [*ROWS, *extra]:
        if number <= LIVE:
            text = "INSERT INTO task VALUES (?, ?, 0, ?, NULL, ?, 1, NULL)"
        else:
            text = (
                "INSERT INTO history (id, lane, priority, payload, key, created_at_ms, state, "
                "fence, attempt, finished_at_ms) VALUES (?, ?, 0, ?, ?, 1, 'succeeded', 1, 1, 2)"
            )
        yield text, (number, lane, b"null", key)
        yield "INSERT INTO task_key (key, id) VALUES (?, ?)", (key, number)


def found(database: Database, key: str) -> list[tuple[str, int]]:
    """The queues and tasks in which this key, as its author wrote it, is known."""

    def body(tx: Transaction) -> list[TaskRecord]:
        lanes = Lanes()
        lanes.load(tx)
        return TaskStore(tx, lanes).with_key(kept_forms(key), limit=10, before=None)

    return [(task.lane.queue, task.id) for task in database.read(body)]


def check_keys(database: Database) -> None:
    for number, lane, key in ROWS:
        assert found(database, key) == [(LANES[lane], number)]

    def body(tx: Transaction) -> list[TaskRecord]:
        lanes = Lanes()
        lanes.load(tx)
        return [*TaskStore(tx, lanes).by_ids([one for one, _, _ in ROWS]).values()]

    tasks = {int(task.id): task for task in database.read(body)}
    assert tasks[2].key == key_of("b", "named")
    assert name_of(tasks[2]) == "named"
    assert name_of(tasks[6]) != "squatted"
    assert tasks[3].key == f"{ESCAPE}{ESCAPE}odd"


@pytest.mark.only("sqlite")
def test_a_file_of_the_version_before_keeps_its_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    connection = apsw.Connection(path)
    for number, text in migrator.migrations().items():
        if number < SQLITE:
            connection.execute(text)
            connection.execute(f"PRAGMA user_version = {number}")
    for text, parameters in statements():
        connection.execute(text, parameters)
    connection.close()

    with closing(SqliteDatabase(path)) as database:
        assert database.migrated == (SQLITE - 1, migrator.newest_version())
        check_keys(database)


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A schema of the version before, with tasks in it."""
    chosen = address_of(url(), f"rota_keys_{abs(hash(str(tmp_path))) % 10**12}")
    known = schema.migrations()
    with monkeypatch.context() as patch:
        old = {number: text for number, text in known.items() if number < POSTGRES}
        patch.setattr(schema, "migrations", lambda **_: old)
        PostgresDatabase(chosen, OPTIONS).close()
    with psycopg.connect(url(), options=f"-c search_path={chosen.schema}") as connection:
        for text, parameters in statements([(7, 3, LONG_KEY)]):
            connection.execute(text.replace("?", "%s").encode(), parameters)
    yield chosen
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {chosen.schema} CASCADE".encode())


@pytest.mark.only("postgres")
def test_a_schema_of_the_version_before_keeps_its_keys(before: Address) -> None:
    with closing(PostgresDatabase(before, OPTIONS)) as database:
        check_keys(database)
        assert found(database, LONG_KEY) == []


@pytest.mark.only("postgres")
def test_a_coordinator_of_the_version_before_goes_on_writing_keys(before: Address) -> None:
    with closing(PostgresDatabase(before, OPTIONS)) as database:
        with psycopg.connect(url(), options=f"-c search_path={before.schema}") as old:
            old.execute("INSERT INTO task VALUES (8, 2, 0, '', NULL, 'late', 1, NULL)")
            old.execute(
                "INSERT INTO task_key (key, id) "
                "SELECT * FROM unnest(ARRAY['late']::text[], ARRAY[8]::bigint[])"
            )
            rows = old.execute("SELECT key, id FROM task_key WHERE key = 'plain'").fetchall()

        assert found(database, "late") == [("b", 8)]
        assert rows == [("plain", 1)]


@pytest.mark.only("postgres")
def test_what_only_the_version_before_needs_is_taken_away_in_the_end(before: Address) -> None:
    with closing(PostgresDatabase(before, OPTIONS)) as database:
        taken_away = database.drop_legacy()

        check_keys(database)

    assert POSTGRES in taken_away
    with psycopg.connect(url(), options=f"-c search_path={before.schema}") as connection:
        connection.execute("INSERT INTO task VALUES (8, 2, 0, '', NULL, 'late', 1, NULL)")
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("INSERT INTO task_key (key, id) VALUES ('late', 8)")
