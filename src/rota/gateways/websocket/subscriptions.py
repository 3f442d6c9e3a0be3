"""Who at a socket follows what happens? Each wish has a task that sends what comes of it."""

import asyncio
from functools import partial
from typing import Any

import structlog

from rota.core import limits
from rota.core.access import Action
from rota.core.notices import Noted, NoticeFilter, may_see, types_of
from rota.engine.following import End, Follower
from rota.errors import TooMany
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.routing import ANY, Call, Route
from rota.messages.sessions import (
    UI,
    EventNote,
    FrameError,
    Outgoing,
    SubscriptionAnswer,
    Unwish,
    Wish,
    is_given,
)

log = structlog.get_logger("rota.websocket")

EVENTS_PER_STEP = 100  # put before a socket at once


class Subscriptions:
    def __init__(self) -> None:
        self._following: dict[Connection, dict[str, asyncio.Task[None]]] = {}

    def begin(self, connection: Connection, follower: Follower, reply_to: Any) -> str:
        following = self._following.setdefault(connection, {})
        if len(following) >= limits.MAX_SUBSCRIPTIONS:
            follower.close()
            raise TooMany(
                f"a socket has at most {limits.MAX_SUBSCRIPTIONS} subscriptions",
                limit=limits.MAX_SUBSCRIPTIONS,
            )
        subscription_id = connection.new_id()
        task = asyncio.create_task(_send_all(connection, follower, reply_to))
        following[subscription_id] = task
        task.add_done_callback(partial(self._ended, connection, subscription_id))
        return subscription_id

    def end(self, connection: Connection, subscription_id: str | None = None) -> int:
        """End one of a socket's subscriptions, or all; how many that were."""
        following = self._following.get(connection, {})
        named = list(following) if subscription_id is None else [subscription_id]
        ended = [following.pop(one) for one in named if one in following]
        for task in ended:
            task.cancel()
        if not following:
            self._following.pop(connection, None)
        return len(ended)

    def _ended(
        self, connection: Connection, subscription_id: str, task: "asyncio.Task[None]"
    ) -> None:
        self.end(connection, subscription_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a subscription ended by our mistake", exc_info=error)


async def _send_all(connection: Connection, follower: Follower, reply_to: Any) -> None:
    with follower:
        while noted := await follower.take(EVENTS_PER_STEP):
            for one in noted:
                connection.put(_frame(connection, "Event", _note(one), reply_to, one.at_ms))
            await connection.room()
        if follower.end is End.TOO_SLOW:
            error = f"too slow: subscribe again after {follower.position}"
            told = FrameError(error=error, code="too_slow")
            connection.put(_frame(connection, "Error", told, reply_to))


def _note(noted: Noted) -> EventNote:
    return EventNote(
        seq=noted.seq,
        type=noted.type,
        subject=noted.subject,
        data=noted.data,
        at_ms=noted.at_ms,
    )


def _frame(
    connection: Connection, kind: str, payload: Any, reply_to: Any, at_ms: int | None = None
) -> Outgoing:
    return Outgoing(
        type=kind,
        to=UI,
        sender=connection.address,
        payload=payload,
        id=connection.new_id(),
        reply_to=reply_to,
        timestamp=at_ms,
    )


async def subscribe(call: Call) -> SubscriptionAnswer:
    wish = call.read_short(Wish, list[str])
    if isinstance(wish, list):
        wish = Wish(types=wish)
    connection, coordinator = call.connection, call.coordinator
    wanted = NoticeFilter(types=types_of(wish.types), subject=wish.subject)
    after = coordinator.last_seq if wish.after is None else wish.after
    follower = coordinator.follow(
        wanted, after=after, sight=lambda noted: may_see(connection.caller, noted)
    )
    reply_to = call.envelope.id if is_given(call.envelope.id) else None
    subscription_id = call.desk.subscriptions.begin(connection, follower, reply_to)
    return SubscriptionAnswer(status="subscribed", subscription_id=subscription_id, after=after)


async def unsubscribe(call: Call) -> SubscriptionAnswer:
    named = call.read(Unwish).subscription_id
    count = call.desk.subscriptions.end(call.connection, named)
    return SubscriptionAnswer(status="unsubscribed", subscription_id=named, count=count)


ROUTES = (
    Route(
        kind=ANY,
        type="subscribe",
        action=Action.READ,
        handler=subscribe,
        payload=Wish,
        answer=SubscriptionAnswer,
        summary="Follow events, from a number on or from now; each comes as an `Event` frame with "
        "this message's id as `replyTo`. A list of types will do.",
    ),
    Route(
        kind=ANY,
        type="unsubscribe",
        action=Action.READ,
        handler=unsubscribe,
        payload=Unwish,
        answer=SubscriptionAnswer,
        summary="Follow no longer.",
    ),
)
