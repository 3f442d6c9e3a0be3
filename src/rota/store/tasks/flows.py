"""Rows of flow control: flows, limits, and slots that outlive their leases."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rota.core.flows.model import FIRST_KEY, FlowSpec, LimitRecord
from rota.core.flows.queue_settings import QueueSettings
from rota.core.ids import TaskId
from rota.store.database import Transaction
from rota.store.kv import keys_with_prefix
from rota.store.tasks.row_types import FIRST_FLOW, Place, QueuedPlace

_encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(FlowSpec).decode
_decode_limit = msgspec.json.Decoder(LimitRecord).decode
_decode_settings = msgspec.json.Decoder(QueueSettings).decode


class StoredFlow(NamedTuple):
    number: int
    lane: int
    spec: FlowSpec


class QueuedFlow(NamedTuple):
    number: int
    size: int  # queued tasks
    first: Place  # of the next one


class KeptSlot(NamedTuple):
    """A slot that outlives its lease; without an incarnation its task waits to run again."""

    id: TaskId
    incarnation: int | None
    spec: FlowSpec


class FlowStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- flows ------------------------------------------------------------------------------------

    def all(self) -> list[StoredFlow]:
        rows = self._tx.rows("flows.all")
        return [StoredFlow(number, lane, _decode_spec(spec)) for number, lane, spec in rows]

    def add(self, flows: Sequence[StoredFlow]) -> None:
        rows = [(one.number, one.lane, _encode(one.spec).decode()) for one in flows]
        self._tx.pipeline_many("flows.add", ("number", "lane", "spec"), rows)

    def live(self, numbers: list[int]) -> set[int]:
        """Those of these flows that have a live task."""
        return set(self._tx.column("flows.live", numbers=numbers))

    def drop(self, numbers: list[int]) -> None:
        self._tx.pipeline("flows.drop", numbers=numbers)

    def queued(self) -> list[QueuedFlow]:
        """The flows that have queued tasks."""
        rows = self._tx.rows("flows.queued", first=FIRST_FLOW)
        return [QueuedFlow(number, count, (rank, task)) for number, count, rank, task in rows]

    def running(self) -> list[tuple[TaskId, int]]:
        """The leased tasks that belong to flows, each with its flow."""
        return [(TaskId(task_id), flow) for task_id, flow in self._tx.rows("flows.running")]

    def queued_ids(self, flow: int, limit: int) -> list[TaskId]:
        """The next tasks of a flow."""
        return self._tx.column("flows.queued_ids", flow=flow, limit=limit)

    def queued_holders(self) -> list[QueuedPlace]:
        """The places of queued tasks that have kept their slot."""
        return [QueuedPlace(*row) for row in self._tx.rows("flows.queued_holders")]

    # --- limits -----------------------------------------------------------------------------------

    def limits(self) -> dict[str, LimitRecord]:
        records = (_decode_limit(record) for record in self._tx.column("flows.limits"))
        return {one.key: one for one in records}

    def limit_page(self, *, prefix: str, after: str, limit: int) -> list[LimitRecord]:
        """Limits whose keys begin with a prefix, in the order of their keys."""
        wanted = keys_with_prefix(prefix)
        first = max(wanted.first, FIRST_KEY)
        rows = self._tx.column(
            "flows.limit_page", first=first, after=after, end=wanted.end, limit=limit
        )
        return [_decode_limit(record) for record in rows]

    def put_limits(self, records: Iterable[LimitRecord]) -> None:
        rows = [(one.key, _encode(one)) for one in records]
        self._tx.pipeline_many("flows.put_limit", ("key", "record"), rows)

    def drop_limits(self, keys: Iterable[str]) -> None:
        self._tx.pipeline_many("flows.drop_limit", ("key",), [(key,) for key in keys])

    # --- slots ------------------------------------------------------------------------------------

    def kept_slots(self) -> list[KeptSlot]:
        rows = self._tx.rows("flows.kept_slots")
        return [KeptSlot(task_id, inc, _decode_spec(spec)) for task_id, inc, spec in rows]

    def keep_slots(self, slots: Iterable[KeptSlot]) -> None:
        rows = [(one.id, one.incarnation, _encode(one.spec).decode()) for one in slots]
        self._tx.pipeline_many("flows.keep_slot", ("id", "incarnation", "spec"), rows)

    def drop_slots(self, ids: Iterable[TaskId]) -> None:
        self._tx.pipeline_many("flows.drop_slot", ("id",), [(one,) for one in ids])

    # --- queues -----------------------------------------------------------------------------------

    def settings(self) -> dict[str, QueueSettings]:
        rows = self._tx.rows("flows.settings")
        return {name: _decode_settings(settings) for name, settings in rows}

    def put_settings(self, queue: str, settings: QueueSettings, *, at_ms: int) -> None:
        self._tx.pipeline(
            "flows.put_settings", name=queue, changed_at_ms=at_ms, settings=_encode(settings)
        )
