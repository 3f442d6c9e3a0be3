"""Who runs the batches? A thread of its own, the event loop for trifles, in tests always the loop.

A writer takes everything that waits at a moment, runs it as one batch, and hands the delivery to
the event loop in one go. While a batch runs, the next one gathers: under load batches grow, and
the cost of a commit is shared.

Going to another thread and back costs about as much as a small commit. So when the thread is idle
and all that waits is light, the batch is run where it is, as long as the disk answers quickly; the
loop stands still for no longer than that. There is never more than one writer at a time.

A caller that is alone need not even wait until the loop comes round: there is nobody to share a
commit with. Whether it is alone is told by what came lately: as soon as two come within one turn
of the loop, callers are gathered again, until many batches in a row had one in them.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from rota.engine.entries import Delivery, Entry

log = structlog.get_logger("rota.engine")

MOST_PER_BATCH = 10_000  # weight after which a batch is closed, so that none takes too long
MOST_LIGHT_ENTRIES = 64  # more than this at once is no trifle
QUICK_S = 0.004  # light batches that take longer than this on average go to the thread
DURATION_SHARE = 0.1  # how much the newest duration counts in that average
ALONE_AFTER = 16  # batches of one in a row, after which a caller is taken to be alone

Run = Callable[[Sequence[Entry]], Delivery]
Deliver = Callable[[Delivery], None]


class Writer(Protocol):
    is_running: bool
    weight: int  # of what has been put and not yet delivered

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def put(self, entry: Entry) -> None: ...

    def put_alone(self, entry: Entry) -> None:
        """As `put`, for what nothing follows: it may be answered before this returns."""
        ...

    async def stop(self) -> None:
        """Work off what was put, then end."""
        ...


class ThreadWriter:
    def __init__(self, run: Run, deliver: Deliver, *, is_shared: bool = False) -> None:
        """Where others write, too, a batch may have to wait for theirs: the loop never does."""
        self._is_shared = is_shared
        self._run = run
        self._deliver = deliver
        self._gathered: list[Entry] = []  # since the loop last came round
        self._handed_over = 0  # entries with the thread; none: it is idle
        self._waiting: SimpleQueue[Entry | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="rota-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._usual_s = 0.0  # how long light batches have taken lately
        self._ones = 0  # batches of one in a row
        self._is_turn_used = False  # whether a batch was run in this turn of the loop
        self._is_busy = False  # in the middle of a batch of the loop's, or of its delivery
        self.is_running = False
        self.weight = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_running = True
        self._thread.start()

    def put(self, entry: Entry) -> None:
        self.weight += entry.weight
        if self._loop is None:
            self._hand_over([entry])
        elif not self._handed_over:
            if not self._gathered:
                self._loop.call_soon(self._set_out)
            self._gathered.append(entry)
        elif entry.is_light and not self._is_shared and len(self._gathered) < MOST_LIGHT_ENTRIES:
            # It would wait there as well; here it is run as soon as the thread comes back, without
            # which a steady stream of trifles would keep the thread busy for ever.
            self._gathered.append(entry)
        else:
            entries, self._gathered = self._gathered, []
            self._hand_over([*entries, entry])

    def put_alone(self, entry: Entry) -> None:
        if (
            self._ones < ALONE_AFTER
            or self._is_turn_used
            or self._is_busy
            or self._gathered
            or self._loop is None
            or not self._is_trifle([entry])
        ):
            if self._is_turn_used:
                self._ones = 0  # others come as well
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
        """Run what was gathered here, or hand it over."""
        entries, self._gathered = self._gathered, []
        self._ones = self._ones + 1 if len(entries) == 1 else 0
        if not self._is_trifle(entries):
            self._hand_over(entries)
        elif entries:
            self._run_here(entries)

    def _is_trifle(self, entries: Sequence[Entry]) -> bool:
        return (
            not self._handed_over
            and not self._is_shared
            and len(entries) <= MOST_LIGHT_ENTRIES
            and self._usual_s < QUICK_S
            and all(entry.is_light for entry in entries)
        )

    def _run_here(self, entries: Sequence[Entry]) -> None:
        self._is_busy = True
        try:
            delivery, seconds = self._timed(entries)
            self._note_duration(seconds)
            self._arrive(delivery, sum(entry.weight for entry in entries))
        finally:
            self._is_busy = False

    def _timed(self, entries: Sequence[Entry]) -> tuple[Delivery, float]:
        """Run a batch; how long it took."""
        started = time.perf_counter()
        try:
            delivery = self._run(entries)
        except Exception as error:
            # Our own mistake, after the commit: the callers hear of it, and work goes on.
            log.exception("batch could not be answered")
            delivery = Delivery([(entry, error) for entry in entries])
        return delivery, time.perf_counter() - started

    def _note_duration(self, seconds: float) -> None:
        self._usual_s += (seconds - self._usual_s) * DURATION_SHARE

    def _hand_over(self, entries: Sequence[Entry]) -> None:
        self._handed_over += len(entries)
        for entry in entries:
            self._waiting.put(entry)

    def _work(self) -> None:
        assert self._loop is not None
        is_last = False
        while not is_last:
            entries, is_last = self._take()
            if entries:
                delivery, seconds = self._timed(entries)
                self._loop.call_soon_threadsafe(self._come_back, delivery, entries, seconds)

    def _take(self) -> tuple[list[Entry], bool]:
        """Wait for the first entry, then take what else is there; True: it was the last."""
        entry = self._waiting.get()
        entries: list[Entry] = []
        weight = 0
        while entry is not None:
            entries.append(entry)
            weight += entry.weight
            if weight >= MOST_PER_BATCH:
                return entries, False
            try:
                entry = self._waiting.get_nowait()
            except Empty:
                return entries, False
        return entries, True

    def _come_back(self, delivery: Delivery, entries: Sequence[Entry], seconds: float) -> None:
        self._handed_over -= len(entries)
        if len(entries) <= MOST_LIGHT_ENTRIES and all(entry.is_light for entry in entries):
            self._note_duration(seconds)
        self._arrive(delivery, sum(entry.weight for entry in entries))
        if self._gathered and not self._handed_over:
            self._set_out()

    def _arrive(self, delivery: Delivery, weight: int) -> None:
        self.weight -= weight
        self._deliver(delivery)


class InlineWriter:
    """Runs batches on the loop: the same batches, no threads, every step in a known order."""

    def __init__(self, run: Run, deliver: Deliver) -> None:
        self._run = run
        self._deliver = deliver
        self._waiting: list[Entry] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_running = False
        self.weight = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_running = True

    def put(self, entry: Entry) -> None:
        assert self._loop is not None
        self.weight += entry.weight
        self._waiting.append(entry)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._work)

    def put_alone(self, entry: Entry) -> None:
        self.put(entry)

    async def stop(self) -> None:
        self.is_running = False
        self._work()

    def _work(self) -> None:
        entries, self._waiting = self._waiting, []
        if entries:
            delivery = self._run(entries)
            self.weight -= sum(entry.weight for entry in entries)
            self._deliver(delivery)
