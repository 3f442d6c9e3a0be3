"""The tenants of queues that the writer holds in memory, with what each has waiting and running.

Theory of operation. A start moves the virtual time of its tenant on. In a queue that is divided by
time, a start is charged what attempts of the tenant take as a rule, and the end of the attempt
settles the difference.

To show the tenants with the most tasks without looking at all, tenants are kept by the size of
their load: level n has those with 2^(n-1) tasks or more. A tenant changes its level when its load
has doubled or halved, so a task costs O(1).
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from rota.core.flows.commands import TenantState, TenantStates
from rota.core.flows.fair_queue import Tenant
from rota.core.flows.queue_settings import QueueSettings
from rota.core.flows.shares import RecentShares
from rota.core.ids import TaskId

MOST_COMPARED = 2_000  # tenants that are sorted to find those with the most tasks
MOST_IDLE = 10_000  # tenants without tasks whose virtual time is remembered
FIRST_EXPECTED_MS = 100.0  # of an attempt, before one has ended

Settings = Callable[[str], QueueSettings]  # of a queue


class Running(NamedTuple):
    """A running task of a tenant."""

    tenant: Tenant
    started_at_ms: int
    charged_ms: float


class HeldTenants:
    def __init__(self, settings: Settings) -> None:
        self.clocks: dict[str, float] = {}  # the virtual time of each queue
        self.recent = RecentShares()
        self.running: dict[TaskId, Running] = {}
        self._settings = settings
        self._tenants: dict[tuple[str, str], Tenant] = {}
        self._idle: dict[tuple[str, str], None] = {}  # without tasks, those longest so first
        self._levels: dict[str, dict[int, dict[str, Tenant]]] = {}  # by queue and level
        self._counts: dict[str, int] = {}  # tenants of each queue that have tasks

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._tenants.values())

    def get(self, queue: str, key: str) -> Tenant:
        tenant = self._tenants.get((queue, key))
        if tenant is None:
            weight = self._settings(queue).weights.get(key, 1.0)
            tenant = self._tenants[queue, key] = Tenant(queue, key, weight)
        return tenant

    # --- turns ------------------------------------------------------------------------------------

    def join(self, tenant: Tenant) -> None:
        """Count one more flow of a tenant; one that had no work saves up no time."""
        if tenant.flows == 0:
            tenant.virtual_time = max(tenant.virtual_time, self.clocks.get(tenant.queue, 0.0))
        tenant.flows += 1

    def leave(self, tenant: Tenant) -> None:
        """Count one flow of a tenant less."""
        tenant.flows -= 1
        self._note_idle(tenant)

    def charge(self, tenant: Tenant) -> None:
        """Charge a tenant for one start, which `note_started` has to follow."""
        self.clocks[tenant.queue] = tenant.virtual_time
        if self._is_by_time(tenant):
            tenant.charge(_expected_ms(tenant))
            tenant.picked += 1
        else:
            tenant.charge()

    def _is_by_time(self, tenant: Tenant) -> bool:
        return self._settings(tenant.queue).fairness == "time"

    # --- tasks ------------------------------------------------------------------------------------

    def note_waiting(self, tenant: Tenant, count: int) -> None:
        """Note that so many tasks of a tenant have come to the queue, or left it."""
        before = tenant.queued + tenant.running
        tenant.queued += count
        self._note_load(tenant, before)

    def note_started(self, task_id: TaskId, tenant: Tenant, *, now_ms: int) -> None:
        charged_ms = 0.0  # a job is started by its caller, and not picked
        if tenant.picked:
            tenant.picked -= 1
            charged_ms = _expected_ms(tenant)
        self._enter(task_id, Running(tenant, now_ms, charged_ms))
        if tenant.key and not self._is_by_time(tenant):
            self.recent.add(tenant.queue, tenant.key, 1.0, now_ms=now_ms)

    def note_running(self, task_id: TaskId, tenant: Tenant, *, started_at_ms: int) -> None:
        """Note a task that was found running; its time is charged when it ends."""
        self._enter(task_id, Running(tenant, started_at_ms, 0.0))

    def _enter(self, task_id: TaskId, running: Running) -> None:
        tenant = running.tenant
        before = tenant.queued + tenant.running
        tenant.running += 1
        self.running[task_id] = running
        self._note_load(tenant, before)

    def note_ended(self, ids: Iterable[TaskId], *, now_ms: int) -> None:
        """Note the ends of attempts, of which few may be of tenants."""
        for task_id in ids:
            running = self.running.pop(task_id, None)
            if running is None:
                continue
            tenant = running.tenant
            if self._is_by_time(tenant):
                took_ms = float(max(0, now_ms - running.started_at_ms))
                tenant.settle(charged_ms=running.charged_ms, took_ms=took_ms)
                if tenant.key:
                    self.recent.add(tenant.queue, tenant.key, took_ms, now_ms=now_ms)
            before = tenant.queued + tenant.running
            tenant.running -= 1
            self._note_load(tenant, before)

    # --- the order by load ------------------------------------------------------------------------

    def _note_load(self, tenant: Tenant, before: int) -> None:
        load = tenant.queued + tenant.running
        old, new = before.bit_length(), load.bit_length()
        if old == new:
            return
        if tenant.key:  # the tasks without a key are no tenant to be shown
            levels = self._levels.setdefault(tenant.queue, {})
            if old:
                del levels[old][tenant.key]
            if new:
                levels.setdefault(new, {})[tenant.key] = tenant
            if not old or not new:
                self._counts[tenant.queue] = self._counts.get(tenant.queue, 0) + (1 if new else -1)
        self._note_idle(tenant)

    def _note_idle(self, tenant: Tenant) -> None:
        """Forget tenants without tasks beyond a number, those longest without first."""
        place = tenant.queue, tenant.key
        self._idle.pop(place, None)
        if tenant.flows or tenant.queued or tenant.running:
            return
        self._idle[place] = None
        if len(self._idle) > MOST_IDLE:
            gone = next(iter(self._idle))
            del self._idle[gone], self._tenants[gone]

    def states(self, queue: str, most: int, *, now_ms: int) -> TenantStates:
        """The tenants with the most tasks; of thousands with about as many as the last, any."""
        found: list[Tenant] = []
        levels = self._levels.get(queue, {})
        for level in sorted(levels, reverse=True):
            found += islice(levels[level].values(), MOST_COMPARED - len(found))
            if len(found) >= most:
                break
        found = nlargest(most, found, key=lambda one: (one.queued + one.running, one.running))
        return TenantStates(
            [
                TenantState(
                    key=one.key,
                    weight=one.weight,
                    waiting=one.queued,
                    running=one.running,
                    share=self.recent.share(queue, one.key, now_ms=now_ms),
                )
                for one in found
            ],
            self._counts.get(queue, 0),
        )


def _expected_ms(tenant: Tenant) -> float:
    return FIRST_EXPECTED_MS if tenant.expected_ms is None else tenant.expected_ms
