"""A store from before values and artifacts had owners is opened, and its rows count in all."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from rota.core.kv import KvEntry
from rota.core.quotas import Amount, Usage
from rota.store import migrator
from rota.store.database import Database, Transaction
from rota.store.kv import KvStore
from rota.store.postgres import schema
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase
from rota.store.workflow.artifacts import ArtifactStore
from tests.databases.schemas import OPTIONS, open_leading, url
from tests.store.opened import NOW_MS

SQLITE, POSTGRES = 11, 5  # the migrations that these tests are about
KEEP = "INSERT INTO memory (key, value, version, updated_at_ms) VALUES (?, ?, 1, 1)"
ATTACH = (
    "INSERT INTO artifact (run, name, task, fence, media_type, size, created_at_ms, content) "
    "VALUES (1, ?, 1, 1, 'text/plain', ?, 1, ?)"
)
# What a coordinator of the version before writes.
STATEMENTS: list[tuple[str, tuple[object, ...]]] = [
    (KEEP, ("old", b"12345")),
    (KEEP, ("older", b"123")),
    (ATTACH, ("a", 7, b"1234567")),
]


def usages(database: Database) -> tuple[Usage, Usage]:
    def body(tx: Transaction) -> tuple[Usage, Usage]:
        return KvStore(tx).usage(NOW_MS), ArtifactStore(tx).usage(NOW_MS)

    return database.read(body)


def check_owners(database: Database) -> None:
    """Old rows count for no owner, until they are replaced."""
    values, artifacts = usages(database)
    assert (values.total, values.owners) == (Amount(2, 8), {})
    assert (artifacts.total, artifacts.owners) == (Amount(1, 7), {})

    def body(tx: Transaction) -> KvEntry | None:
        entry = KvEntry(key="old", value=b"1", version=2, updated_at_ms=2, owner="t1")
        KvStore(tx).put(entry)
        return KvStore(tx).get("older")

    older = database.write(body)
    values, _ = usages(database)
    assert older is not None
    assert (older.value, older.owner) == (b"123", None)
    assert (values.total, values.owners) == (Amount(2, 4), {"t1": Amount(1, 1)})


@pytest.mark.only("sqlite")
def test_a_file_of_the_version_before_has_rows_without_owners(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    connection = apsw.Connection(path)
    for number, text in migrator.migrations().items():
        if number < SQLITE:
            connection.execute(text)
            connection.execute(f"PRAGMA user_version = {number}")
    for text, parameters in STATEMENTS:
        connection.execute(text, parameters)
    connection.close()

    with closing(SqliteDatabase(path)) as database:
        assert database.migrated == (SQLITE - 1, migrator.newest_version())
        check_owners(database)


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A schema of the version before."""
    chosen = address_of(url(), f"rota_owners_{abs(hash(str(tmp_path))) % 10**12}")
    known = schema.migrations()
    with monkeypatch.context() as patch:
        old = {number: text for number, text in known.items() if number < POSTGRES}
        patch.setattr(schema, "migrations", lambda **_: old)
        PostgresDatabase(chosen, OPTIONS).close()
    yield chosen
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {chosen.schema} CASCADE".encode())


def write_as_before(address: Address) -> None:
    with psycopg.connect(url(), options=f"-c search_path={address.schema}") as connection:
        for text, parameters in STATEMENTS:
            connection.execute(text.replace("?", "%s").encode(), parameters)


@pytest.mark.only("postgres")
def test_a_schema_of_the_version_before_has_rows_without_owners(before: Address) -> None:
    write_as_before(before)

    with closing(open_leading(before)) as database:
        check_owners(database)


@pytest.mark.only("postgres")
def test_a_coordinator_of_the_version_before_goes_on_storing(before: Address) -> None:
    with closing(open_leading(before)) as database:
        write_as_before(before)

        check_owners(database)
