"""One connection to PostgreSQL, and the statements on it.

Each statement that is waited for takes one round trip. Statements without a needed result are
pipelined (libpq's pipeline mode): they travel with the next statement, or with the commit.
"""

import contextlib
from collections.abc import Callable, Sequence
from itertools import count

import psycopg
import structlog
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.pq import ExecStatus, Format

from rota.store.database import StoreIsSlow
from rota.store.postgres.link import (
    CONNECT_TIMEOUT_S,
    FAILED,
    GRACE_S,
    ConnectionLost,
    PostgresLink,
    StatementRefused,
    reason_of,
)

log = structlog.get_logger("rota.store")

Take = Callable[[pq.abc.PGresult], None]


class PostgresConnection(PostgresLink):
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
        super().__init__(url, name=name, limit_ms=limit_ms, grace_s=grace_s, connect_s=connect_s)
        self._prepared_names: dict[bytes, bytes] = {}  # of statements, by their text
        self._names = count()
        self._deferred: Sequence[bytes] = ()  # statements that go before the next one
        # What was pipelined and not waited for: the text of a statement to prepare, or None for
        # one to run.
        self._pipelined: list[bytes | None] = []
        self._takers: list[tuple[int, Take]] = []  # of results, by their place in the pipeline
        self._is_synced = False  # whether the end of the pipelined statements was sent
        self._received: list[pq.abc.PGresult] = []  # of the pipelined statements, until the last
        try:
            self.is_direct = self._is_direct()
        except StatementRefused:  # such as a FATAL notice of a server that is shutting down
            self.close()
            raise
        self.backend = self.pgconn.backend_pid if self.is_direct else None

    def script(self, text: bytes) -> list[pq.abc.PGresult]:
        """Run statements without parameters in one message; returns the result of each."""
        try:
            self._enqueue_deferred()
            self._drain()
            self.pgconn.send_query(text)
            return self._results()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def defer(self, texts: Sequence[bytes]) -> None:
        """Run statements without parameters just before the next one, in the same round trip.

        `finish` and `roll_back` end the transaction that they begin.
        """
        assert self.is_direct
        self._deferred = texts

    def send(
        self,
        text: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[Format],
        *,
        take: Take | None = None,
    ) -> None:
        """Pipeline one statement: it travels with the next one that is waited for.

        An error of it is raised then. Otherwise `take` gets its result, if all statements of the
        round trip were carried out; an error of `take` is only logged. Behind a pooler the
        statement is waited for.
        """
        if not self.is_direct:
            result = self.run(text, values, formats)
            if take is not None:
                take(result)
            return
        try:
            self._pipeline(text, values, formats, Format.BINARY)
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error
        if take is not None:
            self._takers.append((len(self._pipelined) - 1, take))

    def run(
        self, text: bytes, values: Sequence[Buffer | None], formats: Sequence[Format]
    ) -> pq.abc.PGresult:
        """Run one statement. Without a pooler, the server plans it once."""
        try:
            if self.is_direct:
                self._pipeline(text, values, formats, Format.BINARY)
                return self._drain()[-1]
            self.pgconn.send_query_params(text, values, None, formats, Format.BINARY)
            return self._results()[-1]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def finish(self, text: bytes) -> pq.abc.PGresult:
        """Run a statement without parameters after the pipelined ones; returns its result."""
        if not self.is_direct:
            return self.script(text)[-1]
        self.send_last(text)
        return self.last_result()

    def send_last(self, text: bytes) -> None:
        """Send a statement without parameters after the pipelined ones, without waiting."""
        assert self.is_direct
        try:
            self._pipeline(text, (), (), Format.TEXT)
            self._sync()
            self.pgconn.flush()
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def last_result(self) -> pq.abc.PGresult:
        """Wait for all that was sent; returns the last result. Goes on after `StoreIsSlow`."""
        try:
            return self._drain()[-1]
        except psycopg.Error as error:
            raise self._lost(reason_of(error)) from error

    def roll_back(self) -> None:
        """Take back the transaction; the connection is idle then, or closed."""
        self._deferred = ()
        self._takers = []
        if self.is_open and self._pipelined:
            # An error of them does not matter any more.
            with contextlib.suppress(ConnectionLost, StatementRefused, StoreIsSlow, psycopg.Error):
                self._drain()
        if self.is_open and not self.is_idle:
            with contextlib.suppress(ConnectionLost, StatementRefused, StoreIsSlow):
                self.script(b"ROLLBACK")
        if self.is_open and not self.is_idle:
            self.close()

    def _pipeline(
        self,
        text: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[Format],
        answer: Format,
    ) -> None:
        self._enqueue_deferred()
        self._enqueue(text, values, formats, answer)

    def _enqueue_deferred(self) -> None:
        deferred, self._deferred = self._deferred, ()
        for one in deferred:
            self._enqueue(one, (), (), Format.TEXT)

    def _enqueue(
        self,
        text: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[Format],
        answer: Format,
    ) -> None:
        if not self._pipelined:
            self.pgconn.enter_pipeline_mode()
        name = self._prepared_names.get(text)
        if name is None:
            name = self._prepared_names[text] = b"rota_%d" % next(self._names)
            self._pipelined.append(text)
            self.pgconn.send_prepare(name, text)
        self._pipelined.append(None)
        self.pgconn.send_query_prepared(name, values, formats, answer)

    def _sync(self) -> None:
        if not self._is_synced:
            self.pgconn.pipeline_sync()
            self._is_synced = True

    def _drain(self) -> list[pq.abc.PGresult]:
        """Wait for all pipelined statements; raises the first error.

        After `StoreIsSlow` it is called again, and goes on with what has not come yet.
        """
        if not self._pipelined:
            return []
        self._sync()
        self._flush()
        results = self._received
        while True:
            is_lost = not self.is_open
            result = self._next()
            if result is None:
                if is_lost:
                    raise self._lost("the connection was closed")
                continue  # between the results of two statements
            if result.status == ExecStatus.PIPELINE_SYNC:
                self.pgconn.exit_pipeline_mode()
                break
            results.append(result)
            if result.status in FAILED and not self.is_open:
                break
        pipelined, self._pipelined, self._received = self._pipelined, [], []
        takers, self._takers = self._takers, []
        self._is_synced = False
        pairs = list(zip(pipelined, results, strict=False))
        for text, result in pairs:
            if text is not None and result.status != ExecStatus.COMMAND_OK:
                del self._prepared_names[text]
        self._check(results, last=len(pipelined) - 1)
        for place, take in takers:
            _hand_over(results[place], take)
        return [result for text, result in pairs if text is None]

    def _is_direct(self) -> bool:
        """Whether the other end is the server, and not a pooler.

        A pooler invents the process id that it sends to its clients.
        """
        (result,) = self.script(b"SELECT pg_backend_pid()")
        return int(result.get_value(0, 0) or 0) == self.pgconn.backend_pid


def _hand_over(result: pq.abc.PGresult, take: Take) -> None:
    try:
        take(result)
    except Exception:
        # The commit may be durable, and must not look as if it had failed.
        log.exception("result_not_taken")
