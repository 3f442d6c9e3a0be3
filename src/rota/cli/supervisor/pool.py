"""The size of a pool of worker processes, and which of them start and stop.

Theory of operation. The supervisor reports the number of wanted workers from time to time
(`set_demand`), and lets the pool update its processes whenever something may have happened
(`update`). The pool grows at once and shrinks with hysteresis (`autoscaling.resized`). A surplus
process is asked to drain, and no longer counts as a worker; working and draining processes together
never exceed the maximum. A process that ends by itself is replaced after a backoff that doubles
while processes keep ending early.

Nothing in here reads a clock or starts a process: times are arguments, and `Processes` starts and
stops.
"""

from collections.abc import Callable, Collection
from typing import Literal, Protocol

from msgspec import Struct

from rota.cli.render.output import ExitCode
from rota.core.dispatch.autoscaling import PoolPolicy, PoolState, resized, workers_for
from rota.messages import ScalePage

MIN_BACKOFF_MS = 500  # before a process that ended is replaced
MAX_BACKOFF_MS = 30_000
STEADY_MS = 10_000  # a process that has lived this long is able to work


class PoolDemand(Struct, frozen=True, kw_only=True):
    """How many workers are wanted, and which queue wants most of them."""

    workers: int
    reason: str


class PoolChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Printed whenever the pool changes."""

    pool: Literal["started", "grown", "shrunk", "ended", "stopping"]
    size: int  # the new target number of workers
    was: int | None = None
    wanted: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        sizes = f"{self.size}" if self.was is None else f"{self.was} to {self.size}"
        wanted = "" if self.wanted is None else f" ({self.wanted} wanted)"
        reason = f": {self.reason}" if self.reason else ""
        return f"pool {self.pool}, workers {sizes}{wanted}{reason}"


class Processes(Protocol):
    """The worker processes of a pool, by number."""

    def start(self, number: int) -> None:
        """Start one; raises OSError when the system has no room for it."""

    def ask_to_stop(self, number: int) -> None:
        """Ask one to drain; asked again, it returns its tasks to their queues."""

    def ended(self) -> list[tuple[int, int]]:
        """Those that have ended since the last call, with their exit codes."""


class Pool:
    def __init__(
        self, policy: PoolPolicy, processes: Processes, report: Callable[[PoolChange], None]
    ) -> None:
        self._policy = policy
        self._processes = processes
        self._report = report
        self._state = PoolState(size=policy.minimum)
        self._working: dict[int, int] = {}  # when each was started
        self._draining: set[int] = set()
        self._early_ends = 0  # in a row
        self._start_after_ms: int | None = None
        self._has_worked = False  # some process was steady
        self.is_stopping = False
        self.exit_code = ExitCode.OK

    @property
    def size(self) -> int:
        return self._state.size

    @property
    def is_over(self) -> bool:
        return self.is_stopping and not self._working and not self._draining

    def start(self, *, now_ms: int) -> None:
        bounds = f"between {self._policy.minimum} and {self._policy.maximum}"
        self._report(PoolChange(pool="started", size=self.size, reason=bounds))
        self.update(now_ms=now_ms)

    def set_demand(self, demand: PoolDemand, *, now_ms: int) -> None:
        """Grow or shrink towards the wanted number of workers."""
        if self.is_stopping:
            return
        room = self._policy.maximum - len(self._draining)
        before = self.size
        self._state = resized(
            self._state, min(demand.workers, room), now_ms=now_ms, policy=self._policy
        )
        if self.size != before:
            self._report(
                PoolChange(
                    pool="grown" if self.size > before else "shrunk",
                    size=self.size,
                    was=before,
                    wanted=demand.workers,
                    reason=demand.reason,
                )
            )
        self.update(now_ms=now_ms)

    def update(self, *, now_ms: int) -> None:
        """Record ended processes, drain surplus ones, and start missing ones."""
        for number, code in self._processes.ended():
            self._note_end(number, code, now_ms)
        if self.is_stopping:
            return
        while len(self._working) > self.size:
            newest = max(self._working, key=lambda number: (self._working[number], number))
            del self._working[newest]
            self._draining.add(newest)
            self._processes.ask_to_stop(newest)
        if not self.wait_ms(now_ms):
            self._start_after_ms = None
            self._start_missing(now_ms)

    def wait_ms(self, now_ms: int) -> int | None:
        """Time until missing processes may start; None: none is missing."""
        return None if self._start_after_ms is None else max(0, self._start_after_ms - now_ms)

    def stop(self) -> None:
        """Let all processes drain; called again, they return their tasks to their queues."""
        numbers = [*self._working, *self._draining] if self.is_stopping else [*self._working]
        if not self.is_stopping:
            self.is_stopping = True
            self._report(PoolChange(pool="stopping", size=0, was=self.size))
        for number in numbers:
            self._processes.ask_to_stop(number)

    def _start_missing(self, now_ms: int) -> None:
        while len(self._working) < self.size:
            number = self._free_number()
            try:
                self._processes.start(number)
            except OSError as error:
                self._back_off(f"no worker process can be started ({error})", now_ms)
                return
            self._working[number] = now_ms

    def _note_end(self, number: int, code: int, now_ms: int) -> None:
        if number in self._draining:
            self._draining.discard(number)
            return
        lived_ms = now_ms - self._working.pop(number)
        if self.is_stopping:
            if code:
                self.exit_code = self.exit_code or ExitCode.FAILED
            return
        self._has_worked |= lived_ms >= STEADY_MS or any(
            now_ms - since_ms >= STEADY_MS for since_ms in self._working.values()
        )
        if code == ExitCode.UNUSABLE and not self._has_worked:
            # No process was ever able to work, and this one has printed why: a retry cannot help.
            self.exit_code = ExitCode.UNUSABLE
            self.stop()
            return
        if lived_ms >= STEADY_MS:
            self._early_ends = 0
        self._back_off(f"a worker process ended with {_code_text(code)}", now_ms)

    def _back_off(self, problem: str, now_ms: int) -> None:
        """Delay the next start, each time for longer."""
        # The bound keeps the number small; the maximum is reached long before.
        wait_ms = min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** min(self._early_ends, 20))
        self._early_ends += 1
        self._start_after_ms = now_ms + wait_ms
        reason = f"{problem}; another starts in {wait_ms} ms"
        self._report(PoolChange(pool="ended", size=self.size, reason=reason))

    def _free_number(self) -> int:
        taken = self._working.keys() | self._draining
        return next(number for number in range(1, len(taken) + 2) if number not in taken)


def _code_text(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {-code}"


def demand_of(page: ScalePage, *, capabilities: Collection[str], concurrency: int) -> PoolDemand:
    """The demand for workers with these capabilities and this concurrency."""
    items = [item for item in page.items if set(item.requires).issubset(capabilities)]
    wanted = sum(item.wanted_capacity for item in items)
    if not items:
        return PoolDemand(workers=0, reason="no task was ever submitted for them")
    largest = max(items, key=lambda item: item.wanted_capacity)
    required = f" requiring {', '.join(largest.requires)}" if largest.requires else ""
    return PoolDemand(
        workers=workers_for(wanted, concurrency),
        reason=f"queue {largest.queue}{required}: {largest.explanation}",
    )
