"""The election of the leader on PostgreSQL, and the fence that every write of a leader passes.

Theory of operation. A write holds an advisory lock in share mode and then reads the epoch, so the
epoch cannot change before it ends. A takeover takes the lock exclusively. A write of the old leader
that is in its way is waited for shortly. Then the server process that runs it is ended: its client
may be frozen, or cut off.

A leader whose connection was lost in a commit does not know whether that commit is still to come.
It raises its session number under the same lock, and so shuts out the lost connection.
"""

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from rota.core.replicas import Leader
from rota.errors import NotLeader
from rota.store.database import Transaction
from rota.store.leadership import LeadershipView
from rota.store.postgres.address import Address, PostgresOptions
from rota.store.postgres.dialect import postgres_queries
from rota.store.postgres.failures import to_error, unavailable
from rota.store.postgres.link import ConnectionLost, StatementRefused
from rota.store.postgres.session import StoreSession, settings_of
from rota.store.postgres.transaction import PostgresTransaction

log = structlog.get_logger("rota.store")

STATEMENT_MS = 2_000
GRACE_S = 1.0
CONNECT_S = 2
LOCK_MS = 200  # a wait for the write of another session; then its server process is ended
TAKEOVER_S = 5.0  # all waits for such writes together
LOCK_TIMEOUT = "55P03"
NOT_PERMITTED = "42501"
SECRET_BYTES = 32

T = TypeVar("T")


class PostgresElections:
    def __init__(self, address: Address, options: PostgresOptions) -> None:
        self._address = address
        self._lock_key = address.key("write")
        self._settings = settings_of(
            address,
            options._replace(statement_ms=STATEMENT_MS, lock_ms=LOCK_MS, idle_ms=STATEMENT_MS),
        )
        self._guard = threading.Lock()
        self._connection: StoreSession | None = None
        self._is_closed = False
        self._term: tuple[int, int] | None = None  # the epoch and the session that may write

    @property
    def epoch(self) -> int | None:
        term = self._term
        return None if term is None else term[0]

    def look(self) -> LeadershipView:
        def body(tx: Transaction) -> LeadershipView:
            view = tx.record(_view, "leadership.look")
            assert view is not None, "the table has one row"
            return view

        return self._run(body)

    def take_over(self, name: str, address: str, *, seen_epoch: int, lease_ms: int) -> int | None:
        def take(tx: Transaction) -> int | None:
            tx.pipeline("leadership.lock", lock_key=self._lock_key)
            found: int | None = tx.value(
                "leadership.take_over",
                leader=name,
                address=address,
                epoch=seen_epoch,
                lease_ms=lease_ms,
                is_direct=self._is_direct(),
            )
            return found

        def end_writers(tx: Transaction) -> list[int]:
            return tx.column("leadership.end_writers", epoch=seen_epoch, lock_key=self._lock_key)

        def is_free(tx: Transaction) -> bool:
            return bool(tx.value("leadership.is_free", epoch=seen_epoch))

        ends_at = time.monotonic() + TAKEOVER_S
        while self._run(is_free):
            try:
                epoch = self._run(take)
            except _Locked:
                if time.monotonic() > ends_at:
                    return None
                self._end(end_writers)
                continue
            if epoch is not None:
                self._term = (epoch, 0)
            return epoch
        return None

    def renew(self, *, lease_ms: int) -> int | None:
        term = self._term
        if term is None:
            return None
        now_ms: int | None = self._run(
            lambda tx: tx.value(
                "leadership.renew", epoch=term[0], lease_ms=lease_ms, is_direct=self._is_direct()
            )
        )
        if now_ms is None:
            self.depose(term)
        return now_ms

    def resign(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._run(lambda tx: tx.execute("leadership.resign", epoch=term[0]))

    def secret(self) -> bytes:
        def body(tx: Transaction) -> bytes:
            found = tx.value("leadership.secret")
            if found is None:
                tx.pipeline("leadership.add_secret", value=secrets.token_bytes(SECRET_BYTES))
                found = tx.value("leadership.secret")
            return bytes(found)

        return self._run(body)

    def close(self) -> None:
        self._term = None
        with self._guard:
            self._is_closed = True
            self._drop()

    # --- the fence ------------------------------------------------------------------------------

    def term(self) -> tuple[int, int]:
        """The epoch and the session of the next write; raises `NotLeader` without them."""
        if self._term is None:
            raise NotLeader
        return self._term

    def fence(self, term: tuple[int, int]) -> bytes:
        """The statement by which a write proves that its epoch is not over."""
        epoch, session = term
        return f"SELECT check_epoch({self._lock_key}, {epoch}, {session})".encode()

    def depose(self, term: tuple[int, int]) -> None:
        """Note that the database has refused this epoch: no write is tried under it again."""
        if self._term == term:
            self._term = None
            log.warning("leadership_lost", store=self._address.shown, epoch=term[0])

    def begin_session(self, lost_backend: int | None) -> None:
        """Shut out the transaction of a connection that was lost in its commit."""
        epoch, _ = term = self.term()

        def begin(tx: Transaction) -> int | None:
            tx.pipeline("leadership.lock", lock_key=self._lock_key)
            found: int | None = tx.value("leadership.begin_session", epoch=epoch)
            return found

        def end_writer(tx: Transaction) -> list[int]:
            return tx.column("leadership.end_writer", backend=lost_backend, lock_key=self._lock_key)

        ends_at = time.monotonic() + TAKEOVER_S
        while True:
            try:
                session = self._run(begin)
            except _Locked as locked:
                if time.monotonic() > ends_at:
                    raise to_error(locked.refused) from locked
                self._end(end_writer)
                continue
            if session is None:
                self.depose(term)
                raise NotLeader
            self._term = (epoch, session)
            return

    def _end(self, end_writers: Callable[[Transaction], list[int]]) -> None:
        """End writes that stand in the way, where the role of this connection may."""
        try:
            ended = self._run(end_writers)
        except _NotPermitted as error:
            log.warning("writers_not_ended", store=self._address.shown, problem=str(error))
        else:
            if ended:
                log.warning("writers_ended", store=self._address.shown, count=len(ended))

    # --- the connection -------------------------------------------------------------------------

    def _is_direct(self) -> bool:
        return self._connection is not None and self._connection.is_direct

    def _run(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a transaction of its own; once more where an idle connection was lost."""
        with self._guard:
            if self._is_closed:
                raise unavailable("it is closed")
            known = self._connection
            try:
                if known is not None and known.is_alive():
                    try:
                        return self._run_on(known, body)
                    except ConnectionLost:
                        pass
                self._drop()
                self._connection = StoreSession(
                    self._address,
                    self._settings,
                    limit_ms=STATEMENT_MS,
                    grace_s=GRACE_S,
                    connect_s=CONNECT_S,
                )
                return self._run_on(self._connection, body)
            except StatementRefused as refused:
                if refused.error.sqlstate == LOCK_TIMEOUT:
                    raise _Locked(refused) from refused
                if refused.error.sqlstate == NOT_PERMITTED:
                    raise _NotPermitted(str(refused)) from refused
                raise to_error(refused) from refused
            except ConnectionLost as lost:
                raise to_error(lost) from lost

    def _run_on(self, connection: StoreSession, body: Callable[[Transaction], T]) -> T:
        try:
            connection.begin_write()
            answer = body(PostgresTransaction(connection, postgres_queries()))
            connection.commit()
        except BaseException:
            connection.roll_back()
            raise
        return answer

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Locked(Exception):  # noqa: N818
    """Another session holds the lock."""

    def __init__(self, refused: StatementRefused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class _NotPermitted(Exception):  # noqa: N818
    """The role of this connection may not do that."""


def _view(
    *,
    epoch: int,
    leader: str | None,
    address: str | None,
    since_ms: int,
    expires_in_ms: int,
    is_connected: bool,
    now_ms: int,
) -> LeadershipView:
    if leader is None:
        return LeadershipView(leader=None, now_ms=now_ms)
    found = Leader(
        epoch=epoch,
        name=leader,
        address=address or "",
        since_ms=since_ms,
        expires_in_ms=expires_in_ms,
        is_connected=is_connected,
    )
    return LeadershipView(leader=found, now_ms=now_ms)
