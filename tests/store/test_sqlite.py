import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from rota.errors import Invalid, StoreError, StoreLocked
from rota.store.sqlite.database import MEMORY, SqliteDatabase, path_of
from rota.store.tasks.queues import QueueStore

pytestmark = pytest.mark.only("sqlite")

TIMEOUT_S = 30.0
HOLDER = """
import sys
from rota.store.tasks.queues import QueueStore
from rota.store.sqlite.database import SqliteDatabase

database = SqliteDatabase(sys.argv[1])
database.write(lambda tx: QueueStore(tx).set_paused("committed", paused=True, at_ms=1))
print("open", flush=True)
sys.stdin.read()
"""


def traces(database: SqliteDatabase) -> set[str]:
    return database.read(lambda tx: QueueStore(tx).known())


def leave(database: SqliteDatabase, name: str) -> None:
    database.write(lambda tx: QueueStore(tx).set_paused(name, paused=True, at_ms=1))


# --- settings -----------------------------------------------------------------------------------


def test_what_makes_a_commit_durable_is_really_in_force(database: SqliteDatabase) -> None:
    connection = database._writer

    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2  # FULL
    assert connection.pragma("wal_autocheckpoint") > 0


def test_a_statement_is_compiled_once_and_not_at_each_execution(database: SqliteDatabase) -> None:
    database.read(lambda tx: QueueStore(tx).known())
    connections = [database._writer, database._readers.get()]

    plans_are_stable = [one.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) for one in connections]

    assert plans_are_stable == [True, True]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///rota.db", "rota.db"),
        ("sqlite:///sub/rota.db", "sub/rota.db"),
        ("sqlite:////var/lib/rota.db", "/var/lib/rota.db"),
        ("sqlite://", MEMORY),
        ("sqlite:///", MEMORY),
        ("sqlite:///:memory:", MEMORY),
    ],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    assert path_of(url) == path


@pytest.mark.parametrize("url", ["rota.db", "postgresql://h/d", "sqlite:rota.db", ""])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="is not a sqlite:/// URL"):
        path_of(url)


# --- one file --------------------------------------------------------------------------------


def test_a_store_in_memory_is_written_and_read_alike() -> None:
    database = SqliteDatabase(MEMORY)
    leave(database, "there")

    assert traces(database) == {"there"}
    database.close()


# --- one coordinator a file ---------------------------------------------------------------------


def test_a_second_coordinator_on_one_file_is_refused_and_told_who_has_it(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "rota.db")
    first = SqliteDatabase(path)

    with pytest.raises(StoreLocked, match=rf"pid {os.getpid()}\) has .*rota\.db open") as refusal:
        SqliteDatabase(path)

    assert refusal.value.facts == {"holder": str(os.getpid())}
    leave(first, "still works")
    first.close()
    SqliteDatabase(path).close()


def test_a_link_to_the_file_is_the_same_file(tmp_path: Path) -> None:
    path, link = tmp_path / "rota.db", tmp_path / "link.db"
    first = SqliteDatabase(str(path))
    link.symlink_to(path)

    with pytest.raises(StoreLocked):
        SqliteDatabase(str(link))

    leave(first, "there")
    first.close()
    by_link = SqliteDatabase(str(link))
    assert traces(by_link) == {"there"}
    by_link.close()


def test_the_lock_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"pid {holder.pid}"):
            SqliteDatabase(path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(TIMEOUT_S)
        holder.stdin.close()
        holder.stdout.close()

    database = SqliteDatabase(path)
    assert traces(database) == {"committed"}
    database.close()


def test_a_place_that_cannot_be_written_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "rota.db").mkdir()

    with pytest.raises(StoreError, match="cannot be used as a store"):
        SqliteDatabase(str(tmp_path / "rota.db"))


def test_a_backup_that_reads_the_file_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "rota.db")
    database = SqliteDatabase(path)
    leave(database, "before")
    other = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)

    other.execute("BEGIN")
    found = other.execute("SELECT name FROM queue").fetchall()
    leave(database, "meanwhile")

    assert found == [("before",)]
    other.close()
    database.close()


def test_a_store_is_for_its_user_alone(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "rota.db"))
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    database.close()

    assert set(modes) >= {"rota.db", "rota.db-wal", "rota.db.lock"}
    assert set(modes.values()) == {0o600}


def test_one_process_has_the_file_and_always_leads(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "rota.db"))

    database.administer(lambda tx: QueueStore(tx).set_paused("q", paused=True, at_ms=1))

    assert database.elections is None
    assert database.write(lambda tx: QueueStore(tx).known()) == {"q"}
    database.close()
