"""One connection to PostgreSQL, on which every wait has a limit.

The server ends statements that take too long. The connection is closed when the server is silent
for somewhat longer than that: behind a proxy, or when a machine fails, no other timeout does it.

Each statement that is waited for takes one round trip. Statements without a needed result are
pipelined (libpq's pipeline mode): they travel with the next statement, or with the commit.
"""

import contextlib
import select
import time
from collections.abc import Sequence

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Transformer
from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus

from rota.addresses import without_secrets_of
from rota.store.database import Row
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
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)


class ConnectionLost(Exception):  # noqa: N818
    """The connection is lost; the outcome of what was under way is unknown."""


class StatementRefused(Exception):  # noqa: N818
    """The server refused a statement; the connection can still be used."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(reason_of(error))
        self.error = error


def reason_of(error: BaseException) -> str:
    """The first line of an error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class PostgresConnection:
    def __init__(self, url: str, *, name: str, limit_ms: int) -> None:
        """Connect, or raise `ConnectionLost`."""
        try:
            conninfo = make_conninfo(
                url,
                application_name=name,
                client_encoding="UTF8",
                connect_timeout=CONNECT_TIMEOUT_S,
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
        self._limit_s = limit_ms / 1000 + GRACE_S
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._prepared_names: dict[bytes, bytes] = {}  # of statements, by their text
        self._pipelined = 0  # statements that were sent and not waited for
        self.is_direct = self._is_direct()

    @property
    def is_open(self) -> bool:
        return not self._connection.closed

    @property
    def is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def script(self, text: bytes) -> list[pq.abc.PGresult]:
        """Run statements without parameters in one message; returns the result of each."""
        try:
            self._drain()
            self.pgconn.send_query(text)
            return self._results()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def send(self, text: bytes, values: Sequence[Buffer | None], formats: Sequence[Format]) -> None:
        """Pipeline one statement: it travels with the next one that is waited for.

        An error of it is raised then. Behind a pooler the statement is waited for.
        """
        if not self.is_direct:
            self.run(text, values, formats)
            return
        try:
            self._pipeline(text, values, formats, Format.BINARY)
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def finish(self, texts: Sequence[bytes]) -> list[pq.abc.PGresult]:
        """Run statements without parameters after the pipelined ones; returns their results."""
        if not self._pipelined:
            return self.script(b"; ".join(texts))
        try:
            for text in texts:
                self._prepared(text)
            for text in texts:
                self._pipeline(text, (), (), Format.TEXT)
            return self._drain()[-len(texts) :]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def _pipeline(
        self,
        text: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[Format],
        answer: Format,
    ) -> None:
        name = self._prepared(text)
        if not self._pipelined:
            self.pgconn.enter_pipeline_mode()
        self._pipelined += 1
        self.pgconn.send_query_prepared(name, values, formats, answer)

    def _drain(self) -> list[pq.abc.PGresult]:
        """Wait for all pipelined statements; raises the first error."""
        if not self._pipelined:
            return []
        ends_at = time.monotonic() + self._limit_s * self._pipelined
        self._pipelined = 0
        self.pgconn.pipeline_sync()
        self._flush(ends_at)
        results: list[pq.abc.PGresult] = []
        while True:
            result = self._next(ends_at)
            if result is None:
                continue  # between the results of two statements
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            results.append(result)
        self.pgconn.exit_pipeline_mode()
        return self._checked(results)

    def run(
        self, text: bytes, values: Sequence[Buffer | None], formats: Sequence[Format]
    ) -> pq.abc.PGresult:
        """Run one statement. Without a pooler, the server plans it once."""
        try:
            if self._pipelined:
                self._pipeline(text, values, formats, Format.BINARY)
                return self._drain()[-1]
            if self.is_direct:
                self.pgconn.send_query_prepared(
                    self._prepared(text), values, formats, Format.BINARY
                )
            else:
                self.pgconn.send_query_params(text, values, None, formats, Format.BINARY)
            return self._results()[-1]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def _prepared(self, text: bytes) -> bytes:
        """The name of the prepared statement; a new one is prepared now."""
        name = self._prepared_names.get(text)
        if name is None:
            self._drain()
            name = b"rota_%d" % len(self._prepared_names)
            self.pgconn.send_prepare(name, text)
            self._results()
            self._prepared_names[text] = name
        return name

    def _is_direct(self) -> bool:
        """Whether the other end is the server, and not a pooler.

        A pooler invents the process id that it sends to its clients.
        """
        (result,) = self.script(b"SELECT pg_backend_pid()")
        return int(result.get_value(0, 0) or 0) == self.pgconn.backend_pid

    def rows(self, result: pq.abc.PGresult) -> list[Row]:
        self._reader.set_pgresult(result, set_loaders=True, format=Format.BINARY)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def consume_input(self) -> None:
        """Read what the server has sent without a request."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def was_notified_by_peer(self) -> bool:
        """Whether a peer has notified since the last call."""
        own, others = self.pgconn.backend_pid, False
        while (notice := self.pgconn.notifies()) is not None:
            others = others or notice.be_pid != own
        return others

    def _results(self) -> list[pq.abc.PGresult]:
        """Wait for all results of what was sent."""
        ends_at = time.monotonic() + self._limit_s
        self._flush(ends_at)
        results: list[pq.abc.PGresult] = []
        while (result := self._next(ends_at)) is not None:
            results.append(result)
        return self._checked(results)

    def _next(self, ends_at: float) -> pq.abc.PGresult | None:
        """The next result; None: the results of one statement or script are complete."""
        while self.pgconn.is_busy():
            self._wait(ends_at)
            self.pgconn.consume_input()
        return self.pgconn.get_result()

    def _checked(self, results: list[pq.abc.PGresult]) -> list[pq.abc.PGresult]:
        for result in results:
            if result.status in FAILED:
                raise self._failed(result)
        return results

    def _flush(self, ends_at: float) -> None:
        if not self.pgconn.flush():
            return
        self._poll.modify(self.pgconn.socket, select.POLLIN | select.POLLOUT)
        try:
            while self.pgconn.flush():
                self._wait(ends_at)
                # The server may have to send before it reads on.
                self.pgconn.consume_input()
        finally:
            self._poll.modify(self.pgconn.socket, select.POLLIN)

    def _wait(self, ends_at: float) -> None:
        left_s = ends_at - time.monotonic()
        if left_s <= 0 or not self._poll.poll(left_s * 1000):
            raise self._lost("the database does not answer")

    def _failed(self, result: pq.abc.PGresult) -> Exception:
        error = psycopg.errors.error_from_result(result)
        if self.pgconn.status != ConnStatus.OK:
            return self._lost(reason_of(error))
        return StatementRefused(error)

    def _lost(self, reason: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(reason)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
