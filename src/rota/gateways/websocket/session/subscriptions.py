"""Event subscriptions of a socket."""

import asyncio
from functools import partial
from typing import Any

import structlog

from rota.core import limits
from rota.core.events import LoggedEvent
from rota.engine.events.stream import End, EventSubscription
from rota.errors import TooMany
from rota.gateways.quotas import Quota
from rota.gateways.websocket.connection import Connection
from rota.messages.sessions import EventNote, FrameError

log = structlog.get_logger("rota.websocket")

EVENTS_PER_STEP = 100  # put into the outbox at once


class Subscriptions:
    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._tasks: dict[Connection, dict[str, asyncio.Task[None]]] = {}

    def begin(self, connection: Connection, subscription: EventSubscription, reply_to: Any) -> str:
        following = self._tasks.setdefault(connection, {})
        if len(following) >= limits.MAX_SUBSCRIPTIONS:
            subscription.close()
            raise TooMany(
                f"a socket has at most {limits.MAX_SUBSCRIPTIONS} subscriptions",
                limit=limits.MAX_SUBSCRIPTIONS,
            )
        try:
            self._quota.take(connection.reservation.holder, connection.caller)
        except TooMany:
            subscription.close()
            raise
        subscription_id = connection.new_id()
        task = asyncio.create_task(_send_all(connection, subscription, reply_to))
        following[subscription_id] = task
        task.add_done_callback(partial(self._ended, connection, subscription_id))
        return subscription_id

    def end(self, connection: Connection, subscription_id: str | None = None) -> int:
        """End one of a socket's subscriptions, or all; return how many."""
        following = self._tasks.get(connection, {})
        named = list(following) if subscription_id is None else [subscription_id]
        ended = [following.pop(one) for one in named if one in following]
        for task in ended:
            task.cancel()
        if not following:
            self._tasks.pop(connection, None)
        return len(ended)

    def _ended(
        self, connection: Connection, subscription_id: str, task: "asyncio.Task[None]"
    ) -> None:
        self._quota.release(connection.reservation.holder)
        self.end(connection, subscription_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("subscription_failed", exc_info=error)


async def _send_all(connection: Connection, subscription: EventSubscription, reply_to: Any) -> None:
    with subscription:
        while events := await subscription.take(EVENTS_PER_STEP):
            for event in events:
                connection.send("Event", _note(event), reply_to=reply_to, timestamp=event.at_ms)
            await connection.wait_for_capacity()
        if subscription.end is End.TOO_SLOW:
            error = f"too slow: subscribe again after {subscription.position}"
            refusal = FrameError(error=error, code="too_slow")
            connection.send("Error", refusal, reply_to=reply_to)


def _note(event: LoggedEvent) -> EventNote:
    return EventNote(
        seq=event.seq,
        type=event.type,
        subject=event.subject,
        data=event.data,
        at_ms=event.at_ms,
    )
