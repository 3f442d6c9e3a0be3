"""What is said at one socket, and what is answered? One message after the other.

The next one is taken up when the one before has been answered, so a peer that asks faster than we
answer waits in its own socket. What takes long, such as waiting for a task's end, goes on beside.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog
from starlette.types import Receive

from rota.core import access, limits
from rota.errors import Internal, RotaError, StoreError, TooMany
from rota.gateways.http.problems import presentable
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.routing import KINDS, SILENT, Call, Desk, Later, Route
from rota.gateways.websocket.table import TABLE
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


class Conversation:
    def __init__(self, desk: Desk, connection: Connection) -> None:
        self._desk = desk
        self._connection = connection
        self._later: set[asyncio.Task[None]] = set()

    def greet(self) -> None:
        """Before anything else is said."""
        established = SessionEstablished(session_id=self._connection.session_id)
        self._say("SessionEstablished", established)

    async def run(self, receive: Receive) -> None:
        """Answer until the peer is gone."""
        connection = self._connection
        try:
            while connection.is_open:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return
                await self._take(message)
        finally:
            for task in self._later:
                task.cancel()

    def take_at_once(self, data: bytes) -> bool:
        """Take a message that asks for nothing that has to be waited for; False: it does."""
        connection = self._connection
        if not connection.is_open or not connection.is_roomy:
            return False
        envelopes = connection.codec.decode(data)
        if len(envelopes) != 1 or envelopes[0] is None:
            return False
        envelope = envelopes[0]
        kind, _, address = (envelope.to or "").partition(":")
        route = TABLE.get((kind, envelope.type or ""))
        if route is None or not route.is_brisk or not address:
            return False
        call = Call(self._desk, connection, envelope, address)
        try:
            payload = _begun(route, call)
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            payload = _refused(route, error)
        if payload is not SILENT:
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
            await connection.room()
            if not connection.is_open:
                return

    async def _answer(self, envelope: Envelope | None) -> None:
        """Find what an envelope asks for, or say why it asks for nothing."""
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

    async def _dispatch(self, envelope: Envelope, to: str, kind_of_message: str) -> None:
        kind, _, address = to.partition(":")
        if not kind or not address:
            self._refuse(f"Invalid 'to' field: {to}", "invalid_address", envelope)
            return
        if kind not in KINDS:
            self._refuse(f"Unknown actor type: {kind}", "unknown_actor_type", envelope)
            return
        route = TABLE.get((kind, kind_of_message))
        if route is None:
            self._reply(envelope, UNKNOWN, UI)
            return
        call = Call(self._desk, self._connection, envelope, address)
        payload = await self._payload(route, self._called(route, call))
        if isinstance(payload, Later):
            self._follow(route, envelope, payload.work)
        elif payload is not SILENT:
            self._reply(envelope, payload, route.proxy)

    async def _called(self, route: Route, call: Call) -> Any:
        answer = _begun(route, call)
        return answer if route.is_brisk else await answer

    async def _payload(self, route: Route, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            return _refused(route, error)

    # --- what takes long ------------------------------------------------------------------------

    def _follow(self, route: Route, envelope: Envelope, work: Coroutine[Any, Any, Any]) -> None:
        if len(self._later) >= limits.MAX_SESSION_WAITS:
            work.close()
            most = limits.MAX_SESSION_WAITS
            self._reply(envelope, refusal(TooMany(f"{most} answers are waited for")), route.proxy)
            return
        task = asyncio.create_task(self._reply_later(route, envelope, work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _reply_later(
        self, route: Route, envelope: Envelope, work: Coroutine[Any, Any, Any]
    ) -> None:
        self._reply(envelope, await self._payload(route, work), route.proxy)

    # --- speaking -------------------------------------------------------------------------------

    def _reply(self, envelope: Envelope, payload: Any, to: str) -> None:
        self._say(f"{envelope.type}Response", payload, to=to, reply_to=_id_of(envelope))

    def _refuse(self, text: str, code: str, envelope: Envelope | None = None) -> None:
        reply_to = None if envelope is None else _id_of(envelope)
        self._say("Error", FrameError(error=text, code=code), reply_to=reply_to)

    def _pong(self, envelope: Envelope) -> None:
        pong = Outgoing(
            type="HEARTBEAT_PONG",
            to=envelope.sender or UI,
            sender=SYSTEM,
            id=_id_of(envelope),
            timestamp=self._desk.coordinator.clock.now_ms(),
        )
        self._connection.put(pong)

    def _say(self, kind: str, payload: Any, *, to: str = UI, reply_to: Any = None) -> None:
        connection = self._connection
        message = Outgoing(
            type=kind,
            to=to,
            sender=connection.address,
            payload=payload,
            id=connection.new_id(),
            timestamp=self._desk.coordinator.clock.now_ms(),
            reply_to=reply_to,
        )
        connection.put(message)


def _begun(route: Route, call: Call) -> Any:
    access.check(call.caller, route.action)
    return route.handler(call)


def _refused(route: Route, error: Exception) -> FrameError:
    """What is answered; what is our own fault is logged with its reason."""
    shown = presentable(error)
    if isinstance(error, StoreError) or isinstance(shown, Internal):
        log.error("message_failed", type=route.type, exc_info=error)
    return refusal(shown)


def refusal(error: RotaError) -> FrameError:
    return FrameError(error=error.detail, code=error.code)


def _id_of(envelope: Envelope) -> Any:
    return envelope.id if is_given(envelope.id) else None
