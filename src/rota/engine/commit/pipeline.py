"""The writer's side of the engine: batches in, deliveries out, on the database thread.

A command that cannot be executed fails alone: when a batch fails, it is rolled back, and the
pipeline tries its commands again one by one.
"""

import time
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import structlog

from rota.core.commands import LeaseWork
from rota.core.context import Context, Rules
from rota.core.decisions import (
    TellCancelled,
)
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.shards.members import ShardPolicy
from rota.engine.clock import Clock, StoreClock
from rota.engine.commit.batch import Batch, BatchResult, Outcome
from rota.engine.commit.counters import count_batch
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.state import WriterState, refreshed
from rota.engine.dispatch.waitlist import Waitlist, serves
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.time_series import HOUR_MS
from rota.engine.replicas.counters import ReplicaCounters
from rota.engine.replicas.shared_store import SharedStore
from rota.engine.runs.run_engine import RunCache
from rota.engine.sessions import SessionState, loaded_sessions
from rota.engine.shards.cache import ShardCache
from rota.errors import RotaError, Unavailable
from rota.store.dashboard import DashboardStore
from rota.store.database import Database, Transaction
from rota.store.events import EventStore
from rota.store.locks import LockStore
from rota.store.shards import ShardStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.blobs import Blobs
from rota.store.workflow.runs import RunStore

log = structlog.get_logger("rota.engine")

# The errors of the engine's own bugs. Any other error that is no RotaError comes from the store.
OUR_MISTAKES = (
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


MOST_UNFILLED = 10_000  # workers remembered as granted less than they asked for


class Pipeline:
    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        metrics: Metrics,
        *,
        clock: Clock,
        steady_clock: Clock,
        rules: Rules,
        dice: Callable[[], float],
        shard_policy: ShardPolicy,
        blobs: Blobs | None = None,
        replica: str = "",
    ) -> None:
        """Replica: this coordinator's name, where several share the store."""
        self._database = database
        self._is_shared = database.is_shared
        self._replica = replica
        if self._is_shared:
            metrics.tallies = ReplicaCounters(replica)
        self._blobs = blobs
        self._lanes = lanes
        self._metrics = metrics
        self._clock = clock
        self._steady_clock = steady_clock
        self._rules = rules
        self._dice = dice
        self._state = WriterState()
        self._runs = RunCache()
        self._shards = ShardCache(shard_policy, is_shared=self._is_shared)
        self._has_lanes = True  # False: the lanes in memory may include uncommitted ones
        self._is_unsure = False  # True: a batch failed, perhaps after its commit
        self._waitlist: Waitlist[QueuedCommand] = Waitlist()
        self._unfilled: set[str] = set()  # workers last granted less than they asked for
        self.store_problem: str | None = None

    def recover(self) -> None:
        """Load the state that the last coordinator left in this store."""

        def body(tx: Transaction) -> WriterState:
            self._lanes.load(tx)
            if self._is_shared:
                return self._join(tx)
            self._lanes.drop_unused_if_many(tx)
            runs = RunStore(tx)
            self._runs.has_tasks = runs.has_tasks()
            self._runs.has_staged = ArtifactStore(tx).has_staged()
            self._shards.fill(ShardStore(tx), now_ms=self._steady_clock.now_ms())
            LockStore(tx).delete_waiters()
            DashboardStore(tx).backfill_causes()
            self._metrics.series.fill(DashboardStore(tx).minutes(self._clock.now_ms() - HOUR_MS))
            if self._blobs is not None:
                self._blobs.sweep(ArtifactStore(tx).files())
            workers = WorkerStore(tx)
            last = TaskStore(tx, self._lanes).last_id()
            return WriterState(
                last_task_id=max(last, runs.last_id(), workers.counter("task")),
                paused=frozenset(QueueStore(tx).paused()),
                has_open_breakers=workers.has_open_breakers(),
                has_cancelled=workers.has_cancelled(),
                last_seq=EventStore(tx).bounds().last_seq,
                sessions=loaded_sessions(tx, SessionState()),
            )

        self._state = self._database.write(body)

    def _join(self, tx: Transaction) -> WriterState:
        """Load the state of a store that peers may use now; change nothing that is theirs."""
        now_ms = self._times(tx)[1]
        self._shards.fill(ShardStore(tx), now_ms=now_ms)
        LockStore(tx).expire_waiters(self._replica, now_ms=now_ms)
        DashboardStore(tx).backfill_causes()
        self._metrics.series.fill(DashboardStore(tx).minutes(now_ms - HOUR_MS))
        return refreshed(tx, WriterState(), self._lanes, self._runs)

    def _times(self, tx: Transaction) -> tuple[int, int]:
        """Return the wall-clock time, and the time of the steady clock, which is never set."""
        if tx.now_ms is None:
            return self._clock.now_ms(), self._steady_clock.now_ms()
        if isinstance(self._clock, StoreClock):
            self._clock.note(tx.now_ms)
        return tx.now_ms, tx.now_ms

    def has_little_for(self, worker_id: str) -> bool:
        """Whether the worker's last grant was less than it asked for, so its next call is cheap."""
        return worker_id in self._unfilled

    @property
    def last_seq(self) -> int:
        """The number of the last event in the log."""
        return self._state.last_seq

    def run(self, entries: Sequence[QueuedCommand]) -> Delivery:
        """Execute a batch in one transaction; if that fails, each command in its own."""
        self._waitlist.sweep()
        try:
            result = self._commit(entries)
        except Exception as error:  # noqa: BLE001 - after any error the other commands must go on
            self._metrics.failed_batches += 1
            self._forget_uncommitted()
            if isinstance(error, Unavailable):
                return self._away(entries, error)
            if len(entries) == 1:
                return Delivery([(entries[0], self._broken(entries[0], error))])
            return self._one_by_one(entries)
        # Outside the `try`: a committed batch must never be tried again.
        self.store_problem = None
        self._state = result.state
        self._runs.touched.clear()
        self._shards.commit()
        self._remove_files(result.dropped_files)
        count_batch(self._metrics, result, events=len(entries))
        if self._is_shared and concerns_peers(result):
            self._database.notify_peers()
        return Delivery(
            self._answers(entries, result),
            [*result.applied.finished, *(TaskId(one) for one in result.ended_runs)],
            result.next_moment_ms,
            result.shards.pushes,
            result.next_sweep_ms,
            result.granted_locks,
            [result.events] if result.events.events else [],
            result.sessions,
            result.decisions.get(TellCancelled, []),
        )

    def _away(self, entries: Sequence[QueuedCommand], error: Unavailable) -> Delivery:
        """Reply that the store is unavailable; do not retry what may have been committed."""
        self.store_problem = error.detail
        log.error("store_unavailable", problem=error.detail)
        return Delivery([(entry, error) for entry in entries])

    def _remove_files(self, names: Sequence[str]) -> None:
        """Remove files that no row names any more; the next start sweeps what stays now."""
        if not names or self._blobs is None:
            return
        try:
            self._blobs.remove(names)
        except OSError as error:
            log.warning("artifact_removal_failed", problem=str(error))

    def _one_by_one(self, entries: Sequence[QueuedCommand]) -> Delivery:
        delivery = Delivery()
        for number, entry in enumerate(entries, start=1):
            alone = self.run([entry])
            delivery.add(alone)
            if any(isinstance(outcome, Unavailable) for _, outcome in alone.answers):
                # Each further try could wait for the unavailable store as long as this one did.
                delivery.answers += [(later, _unwritten()) for later in entries[number:]]
                break
        return delivery

    def _commit(self, entries: Sequence[QueuedCommand]) -> BatchResult:
        begun_ms = self._steady_clock.now_ms()

        def body(tx: Transaction) -> BatchResult:
            if not self._has_lanes:
                self._lanes.load(tx)
            state, sharing = self._state, None
            if self._is_shared:
                state, sharing = self._shared(tx)
            now_ms, steady_ms = self._times(tx)
            batch = Batch(
                [entry.event for entry in entries],
                self._waitlist,
                context=Context(
                    now_ms=now_ms, steady_ms=steady_ms, rules=self._rules, dice=self._dice
                ),
                lanes=self._lanes,
                state=state,
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
        self._metrics.commit_seconds += time.perf_counter() - started
        return result

    def _shared(self, tx: Transaction) -> tuple[WriterState, SharedStore]:
        """Return the writer's state, read again if peers have written since the last batch."""
        before = state = self._state
        changed_by_peer = tx.changed_by_peer or self._is_unsure
        if changed_by_peer:
            state = refreshed(tx, before, self._lanes, self._runs)
        assert self._metrics.tallies is not None
        return state, SharedStore(
            replica=self._replica,
            counts=self._metrics.tallies.draw_up,
            changed_by_peer=changed_by_peer,
            workers_changed=state.workers != before.workers,
        )

    def _answers(
        self, entries: Sequence[QueuedCommand], result: BatchResult
    ) -> list[tuple[QueuedCommand, Outcome | Exception]]:
        """Return the replies; lease calls that found no work and can wait join the waitlist."""
        answers: list[tuple[QueuedCommand, Outcome | Exception]] = []
        # Calls of the waitlist come first: their workers are idle, and there is work for them.
        parked = cast("list[tuple[QueuedCommand, Outcome]]", result.parked)
        for entry, _ in parked:
            self._waitlist.drop(entry)
        for entry, outcome in [*parked, *zip(entries, result.outcomes, strict=True)]:
            if isinstance(outcome, Granted):
                assert isinstance(entry.event, LeaseWork)
                self._note_grant(entry.event, len(outcome.leases))
                if entry.can_wait and not outcome.leases:
                    entry.is_waiting = True
                    self._waitlist.add(entry, result.workers[entry.event.worker_id])
                    continue
                if entry.is_subscription and outcome.leases:
                    self._park_remainder(entry, outcome, result)
            answers.append((entry, outcome))
        self._metrics.parked = len(self._waitlist)
        return answers

    def _note_grant(self, event: LeaseWork, count: int) -> None:
        if count >= event.most:
            self._unfilled.discard(event.worker_id)  # an unknown amount of work may be left
        elif len(self._unfilled) < MOST_UNFILLED:
            self._unfilled.add(event.worker_id)

    def _park_remainder(self, entry: QueuedCommand, granted: Granted, result: BatchResult) -> None:
        """Let the remainder of a request wait at once: entering it again would cost a batch."""
        assert isinstance(entry.event, LeaseWork)
        worker = result.workers[entry.event.worker_id]
        left = entry.event.most - len(granted.leases)
        if left > 0 and not any(serves(worker, lane) for lane in result.open_lanes):
            event = msgspec.structs.replace(entry.event, most=left)
            remainder = QueuedCommand(
                event, entry.future.get_loop().create_future(), can_wait=True, is_subscription=True
            )
            remainder.is_waiting = True
            entry.remainder = remainder
            self._waitlist.add(remainder, worker)

    def _broken(self, entry: QueuedCommand, error: Exception) -> Exception:
        if isinstance(error, RotaError):
            return error
        if isinstance(error, OUR_MISTAKES):
            log.error("command_failed", kind=type(entry.event).__name__, exc_info=error)
            return error
        self.store_problem = f"{type(error).__name__}: {error}"
        log.error("store_failed", problem=self.store_problem)
        return _unwritten()

    def _forget_uncommitted(self) -> None:
        """Drop what a rollback has undone; read the lanes again, now or in the next batch."""
        self._has_lanes = False
        self._waitlist.forget_lanes()
        self._runs.roll_back()
        self._shards.roll_back()
        if self._is_shared:
            # The failed batch may be committed after all. The next batch reads the state again, as
            # after a peer's commit.
            self._is_unsure = True
            return
        try:
            self._state.last_seq = self._database.read(self._reread)
        except Exception as error:  # noqa: BLE001 - the next batch reports the unavailable store
            self.store_problem = f"{type(error).__name__}: {error}"
        else:
            self._has_lanes = True

    def _reread(self, tx: Transaction) -> int:
        """Read lanes, sessions and the last event number: a failed commit may have succeeded."""
        self._lanes.load(tx)
        self._state.sessions = loaded_sessions(tx, self._state.sessions)
        return EventStore(tx).bounds().last_seq


def _unwritten() -> Unavailable:
    return Unavailable("the store cannot be written now; nothing was changed")


def concerns_peers(result: BatchResult) -> bool:
    """Whether a peer's caller may wait for an effect of this batch; never for a heartbeat's."""
    shards = result.shards
    return bool(
        result.events.events
        or result.applied.opened
        or result.granted_locks
        or shards.pushes
        or any(changes.are_lasting for changes in shards.changes.values())
    )
