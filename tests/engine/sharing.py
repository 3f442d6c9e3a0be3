"""Several coordinators on one store, joined by links in memory.

The store is a double of PostgreSQL, SQLite in memory with an election and a fence of its own, or
PostgreSQL itself. Every frame between two coordinators is encoded and decoded. Their loops run by
themselves, but with leases that last for the whole of a test: what happens follows from what the
test does.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from structlog.testing import capture_logs

from rota.core.replicas import Leader, Role
from rota.engine.coordinator import Coordinator
from rota.engine.replicas.leadership import Leadership
from rota.engine.replicas.link.frames import FollowerFrame, LeaderFrame, OnLeaderFrame, OnLost
from rota.errors import NotLeader, Unavailable
from rota.settings import Settings
from rota.store.database import Transaction
from rota.store.leadership import LeadershipView
from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import MEMORY, SqliteDatabase
from tests.conftest import TurnedClock
from tests.databases import schemas as databases
from tests.databases.schemas import OPTIONS, schemas, url
from tests.engine.replicas.memory import MemoryEnd, memory_pair
from tests.engine.running import Engine, WatchedDatabase, settle, standing_still

T = TypeVar("T")

LEASE_MS = 60_000  # longer than any test takes


# --- the network ----------------------------------------------------------------------------------


class Link:
    """The link of one follower to its leader."""

    def __init__(self, follower: str, leader: str) -> None:
        self.follower = follower
        self.leader = leader
        self.from_follower: MemoryEnd[FollowerFrame, LeaderFrame]
        self.from_leader: MemoryEnd[LeaderFrame, FollowerFrame]
        self.from_follower, self.from_leader = memory_pair()

    def cut(self) -> None:
        """Lose the link, and all frames that are on their way."""
        self.from_follower.cut(ConnectionResetError("the link was lost"))


class Network:
    """The links between coordinators, found by their names."""

    def __init__(self) -> None:
        self.coordinators: dict[str, Coordinator] = {}
        self.links: list[Link] = []
        self._apart: set[frozenset[str]] = set()

    def join(self, coordinator: Coordinator) -> None:
        leadership, name = leadership_of(coordinator), coordinator.membership.name
        leadership.address = name
        leadership.dial = partial(self._dial, name)
        self.coordinators[name] = coordinator

    def remove(self, name: str) -> None:
        """Take a coordinator off the network, as its death or a lost cable does."""
        self.coordinators.pop(name, None)
        self._cut(lambda link: name in (link.follower, link.leader))

    def part(self, one: str, other: str) -> None:
        """Let two coordinators not reach each other any more."""
        self._apart.add(frozenset((one, other)))
        self._cut(lambda link: {link.follower, link.leader} == {one, other})

    def heal(self, *names: str) -> None:
        """Let two coordinators reach each other again; none are named: all."""
        self._apart = {one for one in self._apart if names and one != frozenset(names)}

    def hold(self, *, is_held: bool = True) -> None:
        """Keep the frames of leaders on their way, so that they are lost when their link is."""
        for link in self.links:
            link.from_leader.is_held = is_held
            link.from_leader.flush()

    def _cut(self, is_cut: Callable[[Link], bool]) -> None:
        for link in [one for one in self.links if is_cut(one)]:
            self.links.remove(link)
            link.cut()

    async def _dial(
        self, name: str, leader: Leader, secret: bytes, on_frame: OnLeaderFrame, on_lost: OnLost
    ) -> MemoryEnd[FollowerFrame, LeaderFrame]:
        other = self.coordinators.get(leader.address)
        if other is None or frozenset((name, leader.address)) in self._apart:
            raise ConnectionRefusedError(f"{leader.address} is not reached from {name}")
        there = leadership_of(other)
        if there.role is not Role.LEADER or there.epoch != leader.epoch or there.secret() != secret:
            raise ConnectionRefusedError(f"{leader.address} does not lead")
        link = Link(name, leader.address)
        link.from_leader.start(*other.membership.followers.accept(name, link.from_leader))
        link.from_follower.start(on_frame, on_lost)
        self.links.append(link)
        return link.from_follower


def leadership_of(coordinator: Coordinator) -> Leadership:
    leadership = coordinator.membership.leadership
    assert leadership is not None, "the store is shared"
    return leadership


# --- the stores -----------------------------------------------------------------------------------


class SharedStore:
    """A double of PostgreSQL. Its handles take turns, and only that of the leader writes."""

    def __init__(self, clock: TurnedClock) -> None:
        self.inner = SqliteDatabase(MEMORY)
        self.clock = clock  # that of the store itself
        self.network = Network()
        self.epoch = 0
        self.leader: tuple[str, str, SharedHandle] | None = None  # its name, address and session
        self.since_ms = 0
        self.expires_at_ms = 0
        self.commits: list[tuple[int, SharedHandle]] = []  # the epoch and the session of each

    def handle(self) -> "SharedHandle":
        return SharedHandle(self)

    def close(self) -> None:
        self.inner.close()


class SharedHandle:
    """The session of one coordinator with the store."""

    is_shared = True

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self.elections = SharedElections(store, self)
        self.epoch: int | None = None
        self.is_connected = True  # False: the database knows that the session is over
        self.is_cut_off = False  # the network to the store is
        self.before_commit: Callable[[], None] = lambda: None  # may raise, and nothing is changed
        self.after_commit: Callable[[], None] = lambda: None  # may raise, as a lost reply does

    def write(self, body: Callable[[Transaction], T]) -> T:
        self.check()
        self.fence()

        def whole(tx: Transaction) -> T:
            answer = body(tx)
            self.before_commit()
            return answer

        answer = self._store.inner.write(whole)
        self._store.commits.append((self._store.epoch, self))
        self.after_commit()
        return answer

    def fence(self) -> None:
        if self.epoch is None or self.epoch != self._store.epoch:
            self.epoch = None
            raise NotLeader

    def disk_free_bytes(self) -> None:
        """Not known, as of a server."""

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> None:
        """Nothing is begun without being waited for."""

    def administer(self, body: Callable[[Transaction], T]) -> T:
        self.check()
        return self._store.inner.write(body)

    def read(self, body: Callable[[Transaction], T]) -> T:
        self.check()
        return self._store.inner.read(body)

    def close(self) -> None:
        """The store outlives its handles."""
        self.is_connected = False

    def check(self) -> None:
        if self.is_cut_off or not self.is_connected:
            raise ConnectionError("the store is not reached")


class SharedElections:
    """The election of the leader of a double."""

    def __init__(self, store: SharedStore, handle: SharedHandle) -> None:
        self._store = store
        self._handle = handle

    @property
    def epoch(self) -> int | None:
        return self._handle.epoch

    def look(self) -> LeadershipView:
        self._check()
        store = self._store
        now_ms = store.clock.now_ms()
        if store.leader is None:
            return LeadershipView(leader=None, now_ms=now_ms)
        name, address, handle = store.leader
        leader = Leader(
            epoch=store.epoch,
            name=name,
            address=address,
            since_ms=store.since_ms,
            expires_in_ms=store.expires_at_ms - now_ms,
            is_connected=handle.is_connected,
        )
        return LeadershipView(leader=leader, now_ms=now_ms)

    def take_over(self, name: str, address: str, *, seen_epoch: int, lease_ms: int) -> int | None:
        leader, store = self.look().leader, self._store
        if store.epoch != seen_epoch:
            return None
        if leader is not None and leader.expires_in_ms > 0 and leader.is_connected:
            return None
        self.begin_epoch()
        store.leader, store.since_ms = (name, address, self._handle), store.clock.now_ms()
        store.expires_at_ms = store.since_ms + lease_ms
        return self._handle.epoch

    def begin_epoch(self) -> None:
        self._store.epoch += 1
        self._handle.epoch = self._store.epoch

    def renew(self, *, lease_ms: int) -> int | None:
        self._check()
        store, now_ms = self._store, self._store.clock.now_ms()
        if self._handle.epoch is None or self._handle.epoch != store.epoch:
            self._handle.epoch = None
            return None
        store.expires_at_ms = now_ms + lease_ms
        return now_ms

    def resign(self) -> None:
        self._check()
        epoch, self._handle.epoch = self._handle.epoch, None
        if epoch is not None and epoch == self._store.epoch:
            self._store.expires_at_ms = self._store.clock.now_ms()

    def secret(self) -> bytes:
        self._check()
        return b"secret"

    def _check(self) -> None:
        try:
            self._handle.check()
        except ConnectionError as error:
            raise Unavailable(str(error)) from error


class PostgresStore:
    """PostgreSQL itself. Leases go by its own clock there, all else by that of the test."""

    def __init__(self, clock: TurnedClock) -> None:
        self.clock = clock
        self.network = Network()
        self._address = address_of(url(), schemas.lend("shared"))

    def handle(self) -> PostgresDatabase:
        return PostgresDatabase(self._address, OPTIONS)

    def close(self) -> None:
        """The schema is taken back when the test is over."""


def open_shared(clock: TurnedClock) -> SharedStore | PostgresStore:
    """A store for several, of the kind that the test which runs is meant for."""
    return SharedStore(clock) if databases.kind == "sqlite" else PostgresStore(clock)


# --- coordinators ---------------------------------------------------------------------------------


class Replica(Engine):
    """One of several coordinators on a store."""

    network: Network

    @property
    def name(self) -> str:
        return self.coordinator.membership.name

    @property
    def role(self) -> Role:
        return self.coordinator.membership.role

    @property
    def handle(self) -> Any:
        """Its session with the store."""
        return self.database._inner

    async def turn(self, by_ms: int) -> None:
        """Let time pass, and the duties see it, wherever they run."""
        self.clock.turn(by_ms)
        for one in sorted(self.network.coordinators.values(), key=lambda one: not _leads(one)):
            await one.tick()

    async def step(self) -> None:
        """Check the leadership now."""
        await leadership_of(self.coordinator).step()

    async def die(self) -> None:
        """End as `kill -9` ends a process: its peers and the database lose their connections."""
        await self.freeze()
        self.network.remove(self.name)
        if isinstance(self.handle, SharedHandle):
            self.handle.is_connected = False
        else:
            self.handle.elections.close()
        await settle()

    async def freeze(self) -> None:
        """Do nothing more, while all connections stay."""
        await leadership_of(self.coordinator).stop()
        self.database.write_problem = ConnectionError("dead")


def leader_of(*engines: Replica) -> Replica:
    (leader,) = [one for one in engines if one.role is Role.LEADER]
    return leader


def _leads(coordinator: Coordinator) -> bool:
    return coordinator.membership.role is Role.LEADER


@asynccontextmanager
async def replica(
    store: SharedStore | PostgresStore,
    name: str,
    *,
    own_clock: TurnedClock | None = None,
    stands_still: bool = True,
    **settings: Any,
) -> AsyncIterator[Replica]:
    """A coordinator on the store. Until it first leads, its duties stand still if so told."""
    database = WatchedDatabase(store.handle(), store.clock)
    coordinator = Coordinator(
        database,
        Settings(replica_name=name, **{"leader_lease_ms": LEASE_MS, **settings}),
        clock=own_clock or store.clock,
        dice=lambda: 0.0,
        inline=True,
    )
    store.network.join(coordinator)
    with capture_logs() as log:
        with standing_still() if stands_still else nullcontext():
            await coordinator.start()
        engine = Replica(coordinator, database, store.clock, log)
        engine.network = store.network
        try:
            yield engine
        finally:
            if database.write_problem is not None:
                coordinator.membership.held.refuse_all()  # nothing is waited for
            await coordinator.stop()
            store.network.remove(name)
            database.close()


@asynccontextmanager
async def replicas(
    clock: TurnedClock, count: int = 2, *, leader: int = 0, **settings: Any
) -> AsyncIterator[Any]:
    """So many coordinators on one new store, called a, b, c…; one of them leads."""
    store = open_shared(clock)
    names = "abcdef"[:count]
    async with AsyncExitStack() as stack:
        stack.callback(store.close)
        started = {}
        for name in sorted(names, key=lambda one: one != names[leader]):
            started[name] = await stack.enter_async_context(replica(store, name, **settings))
        yield [started[name] for name in names]
