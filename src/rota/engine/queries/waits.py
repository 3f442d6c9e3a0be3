"""Reads of what open runs wait for: the list for people, and one line for each run."""

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.tasks.model import TaskState
from rota.core.workflow.standings import LiveWork, Standing, standing_of
from rota.core.workflow.states import RUN_ENDED
from rota.core.workflow.waits import ANSWERED_KINDS, RunName, StoredWait, WaitKind, WaitPlace
from rota.engine.queries.reader import CachedRead, StoreReader
from rota.store.dashboard import DashboardStore, RunWorkCount
from rota.store.database import Transaction
from rota.store.workflow.runs import RunStore
from rota.store.workflow.waits import WaitStore


class WaitList(NamedTuple):
    waits: list[StoredWait]
    names: dict[int, RunName]  # of their runs, and of the runs inside which those run


class WaitQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        self._counts = CachedRead(reader, _count)

    async def has_unrecorded(self) -> bool:
        """Return whether there are open runs whose waits were never recorded."""
        return await self._read(lambda tx: bool(WaitStore(tx).unrecorded(1)))

    async def counts(self) -> dict[str, int]:
        """Return how many approvals and signals are waited for; the answer is cached."""
        return await self._counts.get()

    async def page(
        self, kinds: Sequence[WaitKind], *, after: tuple[WaitKind, WaitPlace] | None, limit: int
    ) -> WaitList:
        """Return a page of waits: those of the first kind first, the oldest of each first."""

        def body(tx: Transaction) -> WaitList:
            store, found = WaitStore(tx), list[StoredWait]()
            begun = after is None
            for kind in kinds:
                is_here = after is not None and after[0] == kind
                begun = begun or is_here
                if begun and len(found) < limit:
                    place = after[1] if after is not None and is_here else WaitPlace()
                    found += store.page(kind, after=place, limit=limit - len(found))
            return WaitList(found, _with_parents(store, [one.run for one in found]))

        return await self._read(body)

    async def workflows(self, run_ids: Sequence[int]) -> dict[int, str]:
        """Return the workflow of each of these runs."""
        found = await self._read(lambda tx: WaitStore(tx).names(sorted({*run_ids})))
        return {one.id: one.workflow for one in found.values()}

    async def standings(self, run_ids: Sequence[int]) -> dict[int, Standing]:
        """Return what each of these runs waits for, if it is open, in one line."""

        def body(tx: Transaction) -> dict[int, Standing]:
            runs = RunStore(tx).by_ids([*run_ids])
            open_ids = [one.id for one in runs.values() if one.state not in RUN_ENDED]
            if not open_ids:
                return {}
            waits: dict[int, list[StoredWait]] = {}
            for wait in WaitStore(tx).of_runs(open_ids):
                waits.setdefault(wait.run, []).append(wait)
            work = self._work(tx, open_ids)
            found = {one: standing_of(waits.get(one, ()), work[one]) for one in open_ids}
            return {one: standing for one, standing in found.items() if standing is not None}

        return await self._read(body)

    def _work(self, tx: Transaction, run_ids: list[int]) -> dict[int, LiveWork]:
        """Return the live tasks, child runs and sleeps of these runs."""
        store = WaitStore(tx)
        work = {one: LiveWork(running={}, queued={}, scheduled={}, children={}) for one in run_ids}
        for count in DashboardStore(tx).run_work(run_ids):
            self._count_tasks(work[count.run], count)
        for children in store.children(run_ids):
            work[children.run].children[children.workflow] = children.count
        for sleep in store.sleeps(run_ids):
            found = work[sleep.run]
            work[sleep.run] = LiveWork(
                running=found.running,
                queued=found.queued,
                scheduled=found.scheduled,
                children=found.children,
                sleeps_until_ms=sleep.due_at_ms,
            )
        return work

    def _count_tasks(self, work: LiveWork, count: RunWorkCount) -> None:
        lane = self._lanes.by_number.get(count.lane)
        by_state = {
            TaskState.RUNNING: work.running,
            TaskState.QUEUED: work.queued,
            TaskState.SCHEDULED: work.scheduled,
        }
        if lane is not None and count.state in by_state:
            names = by_state[count.state]
            names[lane.name] = names.get(lane.name, 0) + count.count


def _with_parents(store: WaitStore, run_ids: list[int]) -> dict[int, RunName]:
    """The names of these runs, and of the runs inside which they run."""
    names = store.names(sorted({*run_ids}))
    parents = {one.parent_run for one in names.values() if one.parent_run is not None}
    return names | store.names(sorted(parents - names.keys()))


def _count(tx: Transaction) -> dict[str, int]:
    found = WaitStore(tx).counts()
    return {kind: found[kind] for kind in ANSWERED_KINDS if kind in found}
