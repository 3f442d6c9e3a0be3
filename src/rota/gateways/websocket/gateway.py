"""The session gateway: who may open a socket, which are open, and how do they end?"""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from urllib.parse import parse_qs

import structlog
from starlette.types import Receive, Scope, Send

from rota.core import limits
from rota.core.access import Caller
from rota.engine.coordinator import Coordinator
from rota.errors import Invalid, NotFound, RotaError, TooMany, Unauthorized, Unavailable
from rota.gateways.admission import Headers, admit, secret_in
from rota.gateways.gate import Gate
from rota.gateways.http.problems import presentable, problem
from rota.gateways.websocket.attachments import Attachments
from rota.gateways.websocket.codecs import codec_for
from rota.gateways.websocket.connection import POLICY, RESTARTING, Connection
from rota.gateways.websocket.conversation import Conversation
from rota.gateways.websocket.news import Sessions
from rota.gateways.websocket.protocol import CLOSE_TIMEOUT_S, LINE
from rota.gateways.websocket.routing import Desk
from rota.gateways.websocket.streaming_workers import Streams
from rota.gateways.websocket.subscriptions import Subscriptions
from rota.settings import Settings

log = structlog.get_logger("rota.websocket")

PATH = "/ws"
SESSION_PREFIX = b"rota session "
# Half an interval of the pings: a socket whose peer answers them is beaten for once an interval.
ROUND_S = 2.5


def session_id_of(name: str | None) -> str:
    """The same name always means the same session; without one, it is nobody else's."""
    if not name:
        return secrets.token_hex(32)
    return hashlib.sha256(SESSION_PREFIX + name.encode()).hexdigest()


class SocketGateway:
    def __init__(self, coordinator: Coordinator, gate: Gate, settings: Settings) -> None:
        self._coordinator = coordinator
        self._gate = gate
        self._settings = settings
        self._sessions = Sessions(coordinator)
        self._open: dict[Connection, str | None] = {}  # with the secrets they came with
        self._rounds: asyncio.Task[None] | None = None
        self.desk = Desk(
            coordinator,
            settings,
            Attachments(coordinator),
            Subscriptions(),
            Streams(coordinator),
        )

    @property
    def open_sockets(self) -> int:
        return len(self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket, from the wish for it to its end."""
        await receive()  # that somebody wants to connect
        headers = dict(scope["headers"])
        try:
            caller = await self._admit(scope, headers)
            session_id = session_id_of(_session_name(scope["query_string"]))
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            await _refuse(send, presentable(error))
            return
        codec = codec_for(scope.get("subprotocols", ()))
        line = scope.get("extensions", {}).get(LINE)
        connection = Connection(send, codec, caller, session_id, line)
        self._open[connection] = secret_in(headers)
        try:
            await send({"type": "websocket.accept", "subprotocol": codec.subprotocol})
            await self._serve(connection, receive)
        except OSError:
            pass  # gone before it began
        finally:
            self._end(connection)

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        if scope["path"] != PATH:
            raise NotFound(f"path {scope['path']!r} not found", path=scope["path"])
        # A socket can do anything: what a web page elsewhere may not do, it may not open either.
        caller = await admit(self._gate, headers, is_change=True)
        if not self._coordinator.is_ready:
            raise Unavailable("the coordinator is stopping")
        most = self._settings.max_sockets
        if len(self._open) >= most:
            raise TooMany(f"{most} sockets are open already", limit=most, setting="max_sockets")
        return caller

    async def _serve(self, connection: Connection, receive: Receive) -> None:
        """Talk, until the peer is gone or we have said goodbye."""
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._go_round())
        conversation = Conversation(self.desk, connection)
        conversation.greet()
        connection.take_with(conversation.take_at_once)
        writing = asyncio.create_task(connection.write())
        talking = asyncio.create_task(conversation.run(receive))
        self._sessions.enter(connection)
        try:
            await asyncio.wait(
                (writing, talking, connection.closing), return_when=asyncio.FIRST_COMPLETED
            )
            if not talking.done():
                # Ours is the last word; but it is not waited for without end.
                await asyncio.wait((writing,), timeout=CLOSE_TIMEOUT_S)
        finally:
            await _cancelled((writing, talking))

    def _end(self, connection: Connection) -> None:
        # First of all its workers leave, so that what was not sent to them is not sent to it again.
        self.desk.attachments.detach_all(connection)
        self.desk.streams.end(connection)
        self.desk.subscriptions.end(connection)
        self._open.pop(connection, None)
        connection.end()
        self._sessions.leave(connection)

    # --- by the clock ---------------------------------------------------------------------------

    async def _go_round(self) -> None:
        try:
            while self._open:
                await asyncio.sleep(ROUND_S)
                try:
                    await self.go_round()
                except Exception:
                    log.exception("a round among the sockets failed")
        finally:
            self._rounds = None

    async def go_round(self) -> None:
        """Beat for those who live, and look whether those who are here still may be."""
        await self.desk.attachments.beat()
        for connection, secret in list(self._open.items()):
            if secret is not None:
                await self._check(connection, secret)

    async def _check(self, connection: Connection, secret: str) -> None:
        try:
            connection.caller = await self._gate.identify(secret)
        except Unauthorized as error:
            self.desk.attachments.detach_all(connection)
            connection.close(POLICY, error.detail)

    # --- stopping -------------------------------------------------------------------------------

    def close_all(self) -> None:
        """The coordinator is about to stop; it may be back soon."""
        for connection in self._open:
            self.desk.attachments.detach_all(connection)
            connection.close(RESTARTING, "the coordinator is stopping")

    async def stop(self) -> None:
        if self._rounds is not None:
            self._rounds.cancel()
        self._sessions.stop()
        await self.desk.attachments.stop()


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
    ]
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": answer.content})


async def _cancelled(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Have these ended; what they raised is of no interest, but that the peer is gone."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
            log.error("a socket ended by our mistake", exc_info=outcome)
