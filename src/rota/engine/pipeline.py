"""The writer's side of the engine: batches in, deliveries out, on the database thread.

An event that cannot be carried out fails alone: when a batch breaks, it is rolled back and its
events are tried again one by one.
"""

import time
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import structlog

from rota.core.decisions import (
    TellCancelled,
)
from rota.core.events import (
    LeaseWork,
)
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.shards.members import ShardPolicy
from rota.core.snapshot import Rules
from rota.engine.batch import Batch, BatchResult, Outcome
from rota.engine.clock import Clock, StoreClock
from rota.engine.counting import count_batch
from rota.engine.entries import Delivery, Entry
from rota.engine.figures import Figures
from rota.engine.hinting import concerns_others
from rota.engine.parking import Parking, serves
from rota.engine.refreshing import refreshed
from rota.engine.remembering import Memory
from rota.engine.runs import RunCache
from rota.engine.series import HOUR_MS
from rota.engine.sessions import SessionMemory, recalled
from rota.engine.shard_cache import ShardCache
from rota.engine.sharing import Sharing
from rota.engine.tallies import Tallies
from rota.errors import RotaError, Unavailable
from rota.store.artifacts import Artifacts
from rota.store.blobs import Blobs
from rota.store.board import Board
from rota.store.database import Database, Transaction
from rota.store.lanes import Lanes
from rota.store.locks import Locks
from rota.store.notices import Notices
from rota.store.queues import Queues
from rota.store.runs import Runs
from rota.store.shards import Shards
from rota.store.tasks import Tasks
from rota.store.workers import Workers

log = structlog.get_logger("rota.engine")

# What our own mistakes look like; anything else that is no RotaError is the store's trouble.
OUR_MISTAKES = (
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


MOST_UNFILLED = 10_000  # workers of which it is remembered that there was little for them


class Pipeline:
    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        figures: Figures,
        *,
        clock: Clock,
        steady_clock: Clock,
        rules: Rules,
        dice: Callable[[], float],
        shard_policy: ShardPolicy,
        blobs: Blobs | None = None,
        replica: str = "",
    ) -> None:
        """Replica: our name, where several coordinators share the store."""
        self._database = database
        self._is_shared = database.is_shared
        self._replica = replica
        if self._is_shared:
            figures.tallies = Tallies(replica)
        self._blobs = blobs
        self._lanes = lanes
        self._figures = figures
        self._clock = clock
        self._steady_clock = steady_clock
        self._rules = rules
        self._dice = dice
        self._memory = Memory()
        self._runs = RunCache()
        self._shards = ShardCache(shard_policy, is_shared=self._is_shared)
        self._has_lanes = True  # False: the book may hold lanes that were never committed
        self._is_unsure = False  # True: a batch broke, perhaps after its commit
        self._parking: Parking[Entry] = Parking()
        self._unfilled: set[str] = set()  # workers that were last given less than they had room for
        self.store_problem: str | None = None

    def recover(self) -> None:
        """Take up where the last coordinator on this store left off."""

        def body(tx: Transaction) -> Memory:
            self._lanes.read(tx)
            if self._is_shared:
                return self._join(tx)
            self._lanes.strike_out(tx)
            runs = Runs(tx)
            self._runs.has_tasks = runs.has_tasks()
            self._runs.has_staged = Artifacts(tx).has_staged()
            self._shards.fill(Shards(tx), now_ms=self._steady_clock.now_ms())
            Locks(tx).drop_lines()
            Board(tx).fill_causes()
            self._figures.series.fill(Board(tx).minutes(self._clock.now_ms() - HOUR_MS))
            if self._blobs is not None:
                self._blobs.sweep(Artifacts(tx).files())
            workers = Workers(tx)
            last = Tasks(tx, self._lanes).last_id()
            return Memory(
                last_task_id=max(last, runs.last_id(), workers.counter("task")),
                paused=frozenset(Queues(tx).paused()),
                has_open_breakers=workers.has_open_breakers(),
                has_cancelled=workers.has_cancelled(),
                last_seq=Notices(tx).bounds().last_seq,
                sessions=recalled(tx, SessionMemory()),
            )

        self._memory = self._database.write(body)

    def _join(self, tx: Transaction) -> Memory:
        """Begin where others may be at work: what is theirs stays as it is."""
        now_ms = self._times(tx)[1]
        self._shards.fill(Shards(tx), now_ms=now_ms)
        Locks(tx).leave_lines(self._replica, now_ms=now_ms)
        Board(tx).fill_causes()
        self._figures.series.fill(Board(tx).minutes(now_ms - HOUR_MS))
        return refreshed(tx, Memory(), self._lanes, self._runs)

    def _times(self, tx: Transaction) -> tuple[int, int]:
        """What time it is, and what time by the clock that nobody sets."""
        if tx.now_ms is None:
            return self._clock.now_ms(), self._steady_clock.now_ms()
        if isinstance(self._clock, StoreClock):
            self._clock.note(tx.now_ms)
        return tx.now_ms, tx.now_ms

    def has_little_for(self, worker_id: str) -> bool:
        """Whether a worker is most likely given what there is for it in no time."""
        return worker_id in self._unfilled

    @property
    def last_seq(self) -> int:
        """The number of the last notice."""
        return self._memory.last_seq

    def run(self, entries: Sequence[Entry]) -> Delivery:
        """Carry out a batch: in one transaction, or, if that breaks, each event in its own."""
        self._parking.sweep()
        try:
            result = self._commit(entries)
        except Exception as error:  # noqa: BLE001 - whatever broke, the others must go on
            self._figures.failed_batches += 1
            self._forget_uncommitted()
            if isinstance(error, Unavailable):
                return self._away(entries, error)
            if len(entries) == 1:
                return Delivery([(entries[0], self._broken(entries[0], error))])
            return self._one_by_one(entries)
        # Out of reach of the above: what is committed must never be tried again.
        self.store_problem = None
        self._memory = result.memory
        self._runs.touched.clear()
        self._shards.commit()
        self._remove_files(result.dropped_files)
        count_batch(self._figures, result, events=len(entries))
        if self._is_shared and concerns_others(result):
            self._database.hint()
        return Delivery(
            self._answers(entries, result),
            [*result.applied.finished, *(TaskId(one) for one in result.ended_runs)],
            result.next_moment_ms,
            result.shards.pushes,
            result.next_sweep_ms,
            result.keeping.granted,
            [result.told] if result.told.notices else [],
            result.sessions,
            result.decisions.get(TellCancelled, []),
        )

    def _away(self, entries: Sequence[Entry], error: Unavailable) -> Delivery:
        """The store is away. What may have been committed is not tried again: callers are told."""
        self.store_problem = error.detail
        log.error("store away", problem=error.detail)
        return Delivery([(entry, error) for entry in entries])

    def _remove_files(self, names: Sequence[str]) -> None:
        """No row names these any more. What cannot be removed now is swept at the next start."""
        if not names or self._blobs is None:
            return
        try:
            self._blobs.remove(names)
        except OSError as error:
            log.warning("artifacts cannot be removed", problem=str(error))

    def _one_by_one(self, entries: Sequence[Entry]) -> Delivery:
        delivery = Delivery()
        for number, entry in enumerate(entries, start=1):
            alone = self.run([entry])
            delivery.add(alone)
            if any(isinstance(outcome, Unavailable) for _, outcome in alone.answers):
                # The store is away; each further try could wait for it as long as this one did.
                delivery.answers += [(later, _unwritten()) for later in entries[number:]]
                break
        return delivery

    def _commit(self, entries: Sequence[Entry]) -> BatchResult:
        begun_ms = self._steady_clock.now_ms()

        def body(tx: Transaction) -> BatchResult:
            if not self._has_lanes:
                self._lanes.read(tx)
            memory, sharing = self._memory, None
            if self._is_shared:
                memory, sharing = self._shared(tx)
            now_ms, steady_ms = self._times(tx)
            batch = Batch(
                [entry.event for entry in entries],
                self._parking,
                now_ms=now_ms,
                steady_ms=steady_ms,
                rules=self._rules,
                dice=self._dice,
                lanes=self._lanes,
                memory=memory,
                runs=self._runs,
                shards=self._shards,
                sharing=sharing,
            )
            return batch(tx)

        started = time.perf_counter()
        try:
            result = self._database.write(body)
        finally:
            self._shards.note_busy(begun_ms, self._steady_clock.now_ms())
        self._has_lanes, self._is_unsure = True, False
        self._figures.commit_seconds += time.perf_counter() - started
        return result

    def _shared(self, tx: Transaction) -> tuple[Memory, Sharing]:
        """What is remembered, read anew if others have written meanwhile."""
        before = memory = self._memory
        is_foreign = tx.is_foreign or self._is_unsure
        if is_foreign:
            memory = refreshed(tx, before, self._lanes, self._runs)
        assert self._figures.tallies is not None
        return memory, Sharing(
            replica=self._replica,
            counts=self._figures.tallies.draw_up,
            is_foreign=is_foreign,
            workers_changed=memory.workers != before.workers,
        )

    def _answers(
        self, entries: Sequence[Entry], result: BatchResult
    ) -> list[tuple[Entry, Outcome | Exception]]:
        """Answers for all but the calls for work that found none: those are parked."""
        answers: list[tuple[Entry, Outcome | Exception]] = []
        # Those that were parked come first: work waits for them, and their worker is idle.
        parked = cast("list[tuple[Entry, Outcome]]", result.parked)
        for entry, _ in parked:
            self._parking.drop(entry)
        for entry, outcome in [*parked, *zip(entries, result.outcomes, strict=True)]:
            if isinstance(outcome, Granted):
                assert isinstance(entry.event, LeaseWork)
                self._note_grant(entry.event, len(outcome.leases))
                if entry.stays and not outcome.leases:
                    entry.is_parked = True
                    self._parking.park(entry, result.workers[entry.event.worker_id])
                    continue
                if entry.stands and outcome.leases:
                    self._park_rest(entry, outcome, result)
            answers.append((entry, outcome))
        self._figures.parked = len(self._parking)
        return answers

    def _note_grant(self, event: LeaseWork, count: int) -> None:
        if count >= event.most:
            self._unfilled.discard(event.worker_id)  # there may be more, nobody knows how much
        elif len(self._unfilled) < MOST_UNFILLED:
            self._unfilled.add(event.worker_id)

    def _park_rest(self, entry: Entry, granted: Granted, result: BatchResult) -> None:
        """Let the rest of a wish wait at once: asking for it anew would be another batch."""
        assert isinstance(entry.event, LeaseWork)
        worker = result.workers[entry.event.worker_id]
        left = entry.event.most - len(granted.leases)
        if left > 0 and not any(serves(worker, lane) for lane in result.open_lanes):
            event = msgspec.structs.replace(entry.event, most=left)
            rest = Entry(event, entry.future.get_loop().create_future(), stays=True, stands=True)
            rest.is_parked = True
            entry.rest = rest
            self._parking.park(rest, worker)

    def _broken(self, entry: Entry, error: Exception) -> Exception:
        if isinstance(error, RotaError):
            return error
        if isinstance(error, OUR_MISTAKES):
            log.error("event failed", kind=type(entry.event).__name__, exc_info=error)
            return error
        self.store_problem = f"{type(error).__name__}: {error}"
        log.error("store failed", problem=self.store_problem)
        return _unwritten()

    def _forget_uncommitted(self) -> None:
        """A rollback took new lanes back: read the book again, now or in the next transaction."""
        self._has_lanes = False
        self._parking.forget_lanes()
        self._runs.roll_back()
        self._shards.roll_back()
        if self._is_shared:
            # What may have been committed after all, the next batch takes for others'.
            self._is_unsure = True
            return
        try:
            self._memory.last_seq = self._database.read(self._reread)
        except Exception as error:  # noqa: BLE001 - the store is away; the next batch will say so
            self.store_problem = f"{type(error).__name__}: {error}"
        else:
            self._has_lanes = True

    def _reread(self, tx: Transaction) -> int:
        """The lanes, and the last number of a notice: a commit may have failed only to say so."""
        self._lanes.read(tx)
        self._memory.sessions = recalled(tx, self._memory.sessions)
        return Notices(tx).bounds().last_seq


def _unwritten() -> Unavailable:
    return Unavailable("the store cannot be written now; nothing was changed")
