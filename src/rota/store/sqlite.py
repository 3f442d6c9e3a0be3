"""SQLite: one file, one writer, readers beside it.

Theory of operation. The file is in WAL mode with `synchronous=FULL`: a commit that has returned
is on the disk, and survives the process and the power. One connection writes; it is used by one
thread at a time, and its owner puts many changes into one transaction. Readers have connections
of their own and see the last commit without waiting for the writer. A lock file beside the
database keeps a second coordinator out: the operating system lets go of it when its holder dies,
however it dies.
"""

import fcntl
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import apsw

from rota.errors import Invalid, StoreError, StoreLocked, Unavailable
from rota.store import migrate
from rota.store.database import Row, Transaction, load_queries

T = TypeVar("T")

MEMORY = ":memory:"
PAGES_PER_CHECKPOINT = 1_000  # the log goes back into the file after so many pages
LOG_BYTES = 8 * 1024 * 1024  # the log's size from the start: room for a checkpoint's worth twice
CACHE_KIBIBYTES = 65_536
PRIVATE = 0o600  # files are for the user that runs the coordinator
BUSY_MS = 10_000  # how long to wait for a lock of another process, such as a backup

SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {PAGES_PER_CHECKPOINT}",
    f"PRAGMA cache_size = -{CACHE_KIBIBYTES}",
    "PRAGMA temp_store = MEMORY",
)
# What is the disk's doing, or another program's that has the file open, and may be over soon.
DISK_TROUBLES = (apsw.IOError, apsw.FullError, apsw.BusyError, apsw.CantOpenError)
FIRST_LOOK = "SELECT 1 FROM lane LIMIT 1"
# Rows on their way to history: one statement moves them all, which takes a sixth of the time that
# a statement for each does. Lives in memory only.
STAGED = frozenset({"tasks.finish_running", "tasks.finish_waiting"})
STAGING = """
CREATE TEMP TABLE finishing (
  id INTEGER PRIMARY KEY, fence INTEGER, attempt INTEGER, state TEXT, finished_at_ms INTEGER,
  worker_id TEXT, result BLOB, error BLOB, cause TEXT
)
"""


def path_of(url: str) -> str:
    """The file a `sqlite:` URL names: `sqlite:///rota.db` is rota.db in the working directory."""
    prefix = "sqlite://"
    if not url.startswith(prefix):
        raise Invalid(f"store {url!r} is not a sqlite:/// URL", setting="store")
    path = url.removeprefix(prefix).removeprefix("/")
    return path or MEMORY


class SqliteTransaction:
    """Named queries on one connection, inside the transaction its owner has opened."""

    now_ms: int | None = None  # SQLite's clock is the coordinator's

    def __init__(self, connection: apsw.Connection, queries: dict[str, str]) -> None:
        self._connection = connection
        self._queries = queries
        self.is_foreign = True

    def rows(self, query: str, /, *parameters: object) -> list[Row]:
        return self._connection.execute(self._queries[query], _bound(parameters)).fetchall()

    def run(self, query: str, /, *parameters: object) -> int:
        self._connection.execute(self._queries[query], _bound(parameters))
        return self._connection.changes()

    def many(self, query: str, rows: Iterable[Sequence[object]], /) -> int:
        if query in STAGED:
            return self._staged(query, rows)
        before = self._connection.total_changes()
        self._connection.executemany(self._queries[query], rows)
        return self._connection.total_changes() - before

    def put(self, query: str, /, *parameters: object) -> None:
        self._connection.execute(self._queries[query], _bound(parameters))

    def put_many(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        if query in STAGED:
            self._staged(query, rows)
        else:
            self._connection.executemany(self._queries[query], rows)

    def _staged(self, query: str, rows: Iterable[Sequence[object]]) -> int:
        self._connection.executemany(self._queries["tasks.stage_finished"], rows)
        moved = self.run(query)
        self.run("tasks.unstage_finished")
        return moved


def _bound(parameters: tuple[object, ...]) -> tuple[object, ...]:
    if list not in map(type, parameters):
        return parameters
    return tuple(_set_of(one) if type(one) is list else one for one in parameters)


def _set_of(values: list[object]) -> object:
    if not values:
        # An array without elements has no address; NULL stands for the empty set.
        return None
    if isinstance(values[0], str):
        # As bytes, since a text with a NUL in it would end there; the query casts them back.
        texts = tuple(str(one).encode() for one in values)
        return apsw.carray(texts, flags=apsw.SQLITE_CARRAY_BLOB)
    return apsw.carray(array("q", values))


class SqliteDatabase:
    is_shared = False  # the lock file sees to it

    def __init__(self, path: str, *, vfs: str | None = None, locked: bool = True) -> None:
        self.path = path
        self._vfs = vfs
        self._lock_file = _lock(path) if locked and path != MEMORY else None
        self._queries = load_queries()
        self._readers: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._memory_guard = threading.RLock()
        try:
            self._writer = self._open()
            self.migrated = self._prepare()
        except (apsw.Error, OSError) as error:
            self._unlock()
            raise StoreError(f"{path} cannot be used as a store: {error}") from error
        except BaseException:
            self._unlock()
            raise
        self._transaction = SqliteTransaction(self._writer, self._queries)

    def _prepare(self) -> tuple[int, int]:
        try:
            for statement in SETTINGS:
                self._writer.execute(statement)
            migrated = migrate.migrate(self._writer, name=self.path)
            self._writer.execute(STAGING)
            if self.path != MEMORY and self._vfs is None:
                _roll_out_log(self.path)
        except BaseException:
            self._writer.close()
            raise
        return migrated

    def write(self, body: Callable[[Transaction], T]) -> T:
        with self._memory_guard:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                answer = body(self._transaction)
                self._writer.execute("COMMIT")
                self._transaction.is_foreign = False
            except apsw.ConstraintError as error:
                self._roll_back()
                # The rows that were asked for contradict each other: no trouble of the disk's.
                raise AssertionError(f"a constraint of the store was broken: {error}") from error
            except BaseException:
                self._roll_back()
                raise
            return answer

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
                # The view begins with the first look. Lanes are looked up in memory, and enter it
                # before they are committed: one that begins later could hold half a batch.
                connection.execute(FIRST_LOOK).fetchall()
                return body(SqliteTransaction(connection, self._queries))
            except DISK_TROUBLES as error:
                raise Unavailable(f"the store cannot be read now: {error}") from error
            finally:
                if connection.in_transaction:  # an error of the disk may have ended it already
                    connection.execute("ROLLBACK")
        finally:
            self._readers.put(connection)

    def take_away(self) -> list[int]:
        """One coordinator a file: nothing is kept for older ones."""
        return []

    def turn(self) -> int:
        return 0

    def hint(self) -> None:
        """Nobody else is there."""

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        del callback
        return self.hint

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
            # Payloads and token hashes are nobody else's business; the log gets the same mode.
            Path(self.path).touch(PRIVATE)
        connection = apsw.Connection(self.path, vfs=self._vfs)
        connection.set_busy_timeout(BUSY_MS)
        return connection

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _roll_out_log(path: str) -> None:
    """Write the log file out to its full size before it is used.

    A commit that makes the file longer must also wait for the file system to note the new length,
    which doubles its time. SQLite reads the log up to the first frame that does not check, so
    zeros behind its end mean nothing to it; it does not lock this file, so opening it is harmless.
    """
    file = Path(f"{os.path.realpath(path)}-wal")
    with file.open("r+b") as log:
        missing = LOG_BYTES - log.seek(0, os.SEEK_END)
        if missing > 0:
            log.write(bytes(missing))
            log.flush()
            os.fsync(log.fileno())


def _lock(path: str) -> int:
    """Take the lock beside the database, or say who has it."""
    file = Path(f"{os.path.realpath(path)}.lock")  # a link to the file is the same file
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise StoreError(f"{path} cannot be used as a store: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 100).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreLocked(
            f"another coordinator (pid {holder}) has {path} open: stop it, talk to it over HTTP, "
            "or give this one another file with --store",
            holder=holder,
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
