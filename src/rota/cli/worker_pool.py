"""How large is a pool of worker processes, and which of them come and go?

Theory of operation. The pool is told now and then how many workers are wanted (`heed`), and looks
after its processes whenever something may have happened (`tend`). It grows at once and shrinks
with hysteresis (`core.scaling.resized`). A process that is let go is asked to drain, and is out of
the count but not out of mind: working and draining together never pass the maximum. A process that
ends unasked is started anew, after a wait that doubles as long as processes keep ending early.

Nothing in here reads a clock or starts a process: moments are arguments, and `Processes` does what
it is told.
"""

from collections.abc import Callable, Collection
from typing import Literal, Protocol

from msgspec import Struct

from rota.cli.output import ExitCode
from rota.core.scaling import PoolPolicy, PoolState, resized, workers_for
from rota.messages import ScalePage

FIRST_WAIT_MS = 500  # before a process that ended is started anew
LONGEST_WAIT_MS = 30_000
STEADY_MS = 10_000  # a process that has lived for so long is able to work


class Need(Struct, frozen=True, kw_only=True):
    """How many workers are wanted, and what most of them are for."""

    workers: int
    reason: str


class PoolChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said whenever something about the pool changes."""

    pool: Literal["started", "grown", "shrunk", "ended", "stopping"]
    size: int  # workers that the pool is to have from now on
    was: int | None = None
    wanted: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        sizes = f"{self.size}" if self.was is None else f"{self.was} to {self.size}"
        wanted = "" if self.wanted is None else f" ({self.wanted} wanted)"
        reason = f": {self.reason}" if self.reason else ""
        return f"pool {self.pool}, workers {sizes}{wanted}{reason}"


class Processes(Protocol):
    """The worker processes of a pool, each under its number."""

    def start(self, number: int) -> None:
        """Start one; an OSError says that there is no room for it."""

    def ask_to_stop(self, number: int) -> None:
        """Let one drain; asked once more, it hands back what it runs."""

    def ended(self) -> list[tuple[int, int]]:
        """Those that have ended since this was last asked, with their exit codes."""


class Pool:
    def __init__(
        self, policy: PoolPolicy, processes: Processes, tell: Callable[[PoolChange], None]
    ) -> None:
        self._policy = policy
        self._processes = processes
        self._tell = tell
        self._state = PoolState(size=policy.minimum)
        self._working: dict[int, int] = {}  # when each was started
        self._draining: set[int] = set()
        self._early_ends = 0  # in a row
        self._start_after_ms: int | None = None
        self._has_worked = False  # some process was able to
        self.is_stopping = False
        self.exit_code = ExitCode.OK

    @property
    def size(self) -> int:
        return self._state.size

    @property
    def is_over(self) -> bool:
        return self.is_stopping and not self._working and not self._draining

    def begin(self, *, now_ms: int) -> None:
        bounds = f"between {self._policy.minimum} and {self._policy.maximum}"
        self._tell(PoolChange(pool="started", size=self.size, reason=bounds))
        self.tend(now_ms=now_ms)

    def heed(self, need: Need, *, now_ms: int) -> None:
        """Follow what is wanted."""
        if self.is_stopping:
            return
        room = self._policy.maximum - len(self._draining)
        before = self.size
        self._state = resized(
            self._state, min(need.workers, room), now_ms=now_ms, policy=self._policy
        )
        if self.size != before:
            self._tell(
                PoolChange(
                    pool="grown" if self.size > before else "shrunk",
                    size=self.size,
                    was=before,
                    wanted=need.workers,
                    reason=need.reason,
                )
            )
        self.tend(now_ms=now_ms)

    def tend(self, *, now_ms: int) -> None:
        """Notice who has ended; let go of those that are too many, start those that are missing."""
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
        """How long missing processes have to wait for their start; None: none does."""
        return None if self._start_after_ms is None else max(0, self._start_after_ms - now_ms)

    def stop(self) -> None:
        """Let all drain and leave; once more: let them hand back what they run."""
        numbers = [*self._working, *self._draining] if self.is_stopping else [*self._working]
        if not self.is_stopping:
            self.is_stopping = True
            self._tell(PoolChange(pool="stopping", size=0, was=self.size))
        for number in numbers:
            self._processes.ask_to_stop(number)

    def _start_missing(self, now_ms: int) -> None:
        while len(self._working) < self.size:
            number = self._free_number()
            try:
                self._processes.start(number)
            except OSError as error:
                self._put_off(f"no worker process can be started ({error})", now_ms)
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
            # None of them ever could, and it has said why: trying again would not help.
            self.exit_code = ExitCode.UNUSABLE
            self.stop()
            return
        if lived_ms >= STEADY_MS:
            self._early_ends = 0
        self._put_off(f"a worker process ended with {_code_text(code)}", now_ms)

    def _put_off(self, problem: str, now_ms: int) -> None:
        """Wait before the next start, for longer each time."""
        # The bound keeps the number small; the longest wait is reached long before.
        wait_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(self._early_ends, 20))
        self._early_ends += 1
        self._start_after_ms = now_ms + wait_ms
        reason = f"{problem}; another starts in {wait_ms} ms"
        self._tell(PoolChange(pool="ended", size=self.size, reason=reason))

    def _free_number(self) -> int:
        taken = self._working.keys() | self._draining
        return next(number for number in range(1, len(taken) + 2) if number not in taken)


def _code_text(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {-code}"


def need_of(page: ScalePage, *, capabilities: Collection[str], concurrency: int) -> Need:
    """What workers with these capabilities, running so many tasks at once, are wanted for."""
    items = [item for item in page.items if set(item.requires).issubset(capabilities)]
    wanted = sum(item.wanted_capacity for item in items)
    if not items:
        return Need(workers=0, reason="nothing was ever submitted for it")
    largest = max(items, key=lambda item: item.wanted_capacity)
    required = f" requiring {', '.join(largest.requires)}" if largest.requires else ""
    return Need(
        workers=workers_for(wanted, concurrency),
        reason=f"queue {largest.queue}{required}: {largest.explanation}",
    )
