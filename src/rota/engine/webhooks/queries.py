"""Reads of webhooks and their deliveries."""

from collections.abc import Mapping
from typing import NamedTuple

from rota.core import limits
from rota.core.webhooks.model import WebhookDelivery, WebhookRecord
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.outbound.webhooks import PendingDeliveries, WebhookStore

SHOWN_DELIVERIES = 50
NONE_PENDING = PendingDeliveries(0, 0)


class WebhookFigures(NamedTuple):
    """A webhook, how much waits for it, and its newest deliveries."""

    record: WebhookRecord
    pending: int
    deliveries: list[WebhookDelivery]


class WebhookBoard(NamedTuple):
    """All webhooks as a deliverer needs them, at one moment."""

    webhooks: list[WebhookRecord]
    pending: dict[str, PendingDeliveries]
    oldest_seq: int  # of the event log
    last_seq: int


class WebhookQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read

    async def all(self) -> list[WebhookFigures]:
        """Return every webhook by name, without deliveries."""

        def body(tx: Transaction) -> list[WebhookFigures]:
            store = WebhookStore(tx)
            pending = store.pending()
            return [
                WebhookFigures(one, pending.get(one.name, NONE_PENDING).total, [])
                for one in store.all()
            ]

        return await self._read(body)

    async def by_name(self, name: str) -> WebhookFigures | None:
        """Return a webhook with its newest deliveries."""

        def body(tx: Transaction) -> WebhookFigures | None:
            store = WebhookStore(tx)
            for one in store.all():
                if one.name == name:
                    pending = store.pending().get(name, NONE_PENDING).total
                    newest = store.newest(name, limit=SHOWN_DELIVERIES)
                    return WebhookFigures(one, pending, newest)
            return None

        return await self._read(body)

    async def board(self) -> WebhookBoard:
        """Return all webhooks, what waits for each, and the bounds of the event log."""

        def body(tx: Transaction) -> WebhookBoard:
            store = WebhookStore(tx)
            webhooks = store.all()
            pending = store.pending() if webhooks else {}
            return WebhookBoard(webhooks, pending, *EventStore(tx).bounds())

        return await self._read(body)

    async def due(self, places: Mapping[str, int], *, now_ms: int) -> list[WebhookDelivery]:
        """Return due deliveries, of each webhook at most as many as it has places."""
        most = limits.MAX_DELIVERIES_AT_ONCE

        def body(tx: Transaction) -> list[WebhookDelivery]:
            store = WebhookStore(tx)
            return [
                one
                for webhook, free in places.items()
                for one in store.due(webhook, now_ms=now_ms, limit=min(free, most))
            ]

        return await self._read(body) if places else []
