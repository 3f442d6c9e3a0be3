"""A store on PostgreSQL: one connection that writes, several that read, and their reconnection."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import structlog

from rota.errors import NotLeader, StoreError, Unavailable
from rota.store.database import StoreIsSlow, Transaction
from rota.store.postgres import schema
from rota.store.postgres.address import Address, PostgresOptions
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.dialect import postgres_queries
from rota.store.postgres.elections import PostgresElections
from rota.store.postgres.failures import to_error, unavailable, unknown
from rota.store.postgres.link import ConnectionLost, StatementRefused
from rota.store.postgres.session import APPLICATION, StoreSession, settings_of
from rota.store.postgres.transaction import PostgresTransaction

log = structlog.get_logger("rota.store")

FIRST_PAUSE_S = 0.1  # before a connection is tried again; twice as long each time
LONGEST_PAUSE_S = 5.0
READER_WAIT_S = 10.0  # for a connection that reads, when all are busy

T = TypeVar("T")


class PostgresDatabase:
    is_shared = True

    def __init__(self, address: Address, options: PostgresOptions | None = None) -> None:
        self.address = address
        self.options = options = options or PostgresOptions()
        self._queries = postgres_queries()
        self._settings = settings_of(address, options)
        self.elections = PostgresElections(address, options)
        self._guard = threading.Lock()  # one write at a time
        self._state = threading.Lock()
        self._writer: StoreSession | None = None
        self._readers: list[StoreSession] = []
        self._free = threading.BoundedSemaphore(options.readers)
        self._is_unsettled = False  # a commit may still be under way on a connection that was lost
        self._lost_backend: int | None = None
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

    def _prepare(self) -> tuple[int, int]:
        with self._migration_connection() as connection:
            return schema.prepare(connection, self.address)

    def disk_free_bytes(self) -> None:
        """Not known: the disk is the server's."""

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
            term = self.elections.term()
            if self._is_unsettled:
                self._check_available()
                self.elections.begin_session(self._lost_backend)
                self._is_unsettled = False
                term = self.elections.term()
            with self._under(term):
                return self._run(body, self.elections.fence(term))

    def begin(
        self, body: Callable[[Transaction], T], *, wait_s: float
    ) -> "PostgresCommit[T] | None":
        # Either end of the commit may be on another thread, so the guard belongs to no thread.
        if not self._guard.acquire(blocking=False):
            return None
        commit: PostgresCommit[T] | None = None
        try:
            commit = self._begin(body, wait_s)
        finally:
            if commit is None:
                self._guard.release()
        return commit

    def _begin(self, body: Callable[[Transaction], T], wait_s: float) -> "PostgresCommit[T] | None":
        connection = self._writer
        if (
            self._is_unsettled
            or connection is None
            or not connection.is_direct
            or not connection.is_alive()
        ):
            return None
        term = self.elections.term()
        with self._under(term), connection.waiting_at_most(wait_s):
            connection.begin_write(self.elections.fence(term))
            answer = self._execute(connection, body)
            try:
                connection.send_commit()
            except ConnectionLost as lost:
                raise self._lose_commit(connection, lost) from lost
        return PostgresCommit(self, connection, term, answer)

    def end_commit(
        self, connection: StoreSession, term: tuple[int, int], *, wait_s: float | None
    ) -> None:
        """Wait for a commit that was sent; after `StoreIsSlow` it is still under way."""
        is_over = True
        try:
            with self._under(term), connection.waiting_at_most(wait_s):
                self._commit(connection, connection.end_commit)
        except StoreIsSlow:
            is_over = False
            raise
        finally:
            if is_over:
                self._guard.release()

    @contextlib.contextmanager
    def _under(self, term: tuple[int, int]) -> Iterator[None]:
        try:
            yield
        except NotLeader:
            self.elections.depose(term)
            raise

    def administer(self, body: Callable[[Transaction], T]) -> T:
        with self._guard:
            return self._run(body)

    def _run(self, body: Callable[[Transaction], T], *first: bytes) -> T:
        """Run the body in a transaction that begins with these statements, and commit it."""
        connection = self._begin_write(*first)
        answer = self._execute(connection, body)
        self._commit(connection, connection.commit)
        return answer

    def _execute(self, connection: StoreSession, body: Callable[[Transaction], T]) -> T:
        try:
            return body(PostgresTransaction(connection, self._queries))
        except (ConnectionLost, StatementRefused) as error:
            self._roll_back(connection)
            raise to_error(error) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _begin_write(self, *first: bytes) -> StoreSession:
        """A connection on which a transaction begins with its next statement, or has begun."""
        connection = self._writer
        if connection is not None and connection.is_alive():
            try:
                connection.begin_write(*first)
            except ConnectionLost:
                pass  # an idle connection may have been lost long ago: try a new one
            except StatementRefused as refused:
                self._roll_back(connection)
                raise to_error(refused) from refused
            else:
                return connection
        self._drop_writer()
        self._check_available()
        try:
            connection = self._writer = self._connect()
            connection.begin_write(*first)
        except ConnectionLost as lost:
            self._drop_writer()
            raise self._set_unavailable(str(lost)) from lost
        except StatementRefused as refused:
            self._drop_writer()
            raise to_error(refused) from refused
        return connection

    def _commit(self, connection: StoreSession, commit: Callable[[], None]) -> None:
        try:
            commit()
        except ConnectionLost as lost:
            raise self._lose_commit(connection, lost) from lost
        except StatementRefused as refused:
            self._roll_back(connection)
            raise to_error(refused) from refused

    def _lose_commit(self, connection: StoreSession, lost: ConnectionLost) -> Exception:
        """Give up a connection that was lost in its commit; returns the error to raise."""
        self._drop_writer()
        if lost.is_refused:
            return to_error(lost)
        self._set_unavailable(str(lost))
        self._is_unsettled = True
        self._lost_backend = connection.backend
        return unknown(str(lost))

    def _roll_back(self, connection: StoreSession) -> None:
        connection.roll_back()
        if not connection.is_open:
            self._drop_writer()

    # --- reading --------------------------------------------------------------------------------

    def read(self, body: Callable[[Transaction], T]) -> T:
        if not self._free.acquire(timeout=READER_WAIT_S):
            raise unavailable("all of its connections are busy")
        connection: StoreSession | None = None
        try:
            connection = self._begin_read()
            return body(PostgresTransaction(connection, self._queries))
        except (ConnectionLost, StatementRefused) as error:
            raise to_error(error) from error
        finally:
            if connection is not None:
                self._release(connection)
            self._free.release()

    def _begin_read(self) -> StoreSession:
        while True:
            self._check_available()
            with self._state:
                known = self._readers.pop() if self._readers else None
            try:
                connection = known or self._connect()
            except ConnectionLost as lost:
                raise self._set_unavailable(str(lost)) from lost
            try:
                connection.begin_read()
            except ConnectionLost as lost:
                # An idle connection may have been lost long ago: try the next one.
                if known is None:
                    raise self._set_unavailable(str(lost)) from lost
            except StatementRefused:
                connection.close()
                raise
            else:
                return connection

    def _release(self, connection: StoreSession) -> None:
        connection.roll_back()
        with self._state:
            is_kept = connection.is_open and not self._closed.is_set()
            if is_kept:
                self._readers.append(connection)
        if not is_kept:
            connection.close()

    # --- connections ----------------------------------------------------------------------------

    def close(self) -> None:
        self._closed.set()
        self.elections.close()
        with self._state:
            thread = self._reconnecting
        if thread is not None:
            thread.join()
        with self._state:  # after the thread, which may have left a connection here
            readers, self._readers = self._readers, []
        for connection in readers:
            connection.close()
        self._drop_writer()

    def _connect(self) -> StoreSession:
        return StoreSession(self.address, self._settings, limit_ms=self.options.statement_ms)

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
            except (ConnectionLost, StatementRefused) as error:
                self._problem = str(error)
                continue
            self._set_available(connection)
            return

    def _set_available(self, connection: StoreSession) -> None:
        with self._state:
            self._readers.append(connection)
            self._problem = self._reconnecting = None
        log.info("store_available", store=self.address.shown)


class PostgresCommit(Generic[T]):
    """A transaction of the leader whose commit was sent."""

    def __init__(
        self,
        database: PostgresDatabase,
        connection: StoreSession,
        term: tuple[int, int],
        answer: T,
    ) -> None:
        self._database = database
        self._connection = connection
        self._term = term
        self._answer = answer

    def finish(self, *, wait_s: float | None = None) -> T:
        self._database.end_commit(self._connection, self._term, wait_s=wait_s)
        return self._answer
