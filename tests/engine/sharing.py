"""One store for several coordinators, before there is a server of one: a double of PostgreSQL.

Each coordinator has a handle of its own on one SQLite store in memory. Writes come one after the
other, as they do under PostgreSQL's lock, a turn is counted for each that changed something, and
the time of a write is that of the store. Hints reach the others at once, or not at all.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from structlog.testing import capture_logs

from rota.engine.coordinator import Coordinator
from rota.settings import Settings
from rota.store.database import Transaction
from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import MEMORY, SqliteDatabase
from tests.conftest import TurnedClock
from tests.databases import schemas as databases
from tests.databases.schemas import OPTIONS, schemas, url
from tests.databases.wrapping import WrappedTransaction
from tests.engine.running import Engine, WatchedDatabase

T = TypeVar("T")


class SharedStore:
    def __init__(self, clock: TurnedClock) -> None:
        self.inner = SqliteDatabase(MEMORY)
        self.clock = clock  # that of the store itself
        self.turn = 1
        self.are_hints_lost = False
        self.listeners: dict[object, Callable[[], None]] = {}

    def handle(self) -> "SharedHandle":
        return SharedHandle(self)

    def close(self) -> None:
        self.inner.close()


class PostgresStore:
    """The real thing, for tests that are meant for it."""

    def __init__(self, clock: TurnedClock) -> None:
        self.clock = clock
        self._address = address_of(url(), schemas.lend("shared"))

    def handle(self) -> PostgresDatabase:
        return PostgresDatabase(self._address, OPTIONS)

    def close(self) -> None:
        """The schema is taken back when the test is over."""


def open_shared(clock: TurnedClock) -> SharedStore | PostgresStore:
    """A store for several, of the kind that the test which runs is meant for."""
    return SharedStore(clock) if databases.kind == "sqlite" else PostgresStore(clock)


class SharedTransaction(WrappedTransaction):
    def __init__(self, tx: Transaction, *, changed_by_peer: bool, now_ms: int | None) -> None:
        super().__init__(tx)
        self.changed_by_peer = changed_by_peer
        self.now_ms = now_ms


class SharedHandle:
    """What one coordinator has of the store."""

    is_shared = True

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._seen: int | None = None  # the turn of its last commit
        self.is_cut_off = False  # the network is

    def write(self, body: Callable[[Transaction], T]) -> T:
        self._check()
        store, connection = self._store, self._store.inner._writer
        before = connection.total_changes()
        changed_by_peer = self._seen != store.turn
        now_ms = store.clock.now_ms()
        answer = store.inner.write(
            lambda tx: body(SharedTransaction(tx, changed_by_peer=changed_by_peer, now_ms=now_ms))
        )
        store.turn += connection.total_changes() > before
        self._seen = store.turn
        return answer

    def read(self, body: Callable[[Transaction], T]) -> T:
        self._check()
        return self._store.inner.read(
            lambda tx: body(SharedTransaction(tx, changed_by_peer=False, now_ms=None))
        )

    def change_counter(self) -> int:
        self._check()
        return self._store.turn

    def notify_peers(self) -> None:
        if not self._store.are_hints_lost:
            for hear in list(self._store.listeners.values()):
                hear()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        listener = object()
        self._store.listeners[listener] = callback

        def stop() -> None:
            self._store.listeners.pop(listener, None)

        return stop

    def close(self) -> None:
        """The store outlives its handles."""

    def _check(self) -> None:
        if self.is_cut_off:
            raise ConnectionError("the network is down")


@asynccontextmanager
async def replica(
    store: SharedStore | PostgresStore,
    name: str,
    *,
    own_clock: TurnedClock | None = None,
    **settings: Any,
) -> AsyncIterator[Engine]:
    """A coordinator on the store. Its duties and looks stand still unless a test asks for them."""
    database = WatchedDatabase(store.handle(), store.clock)
    coordinator = Coordinator(
        database,
        Settings(replica_name=name, **settings),
        clock=own_clock or store.clock,
        dice=lambda: 0.0,
        inline=True,
    )
    with capture_logs() as log:
        await coordinator.start()
        await coordinator._duties.stop()
        assert coordinator._others is not None
        await coordinator._others.stop()
        try:
            yield Engine(coordinator, database, store.clock, log)
        finally:
            await coordinator.stop()
            database.close()


@asynccontextmanager
async def replicas(clock: TurnedClock, count: int = 2, **settings: Any) -> AsyncIterator[Any]:
    """So many coordinators on one new store, called a, b, c…"""
    store = open_shared(clock)
    async with AsyncExitStack() as stack:
        stack.callback(store.close)
        yield [
            await stack.enter_async_context(replica(store, name, **settings))
            for name in "abcdef"[:count]
        ]


async def catch_up(*engines: Engine) -> None:
    """Let each see what the others have done; what comes of that, too."""
    while any([await one.coordinator.catch_up() for one in engines]):
        pass
