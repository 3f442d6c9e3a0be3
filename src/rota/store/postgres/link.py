"""One connection: statements out, rows back, and never a wait without an end.

The server ends statements that take too long, and the connection ends when we hear nothing for
somewhat longer than that: behind a proxy, or when a machine is gone without a word, nobody else
would.

Each statement that is waited for is a way to the server and back. Those whose answers nobody needs
are sent ahead (libpq's pipeline), and go along with the next one, or with the commit.
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

from rota.store.database import Row
from rota.store.postgres.parameters import TextLoader

CONNECT_TIMEOUT_S = 5
UNHEARD_S = 2.0  # beyond a statement's own limit, until the connection is given up
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)


class LinkLost(Exception):  # noqa: N818
    """The connection is gone; what was under way on it is not known."""


class Refused(Exception):  # noqa: N818
    """The server did not carry a statement out; the connection is as good as before."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(reason_of(error))
        self.error = error


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class Link:
    def __init__(self, url: str, *, name: str, limit_ms: int) -> None:
        """Connect, or raise `LinkLost`."""
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
            raise LinkLost(reason_of(error)) from error
        self._connection.adapters.register_loader("text", TextLoader)
        self.pgconn: pq.abc.PGconn = self._connection.pgconn
        self._reader = Transformer(self._connection)
        self._limit_s = limit_ms / 1000 + UNHEARD_S
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._statements: dict[bytes, bytes] = {}  # that the server has planned, by their text
        self._ahead = 0  # statements that were sent, and whose answers were not waited for
        self.is_direct = self._is_direct()

    @property
    def is_open(self) -> bool:
        return not self._connection.closed

    @property
    def is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def script(self, text: bytes) -> list[pq.abc.PGresult]:
        """Run statements without parameters, all in one message; the answer is each one's."""
        try:
            self._catch_up()
            self.pgconn.send_query(text)
            return self._results()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def send(self, text: bytes, values: Sequence[Buffer | None], formats: Sequence[Format]) -> None:
        """Have one statement run, and do not wait for it: it goes along with the next that is.

        What is wrong with it is raised then. Behind a pooler nothing goes along with anything.
        """
        if not self.is_direct:
            self.run(text, values, formats)
            return
        try:
            self._send_ahead(text, values, formats, Format.BINARY)
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def finish(self, texts: Sequence[bytes]) -> list[pq.abc.PGresult]:
        """Run statements without parameters behind those that were sent; the answer is theirs."""
        if not self._ahead:
            return self.script(b"; ".join(texts))
        try:
            for text in texts:
                self._known(text)
            for text in texts:
                self._send_ahead(text, (), (), Format.TEXT)
            return self._catch_up()[-len(texts) :]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def _send_ahead(
        self,
        text: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[Format],
        answer: Format,
    ) -> None:
        name = self._known(text)
        if not self._ahead:
            self.pgconn.enter_pipeline_mode()
        self._ahead += 1
        self.pgconn.send_query_prepared(name, values, formats, answer)

    def _catch_up(self) -> list[pq.abc.PGresult]:
        """Wait for all that were sent; the first that was refused is what is raised."""
        if not self._ahead:
            return []
        ends_at = time.monotonic() + self._limit_s * self._ahead
        self._ahead = 0
        self.pgconn.pipeline_sync()
        self._flush(ends_at)
        results: list[pq.abc.PGresult] = []
        while True:
            result = self._next(ends_at)
            if result is None:
                continue  # between the answers to two statements
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            results.append(result)
        self.pgconn.exit_pipeline_mode()
        return self._checked(results)

    def run(
        self, text: bytes, values: Sequence[Buffer | None], formats: Sequence[Format]
    ) -> pq.abc.PGresult:
        """Run one statement. Where the server will know it again, it is planned once."""
        try:
            if self._ahead:
                self._send_ahead(text, values, formats, Format.BINARY)
                return self._catch_up()[-1]
            if self.is_direct:
                self.pgconn.send_query_prepared(self._known(text), values, formats, Format.BINARY)
            else:
                self.pgconn.send_query_params(text, values, None, formats, Format.BINARY)
            return self._results()[-1]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def _known(self, text: bytes) -> bytes:
        """The name under which the server has planned a statement; now, if it is new."""
        name = self._statements.get(text)
        if name is None:
            self._catch_up()
            name = b"rota_%d" % len(self._statements)
            self.pgconn.send_prepare(name, text)
            self._results()
            self._statements[text] = name
        return name

    def _is_direct(self) -> bool:
        """Is the server at the other end, and no pooler that may hand out another next time?

        A pooler makes up the number of the process that it tells its clients.
        """
        (result,) = self.script(b"SELECT pg_backend_pid()")
        return int(result.get_value(0, 0) or 0) == self.pgconn.backend_pid

    def rows(self, result: pq.abc.PGresult) -> list[Row]:
        self._reader.set_pgresult(result, set_loaders=True, format=Format.BINARY)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def hear(self) -> None:
        """Take in what the server has sent unasked."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def heard_others(self) -> bool:
        """Have others notified us since this was last asked?"""
        own, others = self.pgconn.backend_pid, False
        while (notice := self.pgconn.notifies()) is not None:
            others = others or notice.be_pid != own
        return others

    def _results(self) -> list[pq.abc.PGresult]:
        """Wait for all that the server has to say to what was sent."""
        ends_at = time.monotonic() + self._limit_s
        self._flush(ends_at)
        results: list[pq.abc.PGresult] = []
        while (result := self._next(ends_at)) is not None:
            results.append(result)
        return self._checked(results)

    def _next(self, ends_at: float) -> pq.abc.PGresult | None:
        """The next answer of the server; None: that was all to one statement, or script."""
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
                # The server may have to be heard before it goes on reading.
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
        return Refused(error)

    def _lost(self, reason: str) -> LinkLost:
        self.close()
        return LinkLost(reason)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
