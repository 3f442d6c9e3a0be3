"""A store on PostgreSQL: one connection that writes, a few that read, and what follows a break."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import structlog
from psycopg.pq.abc import PGresult

from rota.errors import StoreError, Unavailable
from rota.store.database import Transaction
from rota.store.postgres import schema, troubles
from rota.store.postgres.address import Address
from rota.store.postgres.hints import Hints
from rota.store.postgres.link import Link, LinkLost, Refused
from rota.store.postgres.options import PostgresOptions
from rota.store.postgres.queries import load
from rota.store.postgres.transaction import PostgresTransaction

log = structlog.get_logger("rota.store")
T = TypeVar("T")

APPLICATION = "rota"
FIRST_PAUSE_S = 0.1  # before a connection is tried again; twice as long each time
LONGEST_PAUSE_S = 5.0
READER_WAIT_S = 10.0  # for a connection that reads, when all are busy
COMMIT = b"COMMIT"
ROLLBACK = b"ROLLBACK"


class PostgresDatabase:
    is_shared = True

    def __init__(self, address: Address, options: PostgresOptions | None = None) -> None:
        self.address = address
        self.options = options = options or PostgresOptions()
        self._queries = load()
        self._begin = schema.beginnings(address, options)
        self._guard = threading.RLock()  # one write at a time
        self._state = threading.Lock()
        self._writer: Link | None = None
        self._readers: list[Link] = []
        self._free = threading.BoundedSemaphore(options.readers)
        self._turn: int | None = None  # after our last commit; None: not known
        self._problem: str | None = None  # why the database is away
        self._closed = threading.Event()
        self._reconnecting: threading.Thread | None = None
        try:
            self.migrated = self._prepare()
            self._writer = self._connect()
        except (LinkLost, Refused) as error:
            self._drop_writer()
            raise StoreError(f"{address.shown} cannot be used as a store: {error}") from None
        except BaseException:
            self._drop_writer()
            raise
        self._hints = Hints(address, is_on=options.notify)

    def _prepare(self) -> tuple[int, int]:
        with self._patient() as link:
            return schema.prepare(link, self.address)

    def take_away(self) -> list[int]:
        """Drop what only coordinators of the version before need."""
        with self._patient() as link:
            return schema.take_away(link, self.address)

    @contextlib.contextmanager
    def _patient(self) -> Iterator[Link]:
        """A connection for what may take long."""
        link = Link(self.address.url, name=APPLICATION, limit_ms=schema.MIGRATION_MS)
        try:
            yield link
        finally:
            link.close()

    # --- writing --------------------------------------------------------------------------------

    def write(self, body: Callable[[Transaction], T]) -> T:
        with self._guard:
            link, last_turn, now_ms = self._begin_write()
            transaction = PostgresTransaction(
                link, self._queries, is_foreign=last_turn != self._turn, now_ms=now_ms
            )
            try:
                answer = body(transaction)
            except (LinkLost, Refused) as trouble:
                self._roll_back(link)
                raise troubles.judged(trouble) from trouble
            except BaseException:
                self._roll_back(link)
                raise
            self._turn = self._commit(link, transaction, last_turn)
            return answer

    def _begin_write(self) -> tuple[Link, int, int]:
        """A connection that has the lock, the last turn, and the time where the database is."""
        is_fresh = False
        while True:
            link = self._writer
            if link is None:
                self._refuse_while_away()
                link, is_fresh = self._open_writer(), True
            try:
                turn, now_ms = self._link_begins(link)
            except LinkLost as lost:
                self._drop_writer()
                # One that was idle may have been lost long ago: that need not cost anybody a call.
                if is_fresh:
                    raise self._away(str(lost)) from lost
            except Refused as refused:
                self._roll_back(link)
                raise troubles.judged(refused) from refused
            else:
                return link, turn, now_ms

    def _link_begins(self, link: Link) -> tuple[int, int]:
        last = link.script(self._begin.write)[-1]
        return int(last.get_value(0, 0) or 0), int(last.get_value(0, 1) or 0)

    def _commit(self, link: Link, transaction: PostgresTransaction, last_turn: int) -> int:
        """Commit; the answer is the turn that is ours."""
        statements = self._begin.commit if transaction.has_changed else [COMMIT]
        self._turn, before = None, self._turn
        try:
            results = link.finish(statements)
        except LinkLost as lost:
            self._drop_writer()
            self._away(str(lost))
            raise troubles.unknown(str(lost)) from lost
        except Refused as refused:
            self._roll_back(link)
            self._turn = before
            raise troubles.judged(refused) from refused
        assert results[-1].command_status == COMMIT, "a broken transaction was to be committed"
        return int(results[0].get_value(0, 0) or 0) if transaction.has_changed else last_turn

    def _roll_back(self, link: Link) -> None:
        """After this the connection is as new, or gone."""
        if link.is_open and not link.is_idle:
            with contextlib.suppress(LinkLost, Refused):
                link.script(ROLLBACK)
        if not (link.is_open and link.is_idle):
            self._drop_writer()

    # --- reading --------------------------------------------------------------------------------

    def read(self, body: Callable[[Transaction], T]) -> T:
        with self._reader(self._begin.read) as (link, _):
            return body(PostgresTransaction(link, self._queries))

    def turn(self) -> int:
        with self._reader(self._begin.turn) as (_, found):
            return int(found.get_value(0, 0) or 0)

    @contextlib.contextmanager
    def _reader(self, beginning: bytes) -> Iterator[tuple[Link, PGresult]]:
        """A connection that reads, and the answer to the last of the first statements on it."""
        if not self._free.acquire(timeout=READER_WAIT_S):
            raise troubles.unavailable("all of its connections are busy")
        link: Link | None = None
        try:
            link, result = self._begin_read(beginning)
            yield link, result
        except (LinkLost, Refused) as trouble:
            raise troubles.judged(trouble) from trouble
        finally:
            if link is not None:
                self._give_back(link)
            self._free.release()

    def _begin_read(self, beginning: bytes) -> tuple[Link, PGresult]:
        while True:
            self._refuse_while_away()
            with self._state:
                known = self._readers.pop() if self._readers else None
            try:
                link = known or self._connect()
                return link, link.script(beginning)[-1]
            except LinkLost as lost:
                # One that was idle may have been lost long ago; the next one is tried.
                if known is None:
                    raise self._away(str(lost)) from lost

    def _give_back(self, link: Link) -> None:
        if link.is_open and not link.is_idle:
            with contextlib.suppress(LinkLost, Refused):
                link.script(ROLLBACK)
        if link.is_open and link.is_idle and not self._closed.is_set():
            with self._state:
                self._readers.append(link)
        else:
            link.close()

    # --- telling others -------------------------------------------------------------------------

    def hint(self) -> None:
        self._hints.give()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._hints.listen(callback)

    # --- coming and going -----------------------------------------------------------------------

    def close(self) -> None:
        self._closed.set()
        self._hints.close()
        with self._state:
            thread, readers, self._readers = self._reconnecting, self._readers, []
        if thread is not None:
            thread.join()
        for link in readers:
            link.close()
        self._drop_writer()

    def _connect(self) -> Link:
        return Link(self.address.url, name=APPLICATION, limit_ms=self.options.statement_ms)

    def _open_writer(self) -> Link:
        try:
            self._writer = self._connect()
        except LinkLost as lost:
            raise self._away(str(lost)) from lost
        return self._writer

    def _drop_writer(self) -> None:
        link, self._writer = self._writer, None
        if link is not None:
            link.close()

    def _refuse_while_away(self) -> None:
        if self._problem is not None:
            raise troubles.unavailable(self._problem)

    def _away(self, reason: str) -> Unavailable:
        """The database is not there: until it is back, nobody waits for it but one thread."""
        with self._state:
            self._problem = reason
            if self._reconnecting is None and not self._closed.is_set():
                log.warning("store away", store=self.address.shown, problem=reason)
                self._reconnecting = threading.Thread(
                    target=self._come_back, name="rota-reconnect", daemon=True
                )
                self._reconnecting.start()
        return troubles.unavailable(reason)

    def _come_back(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.wait(pause_s * random.uniform(0.5, 1.0)):  # noqa: S311
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                link = self._connect()
                link.script(self._begin.turn)
            except (LinkLost, Refused) as error:
                self._problem = str(error)
                continue
            self._arrive(link)
            return

    def _arrive(self, link: Link) -> None:
        with self._state:
            self._readers.append(link)
            self._problem = self._reconnecting = None
        log.info("store back", store=self.address.shown)
