"""Webhooks and their deliveries."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rota.core import limits
from rota.core.webhooks.model import WebhookDelivery, WebhookRecord, WebhookSpec, WebhookState
from rota.store.database import Transaction, decoding

DELIVERY_COLUMNS = ("webhook", "seq", "due_ms", "document")

_encode = msgspec.json.Encoder().encode
_record = decoding(
    WebhookRecord,
    spec=msgspec.json.Decoder(WebhookSpec).decode,
    state=msgspec.json.Decoder(WebhookState).decode,
)
_delivery = msgspec.json.Decoder(WebhookDelivery).decode


class PendingDeliveries(NamedTuple):
    """What waits for one webhook."""

    total: int
    first_due_ms: int


class WebhookStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- webhooks ---------------------------------------------------------------------------------

    def all(self) -> list[WebhookRecord]:
        """Every webhook, by name."""
        return self._tx.records(_record, "webhooks.all")

    def put(self, record: WebhookRecord) -> None:
        self._tx.pipeline(
            "webhooks.put",
            name=record.name,
            secret=record.secret,
            cursor=record.cursor,
            document=_encode(record.spec),
            state=_encode(record.state),
        )

    def delete(self, name: str) -> None:
        self._tx.pipeline("webhooks.delete", name=name)
        self._tx.pipeline("webhooks.drop_deliveries", webhook=name)

    # --- deliveries -------------------------------------------------------------------------------

    def pending(self) -> dict[str, PendingDeliveries]:
        """What waits, by webhook."""
        rows = self._tx.rows("webhooks.pending")
        return {name: PendingDeliveries(count, due_ms) for name, count, due_ms in rows}

    def deliveries(self, webhook: str, seqs: Iterable[int]) -> list[WebhookDelivery]:
        """Those of these deliveries that are stored."""
        found = self._tx.column("webhooks.deliveries", webhook=webhook, seqs=[*seqs])
        return [_delivery(one) for one in found]

    def newest(self, webhook: str, *, limit: int) -> list[WebhookDelivery]:
        """The newest deliveries of a webhook, the newest first."""
        return [
            _delivery(one)
            for one in self._tx.column("webhooks.newest", webhook=webhook, limit=limit)
        ]

    def due(self, webhook: str, *, now_ms: int, limit: int) -> list[WebhookDelivery]:
        """The deliveries of a webhook that are due, the longest due first."""
        found = self._tx.column("webhooks.due", webhook=webhook, now_ms=now_ms, limit=limit)
        return [_delivery(one) for one in found]

    def put_deliveries(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Write deliveries; of the ended ones only the newest of each webhook stay."""
        if not deliveries:
            return
        rows = [(one.webhook, one.event.seq, one.due_ms, _encode(one)) for one in deliveries]
        self._tx.pipeline_many("webhooks.put_delivery", DELIVERY_COLUMNS, rows)
        for webhook in {one.webhook for one in deliveries if one.due_ms is None}:
            keep = limits.MAX_ENDED_DELIVERIES
            self._tx.pipeline("webhooks.trim", webhook=webhook, keep=keep)
