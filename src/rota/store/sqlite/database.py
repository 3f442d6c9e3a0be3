"""SQLite: one file, one writer, readers beside it.

Theory of operation. The file is in WAL mode with `synchronous=FULL`: a commit that has returned is
on the disk, and survives a crash and a power cut. One connection writes; one thread at a time uses
it, and puts many changes into one transaction. Readers have their own connections and see the last
commit without waiting for the writer. A lock file beside the database excludes a second
coordinator: the operating system releases it when its holder ends.
"""

import errno
import fcntl
import os
import shutil
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

import apsw

from rota.addresses import without_password
from rota.errors import Invalid, StoreDiskFull, StoreError, StoreFull, StoreLocked, Unavailable
from rota.store import migrator
from rota.store.database import Row, Transaction, load_queries, parameter_names

T = TypeVar("T")

MEMORY = ":memory:"
PAGES_PER_CHECKPOINT = 1_000  # of the log, which is then written back into the file
MEBIBYTE = 1024 * 1024
LOG_BYTES = 8 * MEBIBYTE  # the initial size of the log: twice what a checkpoint writes back
ROOM_TO_OPEN_BYTES = LOG_BYTES + 2 * MEBIBYTE  # for the log, its index and a small migration
CACHE_KIBIBYTES = 65_536
PRIVATE = 0o600  # files belong to the user that runs the coordinator
BUSY_MS = 10_000  # of a wait for a lock of another process, such as a backup

SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {PAGES_PER_CHECKPOINT}",
    f"PRAGMA cache_size = -{CACHE_KIBIBYTES}",
    "PRAGMA temp_store = MEMORY",
)
# Errors of the disk, or of another program that has the file open: they may pass.
DISK_ERRORS = (apsw.IOError, apsw.FullError, apsw.BusyError, apsw.CantOpenError)
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})  # of the system, behind an error of SQLite
FIRST_READ = "SELECT 1 FROM lane LIMIT 1"
# A staging table for rows that move to history: one statement moves them all, in a sixth of the
# time of a statement for each. It is in memory.
STAGED = frozenset({"tasks.finish_running", "tasks.finish_waiting"})
STAGING = """
CREATE TEMP TABLE finishing (
  id INTEGER PRIMARY KEY, fence INTEGER, attempt INTEGER, state TEXT, finished_at_ms INTEGER,
  worker_id TEXT, result BLOB, error BLOB, cause TEXT
)
"""


class SqliteQuery(NamedTuple):
    text: str
    names: tuple[str, ...]  # of the parameters, in the order of their first use


@cache
def _load_queries() -> dict[str, SqliteQuery]:
    return {name: SqliteQuery(text, parameter_names(text)) for name, text in load_queries().items()}


def path_of(url: str) -> str:
    """The file a `sqlite:` URL names: `sqlite:///rota.db` is rota.db in the working directory."""
    prefix = "sqlite://"
    if not url.startswith(prefix):
        shown = without_password(url)
        raise Invalid(f"store {shown!r} is not a sqlite:/// URL", setting="store")
    path = url.removeprefix(prefix).removeprefix("/")
    return path or MEMORY


class SqliteTransaction(Transaction):
    """Named queries on one connection, in the transaction that the database has opened."""

    def __init__(self, connection: apsw.Connection, queries: dict[str, SqliteQuery]) -> None:
        self._connection = connection
        self._queries = queries

    def rows(self, query: str, /, **parameters: object) -> list[Row]:
        return self._run(query, parameters).fetchall()

    def records(self, make: Callable[..., T], query: str, /, **parameters: object) -> list[T]:
        cursor = self._run(query, parameters)
        try:
            names = [name for name, _ in cursor.get_description()]
        except apsw.ExecutionCompleteError:
            return []  # no rows, no description
        return [make(**dict(zip(names, row, strict=True))) for row in cursor]

    def execute(self, query: str, /, **parameters: object) -> int:
        self._run(query, parameters)
        return self._connection.changes()

    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        if query in STAGED:
            return self._execute_staged(query, names, rows)
        before = self._connection.total_changes()
        self._run_many(query, names, rows)
        return self._connection.total_changes() - before

    def pipeline(self, query: str, /, **parameters: object) -> None:
        self._run(query, parameters)

    def pipeline_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> None:
        if query in STAGED:
            self._execute_staged(query, names, rows)
        else:
            self._run_many(query, names, rows)

    def _run(self, query: str, parameters: dict[str, object]) -> apsw.Cursor:
        if list in map(type, parameters.values()):
            parameters = {
                name: _set_of(value) if type(value) is list else value
                for name, value in parameters.items()
            }
        return self._connection.execute(self._queries[query].text, parameters)

    def _run_many(self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        text, expected = self._queries[query]
        # SQLite numbers named parameters by their first use, so that rows are bound by position.
        assert names == expected, f"{query} takes {expected}, not {names}"
        self._connection.executemany(text, rows)

    def _execute_staged(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> int:
        self._run_many("tasks.stage_finished", names, rows)
        moved = self.execute(query)
        self.execute("tasks.unstage_finished")
        return moved


def _set_of(values: list[object]) -> object:
    if not values:
        # An array without elements has no address; NULL means the empty set.
        return None
    if isinstance(values[0], str):
        # As bytes, because a text would end at a NUL; the query casts them back.
        texts = tuple(str(one).encode() for one in values)
        return apsw.carray(texts, flags=apsw.SQLITE_CARRAY_BLOB)
    return apsw.carray(array("q", values))


class SqliteDatabase:
    is_shared = False  # the lock file ensures it
    elections = None

    def __init__(self, path: str, *, vfs: str | None = None, locked: bool = True) -> None:
        self.path = path
        self._vfs = vfs
        self._lock_file = _lock(path) if locked and path != MEMORY else None
        self._queries = _load_queries()
        self._readers: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._memory_guard = threading.RLock()
        try:
            self._writer = self._open()
            self.migrated = self._prepare()
        except (apsw.Error, OSError) as error:
            self._unlock()
            raise _unusable(path, error) from error
        except BaseException:
            self._unlock()
            raise
        self._transaction = SqliteTransaction(self._writer, self._queries)
        self._bounds = self._writer.cursor()  # begins and ends transactions: one for all is faster

    def _prepare(self) -> tuple[int, int]:
        try:
            for statement in SETTINGS:
                self._writer.execute(statement)
            migrated = migrator.migrate(self._writer, name=self.path)
            self._writer.execute(STAGING)
            if self.path != MEMORY and self._vfs is None:
                _extend_log(self.path)
        except BaseException:
            self._writer.close()
            raise
        return migrated

    def write(self, body: Callable[[Transaction], T]) -> T:
        with self._memory_guard:
            try:
                self._bounds.execute("BEGIN IMMEDIATE")
                answer = body(self._transaction)
                self._bounds.execute("COMMIT")
            except (apsw.FullError, apsw.IOError) as error:
                is_full = self._is_full(error)
                self._roll_back()
                if is_full:
                    raise StoreFull from error
                raise
            except apsw.ConstraintError as error:
                self._roll_back()
                # The rows contradict each other: a defect of Rota, not of the disk.
                raise AssertionError(f"a constraint of the store was broken: {error}") from error
            except BaseException:
                self._roll_back()
                raise
            return answer

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> None:
        """A file is not waited for in this way: `write` does it all."""

    def administer(self, body: Callable[[Transaction], T]) -> T:
        return self.write(body)

    def _is_full(self, error: apsw.Error) -> bool:
        """Whether an error means that the disk is full; some reach SQLite as errors of I/O."""
        return isinstance(error, apsw.FullError) or self._writer.system_errno in NO_SPACE

    def disk_free_bytes(self) -> int | None:
        if self.path == MEMORY:
            return None
        return _free_bytes(self.path)

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def read(self, body: Callable[[Transaction], T]) -> T:
        if self.path == MEMORY:
            with self._memory_guard:
                return body(self._transaction)
        try:
            connection = self._readers.get_nowait()
        except Empty:
            connection = self._open()
        try:
            connection.execute("BEGIN")
            try:
                # The view begins with the first read. Lanes are cached in memory before they are
                # committed: a view that begins later could hold half a batch.
                connection.execute(FIRST_READ).fetchall()
                return body(SqliteTransaction(connection, self._queries))
            except DISK_ERRORS as error:
                raise Unavailable(f"the store cannot be read now: {error}") from error
            finally:
                if connection.in_transaction:  # an error of the disk may have ended it already
                    connection.execute("ROLLBACK")
        finally:
            self._readers.put(connection)

    def drop_legacy(self) -> list[int]:
        """One coordinator a file: nothing is left for older versions."""
        return []

    def note_address(self, url: str) -> None:
        """Note where this process serves, for programs that find the store in use."""
        if self._lock_file is not None:
            os.pwrite(self._lock_file, f"{os.getpid()}\n{url}".encode(), 0)

    def close(self) -> None:
        while True:
            try:
                self._readers.get_nowait().close()
            except Empty:
                break
        self._writer.close()
        self._unlock()

    def _open(self) -> apsw.Connection:
        if self.path != MEMORY and self._vfs is None:
            # Payloads and token hashes are private; the log gets the same mode.
            Path(self.path).touch(PRIVATE)
        connection = apsw.Connection(self.path, vfs=self._vfs)
        connection.set_busy_timeout(BUSY_MS)
        # The plan of a statement never depends on its parameters. Otherwise SQLite compiles some
        # statements again when a value changes, since it might ask for another plan. For the one
        # that finishes a single task, that took more than twice as long as its execution.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        return connection

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _extend_log(path: str) -> None:
    """Extend the log file to its full size before it is used.

    A commit that extends the file must also wait for the file system to write the new length, which
    doubles its time. SQLite reads the log up to the first invalid frame, so it ignores zeros after
    the end. It does not lock this file, so opening it is harmless.
    """
    file = Path(f"{os.path.realpath(path)}-wal")
    with file.open("r+b") as log:
        missing = LOG_BYTES - log.seek(0, os.SEEK_END)
        if missing > 0:
            log.write(bytes(missing))
            log.flush()
            os.fsync(log.fileno())


def _lock(path: str) -> int:
    """Acquire the lock file beside the database; raises `StoreLocked` with its holder."""
    file = Path(f"{os.path.realpath(path)}.lock")  # a link to the file is the same file
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder, _, url = os.read(descriptor, 300).decode(errors="replace").partition("\n")
        os.close(descriptor)
        raise StoreLocked(_who_has(path, holder or "unknown", url), holder=holder) from error
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    except OSError as error:  # a full disk has room for an empty file, and not for this
        os.close(descriptor)
        raise _unusable(path, error) from error
    return descriptor


def _unusable(path: str, error: apsw.Error | OSError) -> StoreError:
    """The error of a file that cannot be opened; on a full disk it says what to do."""
    is_full = isinstance(error, apsw.FullError)
    if isinstance(error, OSError):
        is_full = error.errno in NO_SPACE
    elif isinstance(error, apsw.IOError):  # for which SQLite may give no reason
        is_full = path != MEMORY and _free_bytes(path) < LOG_BYTES
    if is_full:
        return StoreDiskFull(path, needed=f"{ROOM_TO_OPEN_BYTES // MEBIBYTE} MiB")
    problem = error.strerror if isinstance(error, OSError) else error
    return StoreError(f"{path} cannot be used as a store: {problem}")


def _free_bytes(path: str) -> int:
    return shutil.disk_usage(Path(os.path.realpath(path)).parent).free


def _who_has(path: str, holder: str, url: str) -> str:
    if url:
        return (
            f"another coordinator (pid {holder}) has {path} open, and serves at {url}: use it with "
            f"ROTA_URL={url}, stop it, or give this one another file with --store"
        )
    return (
        f"another coordinator (pid {holder}) has {path} open inside its program: stop it, or start "
        "one for all programs with `rota up` and give them its address as ROTA_URL"
    )
