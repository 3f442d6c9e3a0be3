"""Everything one coordinator process runs, put together: store, engine, gateways.

This is the only place that knows all of them. The command line serves a node, an embedding
program calls it in process, and tests turn its clock.
"""

import asyncio
import dataclasses
import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from msgspec.structs import replace

from rota.administration import open_database
from rota.engine.clock import Clock, SystemClock
from rota.engine.coordinator import Coordinator
from rota.errors import Invalid, StoreDiskFull, StoreFull, Unavailable
from rota.gateways.auth.authenticator import Authenticator, refuse_unsafe_bind
from rota.gateways.definitions.reader import DefinitionReader
from rota.gateways.http.app import create_app
from rota.gateways.http.routing.endpoint import HttpServices, Traffic
from rota.gateways.http.routing.router import Application
from rota.gateways.http.server.server import HttpServer
from rota.gateways.http.server.tls import ServerTls, open_tls
from rota.gateways.peers.gateway import PeerGateway
from rota.gateways.quotas import Quotas
from rota.gateways.registration import WorkerQuota
from rota.gateways.websocket.gateway import SocketGateway
from rota.gateways.websocket.protocol import SocketOptions, SocketProtocol
from rota.settings import Settings
from rota.store.access import TokenStore
from rota.store.database import Database
from rota.store.opening import file_of, name_of
from rota.store.sqlite.database import SqliteDatabase
from rota.store.workflow.blobs import Blobs

BACKLOG = 2_048  # connections the system holds while the loop is busy
ANY_HOST = "0.0.0.0"  # noqa: S104 - nothing is bound to it: it is how a public host is judged
PING_INTERVAL_S = 5  # between two pings of a socket
PING_TIMEOUT_S = 10  # for the pong


def _blobs(settings: Settings) -> Blobs | None:
    """Return where large artifacts are stored: beside the store's file; None: in rows."""
    path = file_of(settings.store)
    return None if path is None else Blobs.beside(path)


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
        )
        self.authenticator = Authenticator(
            settings, self.coordinator.queries.tokens, now_ms=self.coordinator.clock.now_ms
        )
        self._token_uses = [self.authenticator.uses]
        self.quotas = Quotas(settings)
        self._peers = PeerGateway(self.coordinator, settings)
        worker_quota = WorkerQuota(settings, self.coordinator.queries.workers.registered)
        self.sockets = SocketGateway(
            self.coordinator, self.authenticator, settings, self.quotas, worker_quota
        )
        self._services = HttpServices(
            self.coordinator,
            self.authenticator,
            settings,
            Traffic(),
            DefinitionReader(),
            self.quotas,
            worker_quota,
        )
        self.app = create_app(self._services)
        self.shards_url: str | None = (
            None  # where members of services reach the coordinator over ZeroMQ
        )
        self._server: HttpServer | None = None
        self._tls: ServerTls | None = None
        self._stop_asked = asyncio.Event()

    def app_behind_server(self, *, is_open: bool) -> Application:
        """The HTTP application inside another server, whose callers may come from anywhere.

        They need tokens, also where this node accepts local callers without one. With `is_open` the
        server has admitted them itself; foreign web pages are refused all the same.
        """
        settings = replace(
            self.settings, host=ANY_HOST, insecure=is_open, require_token=not is_open
        )
        authenticator = Authenticator(
            settings, self.coordinator.queries.tokens, now_ms=self.coordinator.clock.now_ms
        )
        self._token_uses.append(authenticator.uses)
        return create_app(dataclasses.replace(self._services, authenticator=authenticator))

    async def start(self) -> None:
        try:
            await self.coordinator.start()
        except StoreFull as error:  # which speaks of a coordinator that runs
            raise StoreDiskFull(name_of(self.settings.store)) from error

    async def stop(self) -> None:
        await self.sockets.stop()
        for uses in self._token_uses:
            uses.stop()
        await self.coordinator.stop()
        self.database.close()

    async def serve(self, on_ready: Callable[[str], None] | None = None) -> None:
        """Listen until a stop is asked for; then finish what is under way."""
        # Slow to load, and an embedded coordinator does not need it.
        from rota.gateways.zeromq.gateway import open_gateway  # noqa: PLC0415

        with ExitStack() as doors:
            try:
                refuse_unsafe_bind(
                    self.settings, self.database.read(lambda tx: TokenStore(tx).all())
                )
                self._tls = open_tls(self.settings)
                listener = _listen(self.settings.host, self.settings.port)
                doors.callback(listener.close)
                gateway = open_gateway(self.coordinator, self.settings)
            except BaseException:
                self.database.close()
                raise
            if gateway is not None:
                self.shards_url = gateway.address
                doors.callback(gateway.close)
            self._peers.advertise(self._url(listener))
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
        sockets = partial(SocketProtocol, app=self.sockets, options=options)
        upgrades = self._peers.upgrades() | {b"websocket": sockets}
        self._server = HttpServer(self.app, upgrades, self._tls)
        if self._stop_asked.is_set():
            return
        self._server.start(listener)
        if isinstance(self.database, SqliteDatabase):
            self.database.note_address(self._url(listener))
        if on_ready is not None:
            on_ready(self._url(listener))
        try:
            await self._stop_asked.wait()
        finally:
            await self._server.stop()

    def reload_certificate(self) -> None:
        """Read the TLS certificate and its key again, for new connections."""
        if self._tls is not None:
            self._tls.reload()

    def _url(self, listener: socket.socket) -> str:
        host, port = listener.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def ask_to_stop(self) -> None:
        """Stop serving soon; may be called from a signal handler on the loop."""
        self._stop_asked.set()
        self.sockets.close_all()
        self.coordinator.begin_stop()


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
