"""Server-sent events, for browsers, `curl -N` and other line readers.

A stream begins with its position and the delay before a reconnect. From then on each event is a
block with its number as `id`. While nothing happens, a comment keeps the stream alive; with it
comes the number up to which there was nothing, so that a returning reader skips that part. The last
block, `end`, has the reason: the coordinator stops, the reader is slow, or its token was revoked or
has expired.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec
from starlette.types import Receive

from rota.core.access import LOCAL, Caller
from rota.core.events import LoggedEvent
from rota.engine.events.stream import End, EventSubscription
from rota.gateways.auth.token_uses import ENDED, TokenUses
from rota.gateways.http.routing.bodies import disconnected
from rota.gateways.validation import invalid_field

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0  # proxies and readers take longer silence for the end of the stream
RETRY_MS = 1_000  # after which a reader should come back
MOST_PER_PIECE = 100  # events written at once

_encode = msgspec.json.Encoder().encode


def is_wanted(headers: Mapping[bytes, bytes]) -> bool:
    return MEDIA_TYPE.encode() in headers.get(b"accept", b"").lower()


def last_event_id(headers: Mapping[bytes, bytes]) -> int | None:
    """The number of the last event that a returning reader has received."""
    given = headers.get(b"last-event-id", b"").strip()
    if not given:
        return None
    if not given.isdigit() or len(given) > 16:
        raise invalid_field(
            "Last-Event-ID", "not an id of this stream; send the last `id` unchanged"
        )
    return int(given)


def opening(after: int, first: Sequence[LoggedEvent] = (), *, oldest_seq: int = 0) -> bytes:
    """The first block and the events known already; the stream goes on after `after`."""
    begins_after = first[0].seq - 1 if first else after
    blocks = [b"retry: %d\nid: %d\n\n" % (RETRY_MS, begins_after)]
    if 0 < after < oldest_seq - 1:
        # The reader was away for so long that some events it missed are pruned.
        blocks.append(_block("gap", {"after": after, "oldest_seq": oldest_seq}))
    return b"".join([*blocks, *map(_event, first)])


async def pieces(
    start: bytes,
    follow: Callable[[], EventSubscription],
    receive: Receive,
    *,
    keep_alive_s: float = KEEP_ALIVE_S,
    caller: Caller = LOCAL,
    uses: TokenUses | None = None,
) -> AsyncGenerator[bytes]:
    """The stream, until the reader goes away or there is nothing more to follow."""
    with follow() as subscription:
        leaving = asyncio.ensure_future(disconnected(receive))
        taking = asyncio.ensure_future(subscription.take(MOST_PER_PIECE))
        use = None if uses is None else uses.add(caller, leaving.cancel)
        try:
            yield start
            while True:
                await asyncio.wait(
                    (taking, leaving), timeout=keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                if leaving.cancelled():
                    yield _block("end", {"reason": End.UNAUTHORIZED, "detail": ENDED})
                    return
                if leaving.done():
                    return
                if not taking.done():
                    yield b": alive\nid: %d\n\n" % subscription.position
                    continue
                found = taking.result()
                if not found:
                    yield _block("end", {"reason": subscription.end})
                    return
                taking = asyncio.ensure_future(subscription.take(MOST_PER_PIECE))
                yield b"".join(map(_event, found))
        finally:
            if uses is not None:
                uses.drop(use)
            leaving.cancel()
            taking.cancel()


def _event(logged: LoggedEvent) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (logged.seq, logged.type.encode(), _encode(logged))


def _block(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))
