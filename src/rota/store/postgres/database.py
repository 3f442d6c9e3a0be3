"""A store on PostgreSQL: one connection that writes, several that read, and their reconnection.

Errors of PostgreSQL are mapped to ours here: those of the environment may pass, and any other error
is a defect of Rota.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import structlog
from psycopg.pq.abc import PGresult

from rota.errors import StoreError, Unavailable
from rota.store.database import Transaction
from rota.store.postgres import schema
from rota.store.postgres.address import Address, PostgresOptions
from rota.store.postgres.connection import ConnectionLost, PostgresConnection, StatementRefused
from rota.store.postgres.dialect import postgres_queries
from rota.store.postgres.peer_notifier import PeerNotifier
from rota.store.postgres.transaction import PostgresTransaction

log = structlog.get_logger("rota.store")

# Classes of SQLSTATE that come from the environment and may pass: try again.
ENVIRONMENTAL = {
    "08": "its connection",
    "25": "it is read-only, or ended an idle transaction",
    "40": "another transaction",
    "53": "its resources",
    "55": "a lock that others hold",
    "57": "an operator, or a time limit",
    "58": "its system",
}
NOTHING_CHANGED = "nothing was changed"
UNKNOWN = (
    "it is not known whether the change was made; made again with the same key it happens once"
)
APPLICATION = "rota"
FIRST_PAUSE_S = 0.1  # before a connection is tried again; twice as long each time
LONGEST_PAUSE_S = 5.0
READER_WAIT_S = 10.0  # for a connection that reads, when all are busy
COMMIT = b"COMMIT"
ROLLBACK = b"ROLLBACK"

T = TypeVar("T")


def unavailable(reason: str) -> Unavailable:
    return Unavailable(f"the store cannot be used now ({reason}); {NOTHING_CHANGED}")


def unknown(reason: str) -> Unavailable:
    return Unavailable(f"the store was lost while it committed ({reason}); {UNKNOWN}")


def is_environmental(refused: StatementRefused) -> bool:
    """Whether the error comes from the environment; any other error is a defect of Rota."""
    return (refused.error.sqlstate or "58")[:2] in ENVIRONMENTAL


def to_error(error: ConnectionLost | StatementRefused) -> Exception:
    """The error to raise for a transaction that failed before its commit."""
    if isinstance(error, ConnectionLost) or is_environmental(error):
        return unavailable(str(error))
    if (error.error.sqlstate or "").startswith("23"):
        # The rows contradict each other: a defect of Rota, not of the disk.
        return AssertionError(f"a constraint of the store was broken: {error}")
    return AssertionError(f"the store does not understand us: {error}")


class PostgresDatabase:
    is_shared = True

    def __init__(self, address: Address, options: PostgresOptions | None = None) -> None:
        self.address = address
        self.options = options = options or PostgresOptions()
        self._queries = postgres_queries()
        self._scripts = schema.transaction_scripts(address, options)
        self._guard = threading.RLock()  # one write at a time
        self._state = threading.Lock()
        self._writer: PostgresConnection | None = None
        self._readers: list[PostgresConnection] = []
        self._free = threading.BoundedSemaphore(options.readers)
        self._last_change: int | None = (
            None  # the change counter after our last commit; None: unknown
        )
        self._problem: str | None = None  # why the database is unavailable
        self._closed = threading.Event()
        self._reconnecting: threading.Thread | None = None
        try:
            self.migrated = self._prepare()
            self._writer = self._connect()
        except (ConnectionLost, StatementRefused) as error:
            self._drop_writer()
            raise StoreError(f"{address.shown} cannot be used as a store: {error}") from None
        except BaseException:
            self._drop_writer()
            raise
        self._peer_notifier = PeerNotifier(address, is_enabled=options.notify)

    def _prepare(self) -> tuple[int, int]:
        with self._migration_connection() as connection:
            return schema.prepare(connection, self.address)

    def drop_legacy(self) -> list[int]:
        """Drop what only coordinators of the previous version need."""
        with self._migration_connection() as connection:
            return schema.drop_legacy(connection, self.address)

    @contextlib.contextmanager
    def _migration_connection(self) -> Iterator[PostgresConnection]:
        """A connection with the time limit of migrations."""
        connection = PostgresConnection(
            self.address.url, name=APPLICATION, limit_ms=schema.MIGRATION_MS
        )
        try:
            yield connection
        finally:
            connection.close()

    # --- writing --------------------------------------------------------------------------------

    def write(self, body: Callable[[Transaction], T]) -> T:
        with self._guard:
            connection, last_change, now_ms = self._begin_write()
            transaction = PostgresTransaction(
                connection,
                self._queries,
                changed_by_peer=last_change != self._last_change,
                now_ms=now_ms,
            )
            try:
                answer = body(transaction)
            except (ConnectionLost, StatementRefused) as error:
                self._roll_back(connection)
                raise to_error(error) from error
            except BaseException:
                self._roll_back(connection)
                raise
            self._last_change = self._commit(connection, transaction, last_change)
            return answer

    def _begin_write(self) -> tuple[PostgresConnection, int, int]:
        """A connection that holds the lock, the change counter, and the time of the database."""
        is_fresh = False
        while True:
            connection = self._writer
            if connection is None:
                self._check_available()
                connection, is_fresh = self._open_writer(), True
            try:
                change, now_ms = self._read_prelude(connection)
            except ConnectionLost as lost:
                self._drop_writer()
                # An idle connection may have been lost long ago: try again with a new one.
                if is_fresh:
                    raise self._set_unavailable(str(lost)) from lost
            except StatementRefused as refused:
                self._roll_back(connection)
                raise to_error(refused) from refused
            else:
                return connection, change, now_ms

    def _read_prelude(self, connection: PostgresConnection) -> tuple[int, int]:
        last = connection.script(self._scripts.write)[-1]
        return int(last.get_value(0, 0) or 0), int(last.get_value(0, 1) or 0)

    def _commit(
        self, connection: PostgresConnection, transaction: PostgresTransaction, last_change: int
    ) -> int:
        """Commit; returns the change counter after it."""
        statements = self._scripts.commit if transaction.has_changed else [COMMIT]
        self._last_change, before = None, self._last_change
        try:
            results = connection.finish(statements)
        except ConnectionLost as lost:
            self._drop_writer()
            self._set_unavailable(str(lost))
            raise unknown(str(lost)) from lost
        except StatementRefused as refused:
            self._roll_back(connection)
            self._last_change = before
            raise to_error(refused) from refused
        assert results[-1].command_status == COMMIT, "a broken transaction was to be committed"
        return int(results[0].get_value(0, 0) or 0) if transaction.has_changed else last_change

    def _roll_back(self, connection: PostgresConnection) -> None:
        """Roll back, or close the connection if that fails."""
        if connection.is_open and not connection.is_idle:
            with contextlib.suppress(ConnectionLost, StatementRefused):
                connection.script(ROLLBACK)
        if not (connection.is_open and connection.is_idle):
            self._drop_writer()

    # --- reading --------------------------------------------------------------------------------

    def read(self, body: Callable[[Transaction], T]) -> T:
        with self._reader(self._scripts.read) as (connection, _):
            return body(PostgresTransaction(connection, self._queries))

    def change_counter(self) -> int:
        with self._reader(self._scripts.change_counter) as (_, found):
            return int(found.get_value(0, 0) or 0)

    @contextlib.contextmanager
    def _reader(self, prelude: bytes) -> Iterator[tuple[PostgresConnection, PGresult]]:
        """A connection that reads, and the result of the last statement of `prelude`."""
        if not self._free.acquire(timeout=READER_WAIT_S):
            raise unavailable("all of its connections are busy")
        connection: PostgresConnection | None = None
        try:
            connection, result = self._begin_read(prelude)
            yield connection, result
        except (ConnectionLost, StatementRefused) as error:
            raise to_error(error) from error
        finally:
            if connection is not None:
                self._release(connection)
            self._free.release()

    def _begin_read(self, prelude: bytes) -> tuple[PostgresConnection, PGresult]:
        while True:
            self._check_available()
            with self._state:
                known = self._readers.pop() if self._readers else None
            try:
                connection = known or self._connect()
                return connection, connection.script(prelude)[-1]
            except ConnectionLost as lost:
                # An idle connection may have been lost long ago: try the next one.
                if known is None:
                    raise self._set_unavailable(str(lost)) from lost

    def _release(self, connection: PostgresConnection) -> None:
        if connection.is_open and not connection.is_idle:
            with contextlib.suppress(ConnectionLost, StatementRefused):
                connection.script(ROLLBACK)
        if connection.is_open and connection.is_idle and not self._closed.is_set():
            with self._state:
                self._readers.append(connection)
        else:
            connection.close()

    # --- peers ----------------------------------------------------------------------------------

    def notify_peers(self) -> None:
        self._peer_notifier.notify()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._peer_notifier.listen(callback)

    # --- connections ----------------------------------------------------------------------------

    def close(self) -> None:
        self._closed.set()
        self._peer_notifier.close()
        with self._state:
            thread, readers, self._readers = self._reconnecting, self._readers, []
        if thread is not None:
            thread.join()
        for connection in readers:
            connection.close()
        self._drop_writer()

    def _connect(self) -> PostgresConnection:
        return PostgresConnection(
            self.address.url, name=APPLICATION, limit_ms=self.options.statement_ms
        )

    def _open_writer(self) -> PostgresConnection:
        try:
            self._writer = self._connect()
        except ConnectionLost as lost:
            raise self._set_unavailable(str(lost)) from lost
        return self._writer

    def _drop_writer(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    def _check_available(self) -> None:
        if self._problem is not None:
            raise unavailable(self._problem)

    def _set_unavailable(self, reason: str) -> Unavailable:
        """Refuse all calls until one thread has reconnected; returns the error to raise."""
        with self._state:
            self._problem = reason
            if self._reconnecting is None and not self._closed.is_set():
                log.warning("store_unavailable", store=self.address.shown, problem=reason)
                self._reconnecting = threading.Thread(
                    target=self._reconnect, name="rota-reconnect", daemon=True
                )
                self._reconnecting.start()
        return unavailable(reason)

    def _reconnect(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.wait(pause_s * random.uniform(0.5, 1.0)):  # noqa: S311
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                connection = self._connect()
                connection.script(self._scripts.change_counter)
            except (ConnectionLost, StatementRefused) as error:
                self._problem = str(error)
                continue
            self._set_available(connection)
            return

    def _set_available(self, connection: PostgresConnection) -> None:
        with self._state:
            self._readers.append(connection)
            self._problem = self._reconnecting = None
        log.info("store_available", store=self.address.shown)
