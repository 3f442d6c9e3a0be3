"""The line to a PostgreSQL server, on which every wait has a limit.

The server ends statements that take too long. The line is closed when the server is silent for
somewhat longer than that: behind a proxy, or when a machine fails, no other timeout does it.
"""

import contextlib
import select
import time
from collections.abc import Iterator, Sequence

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus, Format, TransactionStatus

from rota.addresses import without_secrets_of
from rota.store.database import Row, StoreIsSlow
from rota.store.postgres.parameters import TextLoader

CONNECT_TIMEOUT_S = 5
GRACE_S = 2.0  # beyond the limit of a statement, until the connection is closed
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
CLOSING_READS = 10  # until the end of a connection that the server has closed is seen
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)


class ConnectionLost(Exception):  # noqa: N818
    """The connection is lost; the outcome of what was under way is unknown.

    `is_refused`: the server refused a statement before the last one, which therefore never ran.
    """

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


class StatementRefused(Exception):  # noqa: N818
    """The server refused a statement; the connection can still be used."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(reason_of(error))
        self.error = error


def reason_of(error: BaseException) -> str:
    """The first line of an error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class PostgresLink:
    def __init__(
        self,
        url: str,
        *,
        name: str,
        limit_ms: int,
        grace_s: float = GRACE_S,
        connect_s: int = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect, or raise `ConnectionLost`."""
        try:
            conninfo = make_conninfo(
                url,
                application_name=name,
                client_encoding="UTF8",
                connect_timeout=connect_s,
                **KEEPALIVE,
            )
            self._connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            # libpq quotes values that it does not understand, and a password may be in one.
            has_secret = without_secrets_of(url, str(error)) != str(error)
            reason = without_secrets_of(url, reason_of(error))
            raise ConnectionLost(reason) from (None if has_secret else error)
        self._connection.adapters.register_loader("text", TextLoader)
        self.pgconn: pq.abc.PGconn = self._connection.pgconn
        self._reader = Transformer(self._connection)
        self._limit_s = limit_ms / 1000 + grace_s
        self._gives_up_at_s: float | None = None  # when a wait ends, though the line is good
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)

    @property
    def is_open(self) -> bool:
        return not self._connection.closed

    @property
    def is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def is_alive(self) -> bool:
        """Whether the server has not closed the idle connection, as far as is known without it."""
        try:
            for _ in range(CLOSING_READS):
                if not self._poll.poll(0):
                    return True
                self.pgconn.consume_input()
        except psycopg.Error:
            pass
        return False

    @contextlib.contextmanager
    def waiting_at_most(self, wait_s: float | None) -> Iterator[None]:
        """Raise `StoreIsSlow` when the server is waited for beyond this; None: as usual."""
        self._gives_up_at_s = None if wait_s is None else time.monotonic() + wait_s
        try:
            yield
        finally:
            self._gives_up_at_s = None

    def rows(self, result: pq.abc.PGresult) -> list[Row]:
        self._reader.set_pgresult(result, set_loaders=True, format=Format.BINARY)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def _results(self) -> list[pq.abc.PGresult]:
        """Wait for all results of what was sent."""
        self._flush()
        results: list[pq.abc.PGresult] = []
        while (result := self._next()) is not None:
            results.append(result)
        self._check(results)
        return results

    def _next(self) -> pq.abc.PGresult | None:
        """The next result; None: the results of one statement or script are complete."""
        while self.pgconn.is_busy():
            self._wait()
            if not self._receive():
                break
        return self.pgconn.get_result()

    def _receive(self) -> bool:
        """Read from the server; False: it has closed the connection.

        The results that came before the end can still be read.
        """
        try:
            self.pgconn.consume_input()
        except psycopg.Error:
            if self.is_open:
                raise
        return self.is_open

    def _check(self, results: Sequence[pq.abc.PGresult], *, last: int = 0) -> None:
        """Raise the first error among the results; `last` is the place of the last statement."""
        for place, result in enumerate(results):
            if result.status in FAILED:
                error = psycopg.errors.error_from_result(result)
                if self.is_open:
                    raise StatementRefused(error)
                is_refused = error.sqlstate is not None and place < last
                raise self._lost(reason_of(error), is_refused=is_refused)

    def _flush(self) -> None:
        if not self.pgconn.flush():
            return
        self._poll.modify(self.pgconn.socket, select.POLLIN | select.POLLOUT)
        try:
            while self.pgconn.flush():
                self._wait()
                # The server may have to send before it reads on.
                if not self._receive():
                    return
        finally:
            if self.is_open:
                self._poll.modify(self.pgconn.socket, select.POLLIN)

    def _wait(self) -> None:
        """Wait until the server takes or sends something: its silence has a limit."""
        if self._gives_up_at_s is not None:
            left_s = self._gives_up_at_s - time.monotonic()
            if left_s <= 0 or not self._poll.poll(left_s * 1000):
                raise StoreIsSlow
            return
        if not self._poll.poll(self._limit_s * 1000):
            raise self._lost("the database does not answer")

    def _lost(self, reason: str, *, is_refused: bool = False) -> ConnectionLost:
        self.close()
        return ConnectionLost(reason, is_refused=is_refused)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
