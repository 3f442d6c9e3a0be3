"""Everything one coordinator process runs, put together: store, engine, gateways.

This is the only place that knows all of them. The command line serves a node, an embedding
program calls it in process, and tests turn its clock.
"""

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rota.core.access import AccessToken
from rota.core.shards.members import ShardPolicy
from rota.engine.clock import Clock, SystemClock
from rota.engine.coordinator import Coordinator
from rota.engine.policies import policies_of
from rota.errors import Invalid, TokenNotFound, Unavailable
from rota.gateways.auth.authenticator import Authenticator, refuse_unsafe_bind
from rota.gateways.definitions.reader import DefinitionReader
from rota.gateways.http.app import create_app
from rota.gateways.http.routing.endpoint import HttpServices, Traffic
from rota.gateways.http.server.server import HttpServer
from rota.gateways.quotas import Quotas
from rota.gateways.registration import WorkerQuota
from rota.gateways.websocket.gateway import SocketGateway
from rota.gateways.websocket.protocol import SocketOptions, SocketProtocol
from rota.settings import Settings
from rota.store import opening
from rota.store.access import TokenStore
from rota.store.database import Database, Transaction
from rota.store.opening import file_of
from rota.store.workflow.blobs import Blobs

if TYPE_CHECKING:
    from rota.store.postgres.database import PostgresDatabase
    from rota.store.sqlite.database import SqliteDatabase

T = TypeVar("T")

BACKLOG = 2_048  # connections the system holds while the loop is busy
PING_INTERVAL_S = 5  # between two questions whether anybody is at the other end of a socket
PING_TIMEOUT_S = 10  # for the answer
BEATS_PER_LEASE = 3  # that members of services are asked for: two may be lost


def open_database(settings: Settings) -> "SqliteDatabase | PostgresDatabase":
    options = None
    if opening.is_postgres(settings.store):
        from rota.store.postgres.address import PostgresOptions  # noqa: PLC0415 - an extra

        options = PostgresOptions(
            schema=settings.postgres_schema,
            readers=settings.postgres_readers,
            notify=settings.postgres_notify,
            statement_ms=settings.postgres_statement_ms,
        )
    database = opening.open_database(settings.store, options)
    try:
        opening.check_whole(database, opening.name_of(settings.store))
    except BaseException:
        database.close()
        raise
    return database


def _blobs(settings: Settings) -> Blobs | None:
    """Large artifacts lie beside the file, if there is one; else they are rows as well."""
    path = file_of(settings.store)
    return None if path is None else Blobs.beside(path)


def shard_policy_of(settings: Settings) -> ShardPolicy:
    return ShardPolicy(
        lease_ms=settings.shard_lease_ms,
        heartbeat_interval_ms=max(1, settings.shard_lease_ms // BEATS_PER_LEASE),
        sweep_ms=settings.shard_sweep_ms,
        stuck_ms=settings.shard_stuck_ms,
        when_stuck=settings.shard_stuck,
        health=policies_of(settings).health,
    )


class Node:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        dice: Callable[[], float] = random.random,
        inline: bool = False,
        database: Database | None = None,
    ) -> None:
        """Open the store; nothing runs before `start`. Inline: no threads, for tests."""
        self.settings = settings
        self.database = database or open_database(settings)
        clock = clock or SystemClock()
        self.coordinator = Coordinator(
            self.database,
            settings,
            clock=clock,
            dice=dice,
            inline=inline,
            blobs=_blobs(settings) if database is None else None,
            shard_policy=shard_policy_of(settings),
        )
        self.authenticator = Authenticator(
            settings, self.coordinator.queries.tokens, now_ms=self.coordinator.clock.now_ms
        )
        self.quotas = Quotas(settings)
        worker_quota = WorkerQuota(settings, self.coordinator.queries.registered)
        self.sockets = SocketGateway(
            self.coordinator, self.authenticator, settings, self.quotas, worker_quota
        )
        services = HttpServices(
            self.coordinator,
            self.authenticator,
            settings,
            Traffic(),
            DefinitionReader(),
            self.quotas,
            worker_quota,
        )
        self.app = create_app(services)
        self.shards_url: str | None = None  # where members of services reach us over ZeroMQ
        self._server: HttpServer | None = None
        self._stop_asked = asyncio.Event()

    async def start(self) -> None:
        await self.coordinator.start()

    async def stop(self) -> None:
        await self.sockets.stop()
        self.authenticator.uses.stop()
        await self.coordinator.stop()
        self.database.close()

    async def serve(self, on_ready: Callable[[str], None] | None = None) -> None:
        """Listen until a stop is asked for; then finish what is under way."""
        # Takes its time to load, and is of no use to a coordinator within a program.
        from rota.gateways.zeromq.gateway import open_gateway  # noqa: PLC0415

        with ExitStack() as doors:
            try:
                refuse_unsafe_bind(
                    self.settings, self.database.read(lambda tx: TokenStore(tx).all())
                )
                listener = _listen(self.settings.host, self.settings.port)
                doors.callback(listener.close)
                gateway = open_gateway(self.coordinator, self.settings)
            except BaseException:
                self.database.close()
                raise
            if gateway is not None:
                self.shards_url = gateway.address
                doors.callback(gateway.close)
            self.coordinator.presence.url = _url(*listener.getsockname()[:2])
            await self.start()
            try:
                if gateway is not None:
                    gateway.start()
                await self._serve_on(listener, on_ready)
            finally:
                await self.stop()

    async def _serve_on(
        self, listener: socket.socket, on_ready: Callable[[str], None] | None
    ) -> None:
        options = SocketOptions(self.settings.max_frame_bytes, PING_INTERVAL_S, PING_TIMEOUT_S)
        upgrade = partial(SocketProtocol, app=self.sockets, options=options)
        self._server = HttpServer(self.app, upgrade)
        if self._stop_asked.is_set():
            return
        self._server.start(listener)
        if on_ready is not None:
            on_ready(_url(*listener.getsockname()[:2]))
        try:
            await self._stop_asked.wait()
        finally:
            await self._server.stop()

    def ask_to_stop(self) -> None:
        """Stop serving soon; may be called from a signal handler on the loop."""
        self._stop_asked.set()
        self.coordinator.is_ready = False
        self.sockets.close_all()
        self.coordinator.release_waiting()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio switches delays off only for connections that say so.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error.strerror}; is another coordinator "
            "running? Give another port with --port"
        ) from error
    except OverflowError as error:
        listener.close()
        raise Invalid(f"{port} is not a port", field="port") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return listener


def _url(host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


# --- without a running coordinator -----------------------------------------------------------


def _with_store(settings: Settings, body: Callable[[Transaction], T]) -> T:
    database = open_database(settings)
    try:
        return database.write(body)
    finally:
        database.close()


def migrate(settings: Settings, *, post: bool = False) -> tuple[int, int]:
    """Bring the store to the newest shape; says from which version to which."""
    database = open_database(settings)
    try:
        if post:
            database.drop_legacy()
    finally:
        database.close()
    return database.migrated


def migration_sql(settings: Settings) -> str:
    """What makes an empty store one of the newest shape."""
    return opening.sql_of(settings.store, settings.postgres_schema)


def create_token(settings: Settings, token: AccessToken) -> None:
    _with_store(settings, lambda tx: TokenStore(tx).put(token))


def list_tokens(settings: Settings) -> list[AccessToken]:
    return _with_store(settings, lambda tx: TokenStore(tx).all())


def revoke_token(settings: Settings, token_id: str) -> None:
    def body(tx: Transaction) -> None:
        if token_id not in TokenStore(tx).ids():
            raise TokenNotFound(token_id)
        TokenStore(tx).delete(token_id)

    _with_store(settings, body)
