"""Request bodies: read within their limits and quotas, and decoded.

Bodies are JSON whatever their content type says. Values that only workers understand (payloads,
results, progress) stay undecoded bytes; `rota.core.tasks.values` checks them for size and depth.

A body that came together with its head costs no more than its request's place. One that is still
on its way is counted among those being read, and its bytes with it: the whole declared length
before the first byte is read, or, if none was declared, each piece as it comes. Bytes are held
until the request has been answered.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NoReturn, cast

import msgspec
from starlette.types import Message, Receive, Scope

from rota.core import limits
from rota.core.tasks.values import too_deep
from rota.engine.runs.artifact_io import LARGEST_IN_ROW, PIECE_BYTES
from rota.errors import Malformed, RequestTimeout, TooLarge
from rota.gateways.http.routing.responses import ANSWERING, DirectResponder
from rota.gateways.http.server.scheduling import Begun
from rota.gateways.quotas import Quota, Quotas, RequestQuotas, Reservation
from rota.gateways.validation import invalid

BODY_TIMEOUT_S = limits.BODY_TIMEOUT_MS / 1000
UPLOAD_BYTES = LARGEST_IN_ROW + PIECE_BYTES  # of an upload that goes to a file, in memory at once

Headers = dict[bytes, bytes]


class ClientGone(Exception):  # noqa: N818 - nothing is wrong; there is no one to answer
    """The caller hung up."""


async def disconnected(receive: Receive) -> None:
    """Wait until the caller hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(
    receive: Receive, *, declared: bytes | None, most: int, setting: str = "max_body_bytes"
) -> bytes:
    """Read the whole body, or stop as soon as it is over the limit."""
    if (_length(declared) or 0) > most:
        _refuse_size(most, setting)
    receiving = cast("Coroutine[Any, Any, Message]", receive())
    try:
        waited_for = receiving.send(None)
    except StopIteration as ended:
        first: Message = ended.value  # it was here already, as nearly always: no timer is needed
        if not first.get("more_body", False):
            return _whole(first, most, setting)
        return await _in_time(_read_rest(receive, first, most, setting))
    return await _in_time(_read_all(receive, Begun(receiving, waited_for), most, setting))


def _whole(message: Message, most: int, setting: str) -> bytes:
    """A body that is one message."""
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > most:
        _refuse_size(most, setting)
    return body


async def _in_time(reading: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await reading
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None


async def _read_all(receive: Receive, receiving: Begun[Message], most: int, setting: str) -> bytes:
    first = await receiving
    if not first.get("more_body", False):
        return _whole(first, most, setting)
    return await _read_rest(receive, first, most, setting)


async def _read_rest(receive: Receive, first: Message, most: int, setting: str) -> bytes:
    chunks, more = [first.get("body", b"")], True
    size = len(chunks[0])
    while more and size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        more = message.get("more_body", False)
    if size > most:
        _refuse_size(most, setting)
    return b"".join(chunks)


async def body_in_pieces(
    receive: Receive, *, declared: bytes | None, most: int, setting: str
) -> AsyncIterator[bytes]:
    """The pieces of a body, each in time, and all within the limit."""
    if (_length(declared) or 0) > most:
        _refuse_size(most, setting)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                message = await receive()
        except TimeoutError:
            raise RequestTimeout(f"the body stopped for {BODY_TIMEOUT_S:g} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > most:
            _refuse_size(most, setting)
        yield piece
        more = message.get("more_body", False)


def _refuse_size(most: int, setting: str) -> NoReturn:
    raise TooLarge(f"the body is over {most} bytes", limit=most, setting=setting)


def decode_text(body: bytes) -> str:
    _refuse_broken_text(body)
    return body.decode()


def decode(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode a body, or raise what is wrong with it and where."""
    if not body.isascii():
        # The decoder does not look into values that stay bytes.
        _refuse_broken_text(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise Malformed(str(error) if body else "a JSON body is needed") from None
    except UnicodeError:
        raise Malformed("the body is not valid UTF-8") from None
    except RecursionError:
        raise too_deep("body") from None


def _refuse_broken_text(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not valid UTF-8 (byte {error.start})") from None


async def read_small_body(receive: Receive, headers: Headers) -> bytes:
    """Read a body that needs no token; one that is not small is refused by its length."""
    return await read_body(
        receive,
        declared=headers.get(b"content-length"),
        most=limits.MAX_LOGIN_BYTES,
        setting="MAX_LOGIN_BYTES",
    )


async def read_body_within_quota(
    receive: Receive,
    headers: Headers,
    pools: RequestQuotas,
    reservation: Reservation,
    *,
    most: int,
    setting: str,
) -> bytes:
    """Read a body that has not arrived yet, within the quotas of its caller."""
    declared = headers.get(b"content-length")
    reservation.take(pools.reading)
    size = _length(declared)
    if size is None:
        receive = _metered(receive, pools.body_bytes, reservation)
    elif limits.UNCOUNTED_BODY_BYTES < size <= most:
        reservation.take(pools.body_bytes, size)
    content = await read_body(receive, declared=declared, most=most, setting=setting)
    reservation.release(pools.reading)
    return content


def upload(
    receive: Receive, quotas: Quotas, reservation: Reservation, *, in_memory: bool
) -> Receive:
    """Count a body that the handler takes in pieces; return what it is to be read from.

    Such a request is counted among those whose bodies are read until it has been answered, and
    has no place besides. What goes to a file is counted as it comes.
    """
    pools = quotas.requests
    reservation.take(pools.reading)
    if in_memory:
        return _metered(receive, pools.body_bytes, reservation)
    reservation.take(pools.body_bytes, UPLOAD_BYTES)
    return _metered(receive, quotas.uploads, reservation)


def _metered(receive: Receive, quota: Quota, reservation: Reservation) -> Receive:
    """The same messages; their bytes are taken of a quota as they arrive."""

    async def metered() -> Message:
        message = await receive()
        size = len(message.get("body", b""))
        if size:
            reservation.take(quota, size)
        return message

    return metered


def is_whole(scope: Scope) -> bool:
    """Whether the body has come with the head."""
    exchange = scope.get("extensions", {}).get(ANSWERING)
    return exchange is not None and not exchange.more_body


async def read_whole_body(
    scope: Scope, receive: Receive, *, declared: bytes | None, most: int, setting: str
) -> bytes:
    """Read a body that has come with the head, without a message for it where that is possible."""
    connection: DirectResponder = scope["extensions"][ANSWERING]
    if (_length(declared) or 0) <= most:
        content = connection.take_body()
        if content is not None:
            if len(content) > most:
                _refuse_size(most, setting)
            return content
    return await read_body(receive, declared=declared, most=most, setting=setting)


def _length(declared: bytes | None) -> int | None:
    return int(declared) if declared is not None and declared.isdigit() else None
