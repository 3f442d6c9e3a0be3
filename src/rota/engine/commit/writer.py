"""Runs batches: on a thread, on the event loop for cheap ones, or inline in tests.

A writer takes all waiting commands, runs them as one batch, and hands the delivery to the event
loop in one callback. While a batch runs, the next one gathers. So batches grow under load, and
their commands share the cost of a commit.

A switch to another thread and back costs about as much as a small commit. So when the thread is
idle and all waiting commands are cheap, the batch runs on the event loop, as long as the disk is
fast. The loop is blocked for no longer than such a batch takes. Only one batch runs at a time.

A caller that is alone does not even wait for the next turn of the loop: no other caller could share
the commit. The writer judges by the recent commands. As soon as two arrive within one turn of the
loop, it gathers callers again, until `ALONE_AFTER` batches in a row had one command.

A store that is reached over a network may be silent for seconds. There only the command of a caller
that is alone runs on the loop, and only while the store usually answers at once. The loop waits for
it for a moment. Then the thread waits for the rest. A leader with followers lets their commands
gather before it begins a batch (`pacing`).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeVar

import structlog

from rota.engine.commit.pacing import BatchPacing
from rota.engine.commit.request import Delivery, QueuedCommand

log = structlog.get_logger("rota.engine")

MOST_PER_BATCH = 10_000  # weight after which a batch is closed, so that none takes too long
MOST_LIGHT_ENTRIES = 64  # a batch of more commands than this is not cheap
QUICK_S = 0.004  # cheap batches that take longer than this on average go to the thread
DURATION_SHARE = 0.1  # the weight of the newest duration in that average
ALONE_AFTER = 16  # batches of one command in a row, after which a caller counts as alone
REMOTE_QUICK_S = 0.001  # as `QUICK_S`, for a store that is reached over a network
REMOTE_WAIT_S = 0.004  # the longest wait of the loop for such a store, after which the thread waits

Run = Callable[[Sequence[QueuedCommand]], Delivery]
Deliver = Callable[[Delivery], None]
Ran = TypeVar("Ran")


class Begin(Protocol):
    def __call__(
        self, entries: Sequence[QueuedCommand], *, wait_s: float
    ) -> Delivery | Callable[[], Delivery]:
        """Run a batch, waiting no longer than this; or return what is left to do and may wait."""
        ...


class Unfinished(NamedTuple):
    """A batch for the thread, which the loop may have begun."""

    entries: Sequence[QueuedCommand]
    finish: Callable[[], Delivery]
    begun_s: float


class Writer(Protocol):
    is_running: bool
    weight: int  # of the commands that were put and are not yet delivered

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def put(self, entry: QueuedCommand) -> None: ...

    def put_alone(self, entry: QueuedCommand) -> None:
        """As `put`, for a caller that sends no other command in this turn of the loop.

        The command may be resolved before this returns.
        """
        ...

    async def stop(self) -> None:
        """Execute all commands that were put, then end."""
        ...


class ThreadWriter:
    def __init__(self, run: Run, deliver: Deliver, *, begin: Begin | None = None) -> None:
        """Begin: runs a batch on the loop, where a commit waits for a network."""
        self._begin = begin
        self._run = run
        self._deliver = deliver
        self._gathered: list[QueuedCommand] = []  # for the next batch on the loop
        self._handed_over = 0  # commands with the thread; 0: it is idle
        self._waiting: SimpleQueue[QueuedCommand | Unfinished | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="rota-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pacing = BatchPacing()
        self._gathering = 0  # commands that the thread waits for before it begins a batch
        self._has_gathered = threading.Event()
        self._usual_s = 0.0  # the average duration of recent cheap batches
        self._ones = 0  # batches of one command in a row
        self._is_turn_used = False  # whether a lone command was run in this turn of the loop
        self._is_busy = False  # whether the loop runs or delivers a batch right now
        self.is_running = False
        self.weight = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_running = True
        self._thread.start()

    def put(self, entry: QueuedCommand) -> None:
        self.weight += entry.weight
        if self._loop is None:
            self._hand_over([entry])
        elif not self._handed_over:
            if not self._gathered:
                self._loop.call_soon(self._set_out)
            self._gathered.append(entry)
        elif entry.is_cheap and not self._begin and len(self._gathered) < MOST_LIGHT_ENTRIES:
            # With the thread it would wait as well. Here it runs on the loop as soon as the thread
            # is idle. Otherwise a steady stream of cheap commands would keep the thread busy.
            self._gathered.append(entry)
        else:
            entries, self._gathered = self._gathered, []
            self._hand_over([*entries, entry])

    def put_alone(self, entry: QueuedCommand) -> None:
        if (
            self._ones < ALONE_AFTER
            or self._is_turn_used
            or self._is_busy
            or self._gathered
            or self._handed_over
            or self._loop is None
            or not entry.is_cheap
            or not self._is_quick()
        ):
            if self._is_turn_used:
                self._ones = 0  # the caller is not alone
            self.put(entry)
            return
        self.weight += entry.weight
        self._is_turn_used = True
        self._loop.call_soon(self._end_turn)
        self._run_here([entry])

    def _end_turn(self) -> None:
        self._is_turn_used = False

    async def stop(self) -> None:
        if self.is_running:
            self.is_running = False
            self._hand_over(self._gathered)
            self._gathered = []
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            # The last delivery was posted before the thread ended; let it arrive.
            await asyncio.sleep(0)

    def _set_out(self) -> None:
        """Run the gathered commands on the loop, or hand them to the thread."""
        entries, self._gathered = self._gathered, []
        self._ones = self._ones + 1 if len(entries) == 1 else 0
        if not self._is_trifle(entries):
            self._hand_over(entries)
        elif entries:
            self._run_here(entries)

    def _is_trifle(self, entries: Sequence[QueuedCommand]) -> bool:
        if self._handed_over:
            return False
        if self._begin is not None:
            is_small = len(entries) == 1 and self._ones >= ALONE_AFTER
        else:
            is_small = len(entries) <= MOST_LIGHT_ENTRIES
        return is_small and self._is_quick() and all(entry.is_cheap for entry in entries)

    def _is_quick(self) -> bool:
        """Whether cheap batches take so little time that the loop may wait for them."""
        return self._usual_s < (QUICK_S if self._begin is None else REMOTE_QUICK_S)

    def _run_here(self, entries: Sequence[QueuedCommand]) -> None:
        self._is_busy = True
        begun_s = time.perf_counter()
        try:
            run: Callable[[Sequence[QueuedCommand]], Delivery | Callable[[], Delivery]]
            run = self._run if self._begin is None else partial(self._begin, wait_s=REMOTE_WAIT_S)
            done = self._guarded(entries, run, entries)
            if isinstance(done, Delivery):
                self._note_duration(time.perf_counter() - begun_s)
                self._arrive(done, _weight_of(entries))
            else:
                self._handed_over += len(entries)
                self._waiting.put(Unfinished(entries, done, begun_s))
        finally:
            self._is_busy = False

    def _guarded(
        self, entries: Sequence[QueuedCommand], run: Callable[..., Ran], /, *given: object
    ) -> Ran | Delivery:
        try:
            return run(*given)
        except Exception as error:
            # A bug of the engine, after the commit. The callers get the error, and the writer goes
            # on.
            log.exception("batch_delivery_failed")
            return Delivery([(entry, error) for entry in entries])

    def _note_duration(self, seconds: float) -> None:
        self._usual_s += (seconds - self._usual_s) * DURATION_SHARE

    def _hand_over(self, entries: Sequence[QueuedCommand]) -> None:
        self._handed_over += len(entries)
        for entry in entries:
            self._waiting.put(entry)
        if self._gathering and self._waiting.qsize() >= self._gathering:
            self._has_gathered.set()

    def _work(self) -> None:
        assert self._loop is not None
        is_last = False
        while not is_last:
            first = self._waiting.get()
            if isinstance(first, Unfinished):
                batch = first
            else:
                if first is not None and self._begin is not None:
                    self._wait_for_followers()
                entries, is_last = self._take(first)
                batch = Unfinished(entries, partial(self._run, entries), time.perf_counter())
            if batch.entries:
                delivery = self._guarded(batch.entries, batch.finish)
                ended_s = time.perf_counter()
                seconds = ended_s - batch.begun_s
                self._pacing.note(batch.entries, begun_s=batch.begun_s, ended_s=ended_s)
                self._loop.call_soon_threadsafe(self._come_back, delivery, batch.entries, seconds)

    def _wait_for_followers(self) -> None:
        """Let commands gather that are on their way from followers."""
        wanted = self._pacing.gathering(now_s=time.perf_counter())
        missing = wanted.commands - 1  # beside the one that is taken already
        if self._waiting.qsize() < missing:
            self._has_gathered.clear()
            self._gathering = missing
            if self._waiting.qsize() < missing:  # none has come meanwhile that would have told
                self._has_gathered.wait(wanted.within_s)
            self._gathering = 0

    def _take(self, first: QueuedCommand | None) -> tuple[list[QueuedCommand], bool]:
        """Take all commands that wait with the first; True: the writer is to end."""
        entry = first
        entries: list[QueuedCommand] = []
        weight = 0
        while entry is not None:
            entries.append(entry)
            weight += entry.weight
            if weight >= MOST_PER_BATCH:
                return entries, False
            try:
                following = self._waiting.get_nowait()
            except Empty:
                return entries, False
            # The loop begins a batch only while the thread has nothing to do.
            assert not isinstance(following, Unfinished)
            entry = following
        return entries, True

    def _come_back(
        self, delivery: Delivery, entries: Sequence[QueuedCommand], seconds: float
    ) -> None:
        self._handed_over -= len(entries)
        if len(entries) <= MOST_LIGHT_ENTRIES and all(entry.is_cheap for entry in entries):
            self._note_duration(seconds)
        self._arrive(delivery, _weight_of(entries))
        if self._gathered and not self._handed_over:
            self._set_out()

    def _arrive(self, delivery: Delivery, weight: int) -> None:
        self.weight -= weight
        self._deliver(delivery)


class InlineWriter:
    """Runs the same batches on the loop, without a thread, so the order of steps is fixed."""

    def __init__(self, run: Run, deliver: Deliver) -> None:
        self._run = run
        self._deliver = deliver
        self._waiting: list[QueuedCommand] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_running = False
        self.weight = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_running = True

    def put(self, entry: QueuedCommand) -> None:
        assert self._loop is not None
        self.weight += entry.weight
        self._waiting.append(entry)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._work)

    def put_alone(self, entry: QueuedCommand) -> None:
        self.put(entry)

    async def stop(self) -> None:
        self.is_running = False
        self._work()

    def _work(self) -> None:
        entries, self._waiting = self._waiting, []
        if entries:
            delivery = self._run(entries)
            self.weight -= _weight_of(entries)
            self._deliver(delivery)


def _weight_of(entries: Sequence[QueuedCommand]) -> int:
    return entries[0].weight if len(entries) == 1 else sum([entry.weight for entry in entries])
