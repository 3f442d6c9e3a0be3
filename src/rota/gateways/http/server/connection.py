"""One HTTP connection: parses requests within their limits and has them answered in their order.

A request that is complete starts in the callback that has read it. Requests that arrive behind it
wait in a pipeline, and reading stops meanwhile. What arrives is limited before the caller is known
(see `connection_limits`): a request that is over a limit, or late, is refused, and the connection
is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Protocol, cast
from urllib.parse import unquote

import httptools

from rota.errors import Invalid, RequestTimeout, RotaError
from rota.gateways.http.routing.responses import Header, head_of, problem
from rota.gateways.http.server.connection_limits import (
    BETWEEN,
    BODY,
    HEAD,
    ConnectionLimits,
    Deadlines,
    RequestMeter,
    target_too_long,
    too_many_fields,
)
from rota.gateways.http.server.exchange import AsgiApplication, Endpoints, HttpExchange, RequestHead
from rota.gateways.http.server.scheduling import BusyPoll, ReadQueue, start_eagerly
from rota.gateways.http.server.transport import ServerTransport

PATHS_CACHED = 1_024
MAX_CACHED_TARGET = 256  # bytes of a target that is cached; a longer one is parsed each time
READ_BYTES = 16 * 1024  # given to the parser at once; it cannot be stopped before their end
HIGH_WATER_BYTES = 64 * 1024  # of a body that the application has not received


class OpenConnection(Protocol):
    """What the server knows of an open connection, of HTTP or of what it was upgraded to."""

    def shutdown(self) -> None:
        """End the connection once what is under way on it has been answered."""
        ...

    def abort(self) -> None:
        """End the connection now."""
        ...


class OpenConnections:
    """The connections of a server and the tasks that answer their requests."""

    def __init__(self) -> None:
        self.connections: set[OpenConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def add(self, connection: OpenConnection) -> None:
        self.connections.add(connection)

    def drop(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)
        self._changed.set()

    def add_task(self, task: "asyncio.Task[None]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self._drop_task)

    def _drop_task(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        self._changed.set()

    async def wait_empty(self) -> None:
        while self.connections or self.tasks:
            self._changed.clear()
            await self._changed.wait()


class Upgraded(Protocol):
    """The protocol that takes over a connection."""

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with the connection; `data` came behind the request head."""
        ...


Upgrade = Callable[[RequestHead, OpenConnections], Upgraded]
Upgrades = Mapping[bytes, Upgrade]  # by the name of the protocol, in lower case


def _split_target(target: bytes) -> tuple[str, bytes, bytes]:
    """Path, path before percent-decoding, and query of a request's target."""
    parsed = httptools.parse_url(target)
    raw_path = parsed.path
    return unquote(raw_path.decode("ascii")), raw_path, parsed.query or b""


_split_short_target = lru_cache(PATHS_CACHED)(_split_target)


def refusal_of(error: RotaError) -> bytes:
    """The last response of a connection."""
    answer = problem(error)
    head = head_of(answer.status, answer.media_type, False)  # noqa: FBT003 - a key
    return b"%b%d\r\n\r\n%b" % (head, len(answer.content), answer.content)


def _has_body(headers: list[Header]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in headers
    )


def _wanted_protocol(headers: list[Header]) -> bytes | None:
    """The protocol that a request asks to go on with."""
    upgrades = [value.lower() for name, value in headers if name == b"upgrade"]
    is_wanted = any(
        b"upgrade" in [token.strip() for token in value.lower().split(b",")]
        for name, value in headers
        if name == b"connection"
    )
    return upgrades[-1] if upgrades and is_wanted else None


def _address(found: Any) -> tuple[str, int] | None:
    return (found[0], found[1]) if isinstance(found, tuple) else None


class HttpConnection(asyncio.Protocol):
    """An HTTP connection, from its first byte to its end or its upgrade."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def __init__(
        self,
        app: AsgiApplication,
        open_connections: OpenConnections,
        turns: ReadQueue,
        upgrades: Upgrades,
    ) -> None:
        self._app = app
        self._open = open_connections
        self._turns = turns
        self._upgrades = upgrades
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # A request behind one that closes the connection is passed over, and is no error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._meter = RequestMeter(self.limits)
        self._deadlines = Deadlines(self.limits)
        self._timer: asyncio.TimerHandle | None = None
        self._transport: ServerTransport  # set when the connection is made
        self.endpoints: Endpoints
        self._target = b""
        self._headers: list[Header] = []
        self._expects_continue = False
        self._reading: HttpExchange | None = None  # the request whose head was read last
        self._unstarted: HttpExchange | None = None  # the same, until the read is parsed whole
        self._active: HttpExchange | None = None  # the request that is being answered
        self.pipeline: deque[HttpExchange] = deque()  # requests that wait for their turn
        self._unparsed = b""  # what came behind requests that wait for their turn
        # The head that was read last, if it asks for an upgrade that is granted.
        self._upgrading: tuple[RequestHead, Upgrade] | None = None
        self._last_error: RotaError | None = None  # the refusal that ends the connection
        self._ignores_input = False  # further input is discarded, or is for another protocol
        self._busy_poll: BusyPoll | None = None  # made when it is needed

    # --- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = ServerTransport(
            cast("asyncio.Transport", transport),  # uvloop's is one in all but name
            self._loop,
            unread_s=self.limits.unread_s,
            is_peer_sending=self._is_peer_sending,
        )
        self.endpoints = Endpoints(
            _address(transport.get_extra_info("peername")),
            _address(transport.get_extra_info("sockname")),
            transport.get_extra_info("ssl_object") is not None,
        )
        self._open.add(self)
        self._deadlines.connected_at_s = self._loop.time()
        self._check_in(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's form
        self._open.drop(self)
        self._stop_timer()
        if self._active is not None:
            self._active.cut_off()
        self.pipeline.clear()
        self._transport.release()

    def shutdown(self) -> None:
        if self._active is None:
            self._transport.close_now()
        else:
            self._active.keep_alive = False

    def abort(self) -> None:
        self._transport.bare.abort()

    def pause_writing(self) -> None:
        self._transport.pause_writing()

    def resume_writing(self) -> None:
        self._transport.resume_writing()

    def _is_peer_sending(self) -> bool:
        return self._last_error is not None or self._meter.stage is not BETWEEN

    # --- late and idle connections --------------------------------------------------------------

    # A timer is not set and cancelled for each request: one is left to run, and checks at its end.

    def _check_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(max(0.0, seconds), self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left_s(self) -> float:
        return self._deadlines.due_at_s(self._meter.stage) - self._loop.time()

    def _check_deadline(self) -> None:
        self._timer = None
        if self._active is not None or self._transport.is_closing():
            return  # the next timer is set when the request has been answered
        left_s = self._left_s()
        if left_s > 0:
            self._check_in(left_s)
        elif self._meter.stage is HEAD:
            self._refuse(
                RequestTimeout(f"the request head did not arrive within {self.limits.head_s:g} s")
            )
        else:
            self._transport.close()

    # --- reading --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._turns.has_turn():
            self._take(data)
        else:
            self._transport.bare.pause_reading()
            self._turns.put(self._take_in_turn, data)

    def _take_in_turn(self, data: bytes) -> None:
        transport = self._transport
        if transport.is_closing():
            return  # the caller is gone, or was refused
        self._take(data)
        # Unless this input is itself a reason to read no more for now.
        if self._upgrading is None and not transport.is_read_paused and not transport.is_closing():
            transport.bare.resume_reading()

    def _take(self, data: bytes) -> None:
        if self._ignores_input or self._transport.is_lingering:
            return
        if self._unparsed or self.pipeline or len(data) > READ_BYTES:
            self._unparsed += data
            self._parse_on()
        else:
            self._parse(data)

    def _parse_on(self) -> None:
        """Parse what has been put off, until a request has to wait for its turn."""
        left = memoryview(self._unparsed)
        self._unparsed = b""
        while (
            left
            and not self.pipeline
            and not self._ignores_input
            and not self._transport.is_closing()
        ):
            self._parse(left[:READ_BYTES], left[READ_BYTES:])
            left = left[READ_BYTES:]
        if left and self.pipeline and not self._ignores_input:
            self._unparsed = bytes(left)
            self._transport.pause_reading()

    def _parse_rest(self) -> None:
        """No request waits any more: go on with what came behind them."""
        self._parse_on()
        active = self._active
        is_full = active is not None and len(active.body) > HIGH_WATER_BYTES
        if not self.pipeline and not is_full and not self._transport.is_closing():
            self._transport.resume_reading()

    def _parse(self, data: bytes | memoryview, behind: bytes | memoryview = b"") -> None:
        meter = self._meter
        try:
            meter.start_read(len(data))
            self._parser.feed_data(data)
            meter.end_read()
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgrading is not None:
                self._switch_protocol(*self._upgrading, bytes(rest) + bytes(behind))
                return
            # The upgrade is not granted; what follows is HTTP as before.
            self._parse(rest)
        except httptools.HttpParserError as error:
            cause = error.__context__  # what a callback has raised
            self._refuse(cause if isinstance(cause, RotaError) else Invalid("not an HTTP request"))
        except RotaError as error:
            self._refuse(error)
        exchange = self._unstarted
        if exchange is not None:
            self._unstarted = None
            self._start(exchange)
        if meter.stage is HEAD and self._deadlines.head_began_at_s is None:
            self._deadlines.head_began_at_s = self._loop.time()
            if self._active is None:
                self._check_in(self.limits.head_s)

    # --- answering ------------------------------------------------------------------------------

    def _start(self, exchange: HttpExchange) -> None:
        self._active = exchange
        app = self._app
        refusal = app.refuse_early(exchange.head)
        if refusal is not None and exchange.answer(
            refusal.status, refusal.media_type, refusal.content, refusal.headers
        ):
            return
        if exchange.more_body or not app.starts_eagerly(exchange.head):
            self._open.add_task(self._loop.create_task(exchange.run(app)))
            return
        if self._busy_poll is None:
            self._busy_poll = BusyPoll(self._loop)
        self._busy_poll.note_request()
        task = start_eagerly(exchange.run(app), self._loop)
        if task is None:
            self._busy_poll.note_response()
        else:
            self._open.add_task(task)

    def _on_complete(self) -> None:
        """The active request has been answered."""
        self._active = None
        if self._transport.is_closing():
            return
        if self.pipeline:
            self._active = exchange = self.pipeline.popleft()
            self._open.add_task(self._loop.create_task(exchange.run(self._app)))
            self._read_on()
            return
        if self._last_error is not None:
            self._end_with(self._last_error)
            return
        self._read_on()
        self._deadlines.answered_at_s = self._loop.time()
        if self._timer is None or self._meter.stage is not BETWEEN:
            self._check_in(self._left_s())

    def _read_on(self) -> None:
        """Read more, unless requests wait already."""
        if self.pipeline:
            return
        if self._unparsed:
            self._loop.call_soon(self._parse_rest)
        else:
            self._transport.resume_reading()

    # --- refusing -------------------------------------------------------------------------------

    def _refuse(self, error: RotaError) -> None:
        """Answer the request that is being read with an error, and close the connection.

        Requests before it are answered first.
        """
        self._ignores_input = True
        self._last_error = error
        if self._meter.stage is BODY and not self._drop_unfinished():
            self._transport.close()
        elif self._active is None and self._unstarted is None:
            self._end_with(error)

    def _drop_unfinished(self) -> bool:
        """Drop the request whose body is being read; False: its response has begun already."""
        exchange = self._reading
        if exchange is None or exchange.is_started:
            return False
        if exchange is self._unstarted:
            self._unstarted = None
        elif exchange is self._active:
            exchange.cut_off()
            self._active = None
        else:
            self.pipeline.pop()
        return True

    def _end_with(self, error: RotaError) -> None:
        self._transport.write_now(refusal_of(error))
        self._transport.close()

    # --- called by the parser -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._meter.begin_head()
        self._target = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self.limits.target_bytes:
            raise target_too_long(self.limits)

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        headers.append((name, value))
        if len(headers) > self.limits.head_fields:
            raise too_many_fields(self.limits)

    def on_headers_complete(self) -> None:
        parser, target, headers = self._parser, self._target, self._headers
        is_next = self._reading is None or self._reading.is_complete
        upgrade = self._granted_upgrade(is_next=is_next) if parser.should_upgrade() else None
        version = parser.get_http_version()
        split = _split_short_target if len(target) <= MAX_CACHED_TARGET else _split_target
        path, raw_path, query = split(target)
        self._meter.complete_head(target, headers)
        self._headers = []  # trailer fields end up here: they come after all they could change
        self._deadlines.head_began_at_s = None
        head = RequestHead(
            parser.get_method().decode("ascii"),
            path,
            raw_path,
            query,
            headers,
            version,
            self.endpoints,
            version != "1.0" and parser.should_keep_alive(),
        )
        if upgrade is not None:
            self._upgrading = head, upgrade
            return
        self._reading = exchange = HttpExchange(
            head, self._transport, self._on_complete, expects_continue=self._expects_continue
        )
        if is_next:
            self._unstarted = exchange
        else:
            self._transport.pause_reading()
            self.pipeline.append(exchange)

    def _granted_upgrade(self, *, is_next: bool) -> Upgrade | None:
        if _has_body(self._headers):
            # The parser takes the body of such a request for what follows it.
            raise Invalid("a request that asks for an upgrade cannot have a body")
        wanted = _wanted_protocol(self._headers)
        upgrade = None if wanted is None else self._upgrades.get(wanted)
        if upgrade is not None and not is_next:
            raise Invalid("a connection is not upgraded before earlier requests are answered")
        return upgrade

    def on_chunk_header(self) -> None:
        self._meter.take_chunk()

    def on_body(self, body: bytes) -> None:
        self._meter.take_body(len(body))
        exchange = self._reading
        if exchange is None or exchange.is_complete:
            return
        exchange.add_body(body)
        if len(exchange.body) > HIGH_WATER_BYTES:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._meter.complete_message()
        exchange = self._reading
        if self._upgrading is None and exchange is not None and not exchange.is_complete:
            exchange.end_body()

    # --- another protocol -----------------------------------------------------------------------

    def _switch_protocol(self, head: RequestHead, upgrade: Upgrade, rest: bytes) -> None:
        try:
            upgraded = upgrade(head, self._open)
        except RotaError as error:
            self._refuse(error)
            return
        self._ignores_input = True
        self._stop_timer()
        self._transport.release()
        upgraded.take_over(self._transport.bare, rest)
        self._open.drop(self)
