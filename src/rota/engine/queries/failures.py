"""Reads of failed tasks, grouped by cause."""

import heapq
from typing import NamedTuple

from msgspec import Struct

from rota.core import limits
from rota.core.ids import TaskId
from rota.core.tasks import error_fingerprints
from rota.core.tasks.model import TaskError
from rota.engine.queries.reader import CachedRead, StoreReader
from rota.store.dashboard import DashboardStore, Failures
from rota.store.database import Transaction

MOST_GROUPS = limits.MAX_PAGE  # failure groups in a reply, the largest first
MOST_SAMPLES = 5  # task ids in a failure group


class FailureGroup(Struct, kw_only=True):
    """Failed tasks of one name and one cause."""

    fingerprint: str
    name: str
    kinds: list[Failures]  # the same cause in each lane of that name
    queues: dict[str, int] = {}
    error: TaskError | None = None  # of the newest task
    ids: list[TaskId] = []  # of a few of the newest tasks

    @property
    def count(self) -> int:
        return sum(one.count for one in self.kinds)

    @property
    def first_failed_at_ms(self) -> int:
        return min(one.first_failed_at_ms for one in self.kinds)

    @property
    def last_failed_at_ms(self) -> int:
        return max(one.last_failed_at_ms for one in self.kinds)


class FailureGroups(NamedTuple):
    shown: list[FailureGroup]  # largest first
    tasks: int  # of all groups
    is_complete: bool  # `shown` has all groups


class FailureQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        # By whether the groups are those of acknowledged tasks.
        self._all = {
            False: CachedRead(reader, lambda tx: self._read_groups(tx, None, acknowledged=False)),
            True: CachedRead(reader, lambda tx: self._read_groups(tx, None, acknowledged=True)),
        }

    async def groups(
        self, queues: tuple[str, ...] | None, *, acknowledged: bool = False
    ) -> FailureGroups:
        """Return the failed tasks by cause: the acknowledged ones, or the others.

        The answer for all queues is cached.
        """
        if queues is None:
            return await self._all[acknowledged].get()
        return await self._read(lambda tx: self._read_groups(tx, queues, acknowledged=acknowledged))

    async def tasks_of(
        self, fingerprint: str, queues: tuple[str, ...] | None, *, acknowledged: bool = False
    ) -> list[TaskId] | None:
        """Return every failed task of a group now; None if there is no such group."""

        def body(tx: Transaction) -> list[TaskId] | None:
            group = self._count_groups(tx, queues, acknowledged=acknowledged).get(fingerprint)
            if group is None:
                return None
            return DashboardStore(tx).newest_failed(
                group.kinds, limit=group.count, acknowledged=acknowledged
            )

        return await self._read(body)

    def _read_groups(
        self, tx: Transaction, queues: tuple[str, ...] | None, *, acknowledged: bool
    ) -> FailureGroups:
        groups = self._count_groups(tx, queues, acknowledged=acknowledged)
        shown = heapq.nsmallest(
            MOST_GROUPS, groups.values(), key=lambda one: (-one.count, one.fingerprint)
        )
        store = DashboardStore(tx)
        for group in shown:
            group.ids = store.newest_failed(
                group.kinds, limit=MOST_SAMPLES, acknowledged=acknowledged
            )
        errors = store.errors([group.ids[0] for group in shown if group.ids])
        for group in shown:
            group.error = errors.get(group.ids[0]) if group.ids else None
        tasks = sum(group.count for group in groups.values())
        return FailureGroups(shown, tasks, len(shown) == len(groups))

    def _count_groups(
        self, tx: Transaction, queues: tuple[str, ...] | None, *, acknowledged: bool
    ) -> dict[str, FailureGroup]:
        """Return all groups by fingerprint, with counts but without samples and errors."""
        known = dict(self._lanes.by_number)
        groups: dict[str, FailureGroup] = {}
        for one in DashboardStore(tx).failures(acknowledged=acknowledged):
            lane = known.get(one.lane)
            if lane is not None and (queues is None or lane.queue in queues):
                name = error_fingerprints.fingerprint(lane.name, one.cause)
                group = groups.get(name)
                if group is None:
                    group = groups[name] = FailureGroup(fingerprint=name, name=lane.name, kinds=[])
                group.kinds.append(one)
                group.queues[lane.queue] = group.queues.get(lane.queue, 0) + one.count
        return groups
