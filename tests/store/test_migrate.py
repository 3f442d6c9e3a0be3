from pathlib import Path

import apsw
import pytest

from rota.errors import StoreError, StoreTooNew
from rota.store import migrator
from rota.store.sqlite.database import SqliteDatabase

pytestmark = pytest.mark.only("sqlite")


def write_version(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def read_version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    found = migrator.version(connection)
    connection.close()
    return found


def test_a_fresh_file_gets_the_newest_shape(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"

    database = SqliteDatabase(str(path))
    database.close()

    assert database.migrated == (0, migrator.newest_version())
    assert read_version(path) == migrator.newest_version()


def test_a_file_of_the_newest_shape_is_left_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    SqliteDatabase(path).close()

    database = SqliteDatabase(path)
    database.close()

    assert database.migrated == (migrator.newest_version(), migrator.newest_version())


def test_a_newer_file_is_refused_with_clear_words_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    SqliteDatabase(str(path)).close()
    newer = migrator.newest_version() + 1
    write_version(path, newer)

    with pytest.raises(StoreTooNew, match=f"newer Rota .schema {newer}.*upgrade") as refusal:
        SqliteDatabase(str(path))

    assert str(path) in refusal.value.detail
    assert refusal.value.facts == {"schema": newer, "known": migrator.newest_version()}
    assert read_version(path) == newer


def test_a_refused_file_is_not_kept_locked(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    write_version(path, 999)
    with pytest.raises(StoreTooNew):
        SqliteDatabase(str(path))
    write_version(path, 0)

    SqliteDatabase(str(path)).close()


@pytest.mark.parametrize("content", [b"This is a letter, not a database.\n" * 50, b"\0" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)

    with pytest.raises(StoreError, match="cannot be used as a store"):
        SqliteDatabase(str(path))

    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing/rota\.db cannot be used"):
        SqliteDatabase(str(tmp_path / "missing" / "rota.db"))


def test_a_migration_that_breaks_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rota.db"
    SqliteDatabase(str(path)).close()
    known = migrator.migrations()
    number = max(known) + 1
    broken = "CREATE TABLE half (a); CREATE TABLE half (a);"
    monkeypatch.setattr(migrator, "migrations", lambda: {**known, number: broken})

    with pytest.raises(StoreError, match="half"):
        SqliteDatabase(str(path))
    monkeypatch.undo()

    assert read_version(path) == max(known)
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT * FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    connection.close()
    SqliteDatabase(str(path)).close()


def test_migrations_stand_in_the_order_of_their_numbers() -> None:
    numbers = list(migrator.migrations())

    assert numbers == sorted(numbers)
    assert numbers[-1] == migrator.newest_version()
