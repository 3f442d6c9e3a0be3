"""The WebSocket gateway: opens, limits and closes sockets."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qs

import structlog
from starlette.types import Receive, Scope, Send

from rota.core import limits
from rota.core.access import Caller
from rota.engine.coordinator import Coordinator
from rota.errors import Invalid, NotFound, RotaError, Unavailable
from rota.gateways.auth.authenticator import Authenticator
from rota.gateways.auth.request_auth import Headers, authenticate
from rota.gateways.auth.token_uses import ENDED, TokenUse
from rota.gateways.errors import presentable
from rota.gateways.http.routing.responses import API_HEADERS, problem
from rota.gateways.quotas import Quotas, Reservation, address_of, holder_of
from rota.gateways.registration import WorkerQuota
from rota.gateways.websocket.codecs import codec_for
from rota.gateways.websocket.connection import POLICY, RESTARTING, Connection
from rota.gateways.websocket.protocol import CLOSE_TIMEOUT_S, TRANSPORT_EXTENSION
from rota.gateways.websocket.session.dispatcher import MessageDispatcher
from rota.gateways.websocket.session.notifications import SocketSessions
from rota.gateways.websocket.session.routing import SocketServices
from rota.settings import Settings

log = structlog.get_logger("rota.websocket")

PATH = "/ws"
SESSION_PREFIX = b"rota session "
BOUND_SESSION_PREFIX = b"rota bound session "  # no name turns the one prefix into the other
# Half the interval of pings, so that each answered ping makes a heartbeat.
HEARTBEAT_EVERY_S = 2.5


def session_id_of(name: str | None, binding: str = "") -> str:
    """The id of a session: the same name under the same binding always gives the same one.

    A name is private to the binding of the token that uses it. Under another binding it is the name
    of another session. Without a name the session belongs to one socket alone.
    """
    if not name:
        return secrets.token_hex(32)
    if not binding:
        return hashlib.sha256(SESSION_PREFIX + name.encode()).hexdigest()
    owner = hashlib.sha256(binding.encode()).digest()
    return hashlib.sha256(BOUND_SESSION_PREFIX + owner + name.encode()).hexdigest()


class SocketGateway:
    def __init__(
        self,
        coordinator: Coordinator,
        authenticator: Authenticator,
        settings: Settings,
        quotas: Quotas,
        worker_quota: WorkerQuota,
    ) -> None:
        self._coordinator = coordinator
        self._authenticator = authenticator
        self._quotas = quotas
        self._sessions = SocketSessions(coordinator)
        self._open: dict[Connection, TokenUse | None] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        self.services = SocketServices(coordinator, settings, quotas, worker_quota)

    @property
    def open_sockets(self) -> int:
        return len(self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket, from its request to its end."""
        await receive()  # the request to connect
        reservation = Reservation(address_of(scope))
        try:
            await self._serve_within(reservation, scope, receive, send)
        finally:
            reservation.end()

    async def _serve_within(
        self, reservation: Reservation, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = dict(scope["headers"])
        try:
            caller = await self._admit(scope, headers, reservation)
            session_id = session_id_of(_session_name(scope["query_string"]), caller.binding)
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            await _refuse(send, presentable(error))
            return
        codec = codec_for(scope.get("subprotocols", ()))
        transport = scope.get("extensions", {}).get(TRANSPORT_EXTENSION)
        connection = Connection(
            send, codec, caller, session_id, transport=transport, reservation=reservation
        )
        self._open[connection] = self._authenticator.uses.add(
            caller, partial(self._revoke, connection)
        )
        try:
            await send({"type": "websocket.accept", "subprotocol": codec.subprotocol})
            await self._serve(connection, receive)
        except OSError:
            pass  # gone before it began
        finally:
            self._close(connection)

    async def _admit(self, scope: Scope, headers: Headers, reservation: Reservation) -> Caller:
        if scope["path"] != PATH:
            raise NotFound(f"path {scope['path']!r} not found", path=scope["path"])
        # A socket can do anything: what a web page elsewhere may not do, it may not open either.
        caller = await authenticate(self._authenticator, headers, is_change=True)
        if self._coordinator.is_stopping:
            raise Unavailable("the coordinator is stopping")
        reservation.caller, reservation.holder = caller, holder_of(caller, scope)
        reservation.take(self._quotas.sockets)
        return caller

    async def _serve(self, connection: Connection, receive: Receive) -> None:
        """Exchange messages until either side closes the socket."""
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat_regularly())
        dispatcher = MessageDispatcher(self.services, connection)
        dispatcher.send_established()
        connection.take_with(dispatcher.handle_immediately)
        writing = asyncio.create_task(connection.write())
        receiving = asyncio.create_task(dispatcher.run(receive))
        self._sessions.enter(connection)
        try:
            await asyncio.wait(
                (writing, receiving, connection.closing), return_when=asyncio.FIRST_COMPLETED
            )
            if not receiving.done():
                # The outbox is sent before the end, within a limit of time.
                await asyncio.wait((writing,), timeout=CLOSE_TIMEOUT_S)
        finally:
            await _cancelled((writing, receiving))

    def _close(self, connection: Connection) -> None:
        # First of all its workers leave, so that what was not sent to them is not sent to it again.
        self.services.drop(connection)
        self._authenticator.uses.drop(self._open.pop(connection, None))
        connection.end()
        self._sessions.leave(connection)

    # --- heartbeats -----------------------------------------------------------------------------

    async def _beat_regularly(self) -> None:
        try:
            while self._open:
                await asyncio.sleep(HEARTBEAT_EVERY_S)
                try:
                    await self.send_heartbeats()
                except Exception:
                    log.exception("heartbeat_round_failed")
        finally:
            self._heartbeats = None

    async def send_heartbeats(self) -> None:
        """Send the heartbeats of the workers on sockets."""
        await self.services.socket_workers.beat()

    def _revoke(self, connection: Connection) -> None:
        """Close a socket whose token has ended."""
        self.services.drop(connection)
        connection.close(POLICY, ENDED)

    # --- stopping -------------------------------------------------------------------------------

    def close_all(self) -> None:
        """Close all sockets, because the coordinator is about to stop."""
        for connection in self._open:
            self.services.socket_workers.detach_all(connection)
            connection.close(RESTARTING, "the coordinator is stopping")

    async def stop(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._sessions.stop()
        self.services.socket_workers.stop()


def _session_name(query: bytes) -> str | None:
    found = parse_qs(query.decode("latin-1")).get("session")
    if not found:
        return None
    if len(found[0]) > limits.MAX_NAME_LENGTH:
        raise Invalid(f"session: at most {limits.MAX_NAME_LENGTH} characters", field="session")
    return found[0]


async def _refuse(send: Send, error: RotaError) -> None:
    answer = problem(error)
    headers = [
        (b"content-type", answer.media_type.encode()),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
        *API_HEADERS,
    ]
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": answer.content})


async def _cancelled(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Cancel these tasks, and log what they raised unless the peer is gone."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
            log.error("socket_failed", exc_info=outcome)
