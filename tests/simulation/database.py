"""How does a store behave whose process dies, or whose disk is full?

The real SQLite store on a real file, with a door in front of it: at an armed moment the process
"dies" just before or just after the commit, or the disk is full for a while.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

import apsw

from rota.store.database import Transaction
from rota.store.sqlite.database import SqliteDatabase
from tests.databases.wrapping import WrappedTransaction

T = TypeVar("T")

MEMORY_FOLDER = Path("/dev/shm")
# Writes that nobody was promised anything about: after these alone there is nothing to look at.
QUIET = frozenset({"workers.record_heartbeat", "workers.put_quality", "tasks.note_progress"})


class Crash(BaseException):
    """The coordinator's process ends here. No handler of its own may survive that."""


class Moment(Enum):
    BEFORE_COMMIT = auto()
    AFTER_COMMIT = auto()


class ListeningTransaction(WrappedTransaction):
    """Hears which statements change something."""

    is_quiet = True
    can_read_ahead = True  # as on a server, so that crashes meet it

    def execute(self, query: str, /, **parameters: object) -> int:
        return self._heard(query, super().execute(query, **parameters))

    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        return self._heard(query, super().execute_many(query, names, rows))

    def _heard(self, query: str, changes: int) -> int:
        self.is_quiet = self.is_quiet and (changes == 0 or query in QUIET)
        return changes


class SimulatedDatabase:
    elections = None

    def __init__(
        self,
        path: Path,
        *,
        on_commit: Callable[[apsw.Connection], None],
        on_crash: Callable[[], None],
    ) -> None:
        self._store = SqliteDatabase(str(path))
        # Only the process dies here, never the power: the page cache is as good as the disk.
        self._connection.execute("PRAGMA synchronous = OFF")
        self._on_commit = on_commit
        self._on_crash = on_crash
        self._is_new = True
        self.is_dead = False
        self.crash_at: Moment | None = None  # armed for the next write
        self.is_full = False

    @property
    def _connection(self) -> apsw.Connection:
        return self._store._writer

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> None:
        """Nothing is begun without being waited for."""

    def administer(self, body: Callable[[Transaction], T]) -> T:
        return self.write(body)

    def write(self, body: Callable[[Transaction], T]) -> T:
        if self.is_dead:
            raise Crash
        heard: list[ListeningTransaction] = []

        def guarded(tx: Transaction) -> T:
            heard.append(ListeningTransaction(tx))
            answer = body(heard[0])
            if self.is_full:
                raise apsw.FullError("database or disk is full")
            if self.crash_at is Moment.BEFORE_COMMIT:
                raise Crash
            return answer

        try:
            answer = self._store.write(guarded)
        except Crash:
            self.die()
            raise
        if self._is_new or not heard[0].is_quiet:
            self._is_new = False
            self._on_commit(self._connection)
        if self.crash_at is Moment.AFTER_COMMIT:
            self.die()
            raise Crash
        return answer

    def read(self, body: Callable[[Transaction], T]) -> T:
        if self.is_dead:
            raise Crash
        return self._store.read(body)

    def die(self) -> None:
        """End as `kill -9` would: nothing is flushed, closed or tidied up."""
        if not self.is_dead:
            self.is_dead = True
            # Else the last connection to close would write the log back, in good order.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._store.close()
            self._on_crash()

    def disk_free_bytes(self) -> int | None:
        return self._store.disk_free_bytes()

    @property
    def is_shared(self) -> bool:
        return self._store.is_shared

    def close(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._store.close()


def folder() -> Path | None:
    """Where schedules keep their files: in memory where there is such a place."""
    return MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
