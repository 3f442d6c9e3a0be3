"""What an HTTP request takes of its quotas: its body while it is read, then a place.

A body that came together with its head costs no more than the place. One that is still on its way
is counted among those being read, and its bytes with it: the whole declared length before the
first byte is read, or, if none was declared, each piece as it comes. Bytes are held until the
request has been answered.
"""

from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope

from rota.core import limits
from rota.engine.runs.artifact_io import LARGEST_IN_ROW, PIECE_BYTES
from rota.gateways.http.routing.bodies import read_body
from rota.gateways.http.routing.endpoint import HttpEndpoint
from rota.gateways.http.server.response_heads import ANSWERING
from rota.gateways.quotas import Quota, Quotas, RequestQuotas, Reservation

UPLOAD_BYTES = LARGEST_IN_ROW + PIECE_BYTES  # of an upload that goes to a file, in memory at once

Headers = dict[bytes, bytes]


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
    """Count a body that the handler takes in pieces; the answer is what it is to be read from.

    Such a request is counted among those whose bodies are read until it has been answered, and
    has no place besides. What goes to a file is counted as it comes.
    """
    pools = quotas.requests
    reservation.take(pools.reading)
    if in_memory:
        return _metered(receive, pools.body_bytes, reservation)
    reservation.take(pools.body_bytes, UPLOAD_BYTES)
    return _metered(receive, quotas.uploads, reservation)


def reserve_wait(
    quotas: Quotas, endpoint: HttpEndpoint, reservation: Reservation, *, body: Any, query: Any
) -> Any:
    """Count a request as a long poll, if it is one; return its query."""
    if not getattr(query if endpoint.waits_in == "query" else body, "wait_ms", 0):
        return query
    if not endpoint.keeps_work:
        reservation.take(quotas.long_polls)
    elif reservation.try_take(quotas.long_polls):
        # While it waits, its place serves others.
        reservation.release(quotas.keeping_work.places)
    else:
        # A heartbeat is not refused because it would have waited as well.
        query = msgspec.structs.replace(query, wait_ms=0)
    return query


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
    cycle = scope.get("extensions", {}).get(ANSWERING)
    return cycle is not None and not cycle.more_body


def _length(declared: bytes | None) -> int | None:
    return int(declared) if declared is not None and declared.isdigit() else None
