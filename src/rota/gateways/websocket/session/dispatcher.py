"""Dispatches the messages of one socket to their handlers, one after the other.

The next message is read when the one before has been answered, so a peer that sends faster than it
is answered waits in its own socket. Long work, such as waiting for a task's end, runs beside.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog
from starlette.types import Receive

from rota.core import access, limits
from rota.errors import RotaError, TooMany
from rota.gateways.errors import presented
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.session import reports, status, tasks, workers
from rota.gateways.websocket.session.routing import (
    ANY,
    KINDS,
    NO_REPLY,
    DeferredReply,
    Route,
    SocketCall,
    SocketServices,
)
from rota.gateways.websocket.streaming import messages
from rota.messages.sessions import (
    UI,
    Envelope,
    FrameError,
    Outgoing,
    SessionEstablished,
    is_given,
)

log = structlog.get_logger("rota.websocket")

SYSTEM = "__system__"
UNKNOWN = FrameError(error="Unknown message type")
PONG = Outgoing(type="pong")

ROUTES: tuple[Route, ...] = (
    *workers.routes.rows,
    *reports.routes.rows,
    *tasks.routes.rows,
    *status.routes.rows,
    *messages.routes.rows,
)

TABLE: dict[tuple[str, str], Route] = {
    (kind, route.type): route
    for route in ROUTES
    for kind in (KINDS if route.kind == ANY else {route.kind})
}


class MessageDispatcher:
    def __init__(self, services: SocketServices, connection: Connection) -> None:
        self._services = services
        self._connection = connection
        self._deferred: set[asyncio.Task[None]] = set()

    def send_established(self) -> None:
        """Send the first message of a session."""
        established = SessionEstablished(session_id=self._connection.session_id)
        self._send("SessionEstablished", established)

    async def run(self, receive: Receive) -> None:
        """Handle messages until the peer is gone."""
        connection = self._connection
        try:
            while connection.is_open:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return
                await self._take(message)
        finally:
            for task in self._deferred:
                task.cancel()

    def handle_immediately(self, data: bytes) -> bool:
        """Handle a message without waiting; False: it needs to wait, or is unusual."""
        connection = self._connection
        if not connection.is_open or not connection.has_capacity:
            return False
        envelopes = connection.codec.decode(data)
        if len(envelopes) != 1 or envelopes[0] is None:
            return False
        envelope = envelopes[0]
        kind, _, address = (envelope.to or "").partition(":")
        route = TABLE.get((kind, envelope.type or ""))
        if route is None or not route.is_immediate or not address:
            return False
        call = SocketCall(self._services, connection, envelope, address)
        try:
            payload = _call_handler(route, call)
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            payload = _refused(route, error)
        if payload is not NO_REPLY:
            self._reply(envelope, payload, route.proxy)
        return True

    async def _take(self, message: Any) -> None:
        connection, codec = self._connection, self._connection.codec
        data = message.get("text") if codec.is_text else message.get("bytes")
        if data is None:
            if not codec.is_text:
                self._refuse("Invalid message format", "invalid_message")
            return  # a binary frame that was not agreed on
        for envelope in codec.decode(data):
            await self._answer(envelope)
            await connection.wait_for_capacity()
            if not connection.is_open:
                return

    async def _answer(self, envelope: Envelope | None) -> None:
        """Dispatch an envelope, or refuse one that is not valid."""
        if envelope is None:
            self._refuse("Invalid message format", "invalid_message")
        elif envelope.to is None and envelope.type == "ping":
            self._connection.put(PONG)
        elif envelope.to is None or envelope.type is None:
            self._refuse("Invalid message format", "invalid_message")
        elif envelope.to == SYSTEM and envelope.type == "HEARTBEAT_PING":
            self._pong(envelope)
        else:
            await self._dispatch(envelope, envelope.to, envelope.type)

    async def _dispatch(self, envelope: Envelope, to: str, message_type: str) -> None:
        kind, _, address = to.partition(":")
        if not kind or not address:
            self._refuse(f"Invalid 'to' field: {to}", "invalid_address", envelope)
            return
        if kind not in KINDS:
            self._refuse(f"Unknown actor type: {kind}", "unknown_actor_type", envelope)
            return
        route = TABLE.get((kind, message_type))
        if route is None:
            self._reply(envelope, UNKNOWN, UI)
            return
        call = SocketCall(self._services, self._connection, envelope, address)
        payload = await self._payload(route, self._called(route, call))
        if isinstance(payload, DeferredReply):
            self._defer(route, envelope, payload.work)
        elif payload is not NO_REPLY:
            self._reply(envelope, payload, route.proxy)

    async def _called(self, route: Route, call: SocketCall) -> Any:
        answer = _call_handler(route, call)
        return answer if route.is_immediate else await answer

    async def _payload(self, route: Route, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            return _refused(route, error)

    # --- deferred replies -----------------------------------------------------------------------

    def _defer(self, route: Route, envelope: Envelope, work: Coroutine[Any, Any, Any]) -> None:
        if len(self._deferred) >= limits.MAX_SESSION_WAITS:
            work.close()
            most = limits.MAX_SESSION_WAITS
            self._reply(envelope, refusal(TooMany(f"{most} answers are pending")), route.proxy)
            return
        quota, holder = self._services.quotas.socket_waits, self._connection.reservation.holder
        try:
            quota.take(holder, self._connection.caller)
        except TooMany as error:
            work.close()
            self._reply(envelope, refusal(error), route.proxy)
            return
        task = asyncio.create_task(self._reply_when_done(route, envelope, work))
        self._deferred.add(task)
        task.add_done_callback(self._deferred.discard)
        # A task that is cancelled before its first step has not begun to await this.
        task.add_done_callback(lambda _: work.close())
        task.add_done_callback(lambda _: quota.release(holder))

    async def _reply_when_done(
        self, route: Route, envelope: Envelope, work: Coroutine[Any, Any, Any]
    ) -> None:
        self._reply(envelope, await self._payload(route, work), route.proxy)

    # --- replies --------------------------------------------------------------------------------

    def _reply(self, envelope: Envelope, payload: Any, to: str) -> None:
        self._send(f"{envelope.type}Response", payload, to=to, reply_to=_id_of(envelope))

    def _refuse(self, text: str, code: str, envelope: Envelope | None = None) -> None:
        reply_to = None if envelope is None else _id_of(envelope)
        self._send("Error", FrameError(error=text, code=code), reply_to=reply_to)

    def _pong(self, envelope: Envelope) -> None:
        pong = Outgoing(
            type="HEARTBEAT_PONG",
            to=envelope.sender or UI,
            sender=SYSTEM,
            id=_id_of(envelope),
            timestamp=self._services.coordinator.clock.now_ms(),
        )
        self._connection.put(pong)

    def _send(self, kind: str, payload: Any, *, to: str = UI, reply_to: Any = None) -> None:
        now_ms = self._services.coordinator.clock.now_ms()
        self._connection.send(kind, payload, to=to, reply_to=reply_to, timestamp=now_ms)


def _call_handler(route: Route, call: SocketCall) -> Any:
    access.check(call.caller, route.action)
    return route.handler(call)


def _refused(route: Route, error: Exception) -> FrameError:
    return refusal(presented(error, log, "message_failed", type=route.type))


def refusal(error: RotaError) -> FrameError:
    return FrameError(error=error.detail, code=error.code)


def _id_of(envelope: Envelope) -> Any:
    return envelope.id if is_given(envelope.id) else None
