"""When each schedule is due, and what the waiting ones wait for, so that an idle one costs nothing.

Theory of operation. The due time of every schedule is in a heap. A batch that fires schedules takes
their names from here, reads their rows from the store, and notes what it writes. A firing that
waits for the end of a task or run is looked at again when that end is committed. After a load all
waiting schedules are looked at, because an end may have been committed without a notice.
"""

import heapq
from collections.abc import Iterable
from typing import Self

from rota.core.schedules.changes import due_at_ms
from rota.core.schedules.model import ScheduleRecord
from rota.store.database import Transaction
from rota.store.schedules import ScheduleStore, is_waiting

AT_ONCE_MS = 0  # the due time of schedules that have to be looked at now
SLACK = 64  # outdated entries that the heap may have, beside one for each schedule


class HeldSchedules:
    def __init__(self) -> None:
        self._names: set[str] = set()
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # with outdated entries
        self._taken: dict[str, int] = {}  # by the batch: not in the heap
        self._woken: dict[str, None] = {}  # to be looked at now
        self._watched: dict[int, str] = {}  # the ids that waiting schedules wait for
        self._items: dict[str, tuple[int, ...]] = {}  # the same, by schedule
        self.is_changed = False  # since the leader last looked at the next due time

    @classmethod
    def load(cls, tx: Transaction) -> Self:
        held = cls()
        alarms = ScheduleStore(tx).alarms()
        held._names = {one.name for one in alarms}
        held._due = {one.name: one.due_ms for one in alarms if one.due_ms is not None}
        held._rebuild()
        held._woken = {one.name: None for one in alarms if one.is_waiting}
        held.is_changed = True
        return held

    def __len__(self) -> int:
        return len(self._names)

    @property
    def next_due_ms(self) -> int | None:
        """When the next schedule is due; None: no schedule is."""
        if self._woken:
            return AT_ONCE_MS
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, most: int) -> list[str]:
        """Take the names of schedules that are due: the batch has to note each of them."""
        names = list(self._woken)[:most]
        self._drop_outdated()
        while len(names) < most and self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._heap)
            del self._due[name]
            self._taken[name] = due_ms
            if name not in self._woken:
                names.append(name)
            self._drop_outdated()
        for name in names:
            self._woken.pop(name, None)
        self.is_changed = True
        return names

    def note_left(self, names: Iterable[str]) -> None:
        """Note taken schedules that the batch has not looked at: they stay due."""
        for name in names:
            self._woken[name] = None
            if name in self._taken:
                self._set_due(name, self._taken.pop(name))

    def note(self, name: str, record: ScheduleRecord | None, *, is_checked: bool) -> None:
        """Note the schedule that the batch writes; None: it deletes it.

        Checked: the batch has looked at what the schedule waits for.
        """
        self.is_changed = True
        self._forget(name)
        if record is None:
            self._names.discard(name)
            self._due.pop(name, None)
            return
        self._names.add(name)
        self._set_due(name, due_at_ms(record))
        if is_waiting(record.state):
            self._items[name] = tuple(one.id for one in record.state.open)
            self._watched |= dict.fromkeys(self._items[name], name)
            if not is_checked or not record.state.open:
                self._woken[name] = None
        if len(self._heap) > 2 * len(self._due) + SLACK:
            self._rebuild()

    def note_ended(self, ids: Iterable[int]) -> None:
        """Wake the schedules that wait for the end of these tasks and runs."""
        if not self._watched:
            return
        for one in ids:
            if one in self._watched:
                self._woken[self._watched[one]] = None
                self.is_changed = True

    def _set_due(self, name: str, due_ms: int | None) -> None:
        before_ms = self._due.pop(name, None)
        if due_ms is not None:
            self._due[name] = due_ms
            if due_ms != before_ms:  # otherwise the heap has it
                heapq.heappush(self._heap, (due_ms, name))

    def _forget(self, name: str) -> None:
        """Forget what a schedule waits for."""
        self._taken.pop(name, None)
        self._woken.pop(name, None)
        for one in self._items.pop(name, ()):
            self._watched.pop(one, None)

    def _drop_outdated(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _rebuild(self) -> None:
        self._heap = [(due_ms, name) for name, due_ms in self._due.items()]
        heapq.heapify(self._heap)
