"""Queues whose tasks are pushed over HTTP."""

import msgspec

from rota.core.outbound.push import PushRecord, PushSpec
from rota.store.database import Transaction, decoding

_encode = msgspec.json.Encoder().encode
_record = decoding(PushRecord, spec=msgspec.json.Decoder(PushSpec).decode)


class PushStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def all(self) -> dict[str, PushRecord]:
        """Every queue that is pushed, by its name."""
        return {one.queue: one for one in self._tx.records(_record, "push.all")}

    def put(self, record: PushRecord) -> None:
        self._tx.pipeline(
            "push.put",
            queue=record.queue,
            secret=record.secret,
            document=_encode(record.spec),
            changed_at_ms=record.changed_at_ms,
            closed_until_ms=record.closed_until_ms,
        )

    def delete(self, queue: str) -> None:
        self._tx.pipeline("push.delete", queue=queue)
