"""The writer's side of the engine: batches in, deliveries out, on the database thread.

A command that cannot be executed fails alone: when a batch fails, it is rolled back, and the
pipeline tries its commands again one by one.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from rota.core.context import Context, Rules
from rota.engine.clock import Clock
from rota.engine.commit.batch import Batch
from rota.engine.commit.counters import count_batch
from rota.engine.commit.domains import execute
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.state import WriterState, loaded
from rota.engine.dispatch.lease_calls import LeaseCalls
from rota.engine.kv.lock_cache import LockCache
from rota.engine.metrics.metrics import Metrics
from rota.engine.runs.cache import RunCache
from rota.engine.shards.cache import ShardCache
from rota.engine.working_set.working_set import WorkingSet
from rota.errors import RotaError, StoreFull, Unavailable
from rota.store.dashboard import DashboardStore
from rota.store.database import Commit, Database, StoreIsSlow, Transaction
from rota.store.locks import LockStore
from rota.store.tasks.lanes import Lanes
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.blobs import Blobs

log = structlog.get_logger("rota.engine")

ROOM_BYTES = 1024 * 1024  # of the disk: a store that was full is so until there is as much again

# The errors of the engine's own bugs. Any other error that is no RotaError comes from the store.
OUR_MISTAKES = (
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


_Executed = tuple[Batch, WriterState]
_Begun = tuple[int, float]  # when a batch has begun: by the steady clock, and by `perf_counter`


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
        blobs: Blobs | None = None,
        replica: str = "",
    ) -> None:
        """Replica: this coordinator's name, where several share the store."""
        self._database = database
        self._replica = replica
        self._blobs = blobs
        self._lanes = lanes
        self._metrics = metrics
        self._clock = clock
        self._steady_clock = steady_clock
        self._rules = rules
        self._dice = dice
        self._state = WriterState()
        self._held = metrics.working_set = WorkingSet()
        self._runs = RunCache()
        self._shards = ShardCache(rules.shards)
        self._locks = LockCache()
        self._is_stale = False  # True: a batch failed, so the state may differ from the store
        self.lease_calls = LeaseCalls()
        self.store_problem: str | None = None
        self.is_store_full = False  # that is the problem

    def recover(self, *, is_start: bool) -> None:
        """Load the state that this store holds, and clean up after the coordinator before.

        `is_start`: no caller waits at this coordinator yet, so waits under its name are old.
        """

        def body(tx: Transaction) -> WriterState:
            DashboardStore(tx).backfill_causes()
            if not self._database.is_shared:
                LockStore(tx).delete_waiters()
            elif is_start:
                # Callers of other coordinators still wait.
                LockStore(tx).expire_waiters(self._replica, now_ms=self._steady_clock.now_ms())
            if self._blobs is not None:
                self._blobs.sweep(ArtifactStore(tx).files())
            self._lanes.load(tx)
            self._lanes.drop_unused_if_many(tx)
            state = self._load(tx)
            self._held.begin(tx, self._lanes)
            return state

        self._state = self._database.write(body)
        self._held.commit()
        self._metrics.next_firing_ms = self._held.schedules.next_due_ms

    def _load(self, tx: Transaction) -> WriterState:
        return loaded(
            tx,
            self._state,
            self._lanes,
            self._runs,
            self._shards,
            steady_ms=self._steady_clock.now_ms(),
        )

    def close(self) -> None:
        """Let go of the working set: another coordinator may lead from now on."""
        self._held = self._metrics.working_set = WorkingSet()

    @property
    def next_opening_ms(self) -> int | None:
        """When the next rate opens that a queued task waits for."""
        return self._held.flows.admission.openings.next_ms()

    @property
    def last_seq(self) -> int:
        """The number of the last event in the log."""
        return self._state.last_seq

    def run(self, entries: Sequence[QueuedCommand]) -> Delivery:
        """Execute a batch in one transaction; if that fails, each command in its own."""
        self.lease_calls.waitlist.sweep()
        begun = self._steady_clock.now_ms(), time.perf_counter()
        try:
            committed = self._database.write(partial(self._execute, entries, begun[0]))
        except Exception as error:  # noqa: BLE001 - after any error the other commands must go on
            return self._fail(entries, begun, error)
        return self._deliver(entries, begun, committed)

    def begin(
        self, entries: Sequence[QueuedCommand], *, wait_s: float
    ) -> Delivery | Callable[[], Delivery]:
        """Execute a batch on the event loop, which waits for the store no longer than `wait_s`.

        Returns what is left to do when the store takes longer, or when something went wrong: a call
        that may wait, on another thread.
        """
        self.lease_calls.waitlist.sweep()
        begun = self._steady_clock.now_ms(), time.perf_counter()
        commit: Commit[_Executed] | None = None
        try:
            if not self._is_stale:  # else everything has to be read again
                execute_all = partial(self._execute, entries, begun[0])
                commit = self._database.begin(execute_all, wait_s=wait_s)
            if commit is None:
                return partial(self.run, entries)
            committed = commit.finish(wait_s=wait_s)
        except StoreIsSlow:
            if commit is not None:
                return partial(self._finish, entries, begun, commit)
            self._forget_uncommitted()
            return partial(self.run, entries)
        except Exception as error:  # noqa: BLE001 - as in `run`
            return partial(self._fail, entries, begun, error)
        return self._deliver(entries, begun, committed)

    def _finish(
        self, entries: Sequence[QueuedCommand], begun: _Begun, commit: Commit[_Executed]
    ) -> Delivery:
        """Wait for a commit that was sent."""
        try:
            committed = commit.finish()
        except Exception as error:  # noqa: BLE001 - as in `run`
            return self._fail(entries, begun, error)
        return self._deliver(entries, begun, committed)

    def _fail(self, entries: Sequence[QueuedCommand], begun: _Begun, error: Exception) -> Delivery:
        """Execute the commands of a failed batch one by one, or reply why they were not."""
        self._shards.note_busy(begun[0], self._steady_clock.now_ms())
        self._metrics.failed_batches += 1
        self._forget_uncommitted()
        if isinstance(error, Unavailable) and not isinstance(error, StoreFull):
            return self._away(entries, error)
        if len(entries) > 1:
            return self._one_by_one(entries)
        if isinstance(error, OUR_MISTAKES) and not self._held.is_fresh:
            return self._on_fresh_state(entries[0], error)
        return Delivery([(entries[0], self._broken(entries[0], error))])

    def _deliver(
        self, entries: Sequence[QueuedCommand], begun: _Begun, committed: _Executed
    ) -> Delivery:
        """Take over what a committed batch has changed. It must never be tried again."""
        self._shards.note_busy(begun[0], self._steady_clock.now_ms())
        self._is_stale = False
        self._held.commit()
        self._metrics.commit_seconds += time.perf_counter() - begun[1]
        batch, after = committed
        self._note_recovery()
        self._state = after
        self._runs.touched.clear()
        self._shards.commit()
        self._locks.commit()
        self._note_schedules(batch)
        if batch.dropped_files:
            self._remove_files(batch.dropped_files)
        count_batch(self._metrics, batch)
        delivery = batch.delivery
        delivery.counts = [batch.counts]
        delivery.last_seq = batch.last_seq
        delivery.answers = self.lease_calls.answers(entries, batch)
        self._metrics.waiting_leases = len(self.lease_calls.waitlist)
        return delivery

    def _note_schedules(self, batch: Batch) -> None:
        """Wake the schedules that waited for what has ended, and note when the next one is due."""
        schedules = self._held.schedules
        if batch.delivery.ended:
            schedules.note_ended(batch.delivery.ended)
        if schedules.is_changed:
            schedules.is_changed = False
            self._metrics.next_firing_ms = batch.delivery.next_firing_ms = schedules.next_due_ms

    def _on_fresh_state(self, entry: QueuedCommand, error: Exception) -> Delivery:
        """Execute a command again that has failed, after the working set is loaded again.

        The guards of the statements found the writer's state wrong, or the command fails again.
        """
        delivery = self.run([entry])
        if not any(isinstance(outcome, OUR_MISTAKES) for _, outcome in delivery.answers):
            kind = type(entry.command).__name__
            log.error("writer_state_was_wrong", kind=kind, exc_info=error)
        return delivery

    def _away(self, entries: Sequence[QueuedCommand], error: Unavailable) -> Delivery:
        """Reply that the store is unavailable; do not retry what may have been committed."""
        self.store_problem, self.is_store_full = error.detail, False
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
                reason = StoreFull() if self.is_store_full else _unwritten()
                delivery.answers += [(later, reason) for later in entries[number:]]
                break
        return delivery

    def _execute(
        self, entries: Sequence[QueuedCommand], steady_ms: int, tx: Transaction
    ) -> _Executed:
        """Execute a batch inside its transaction."""
        if self._is_stale:
            self._state = self._load(tx)
        self._held.begin(tx, self._lanes)
        batch = Batch.begin(
            tx,
            [entry.command for entry in entries],
            context=Context(
                now_ms=self._clock.now_ms(),
                steady_ms=steady_ms,
                rules=self._rules,
                dice=self._dice,
            ),
            state=self._state,
            held=self._held,
            lanes=self._lanes,
            runs=self._runs,
            services=self._shards,
            locks=self._locks,
            waitlist=self.lease_calls.waitlist,
        )
        after = execute(batch)
        self._held.read_ahead(tx)
        return batch, after

    def _note_recovery(self) -> None:
        if self.is_store_full:
            if not self._has_room():  # small changes still fit into the store's files
                return
            log.info("store_has_space_again")
        self.store_problem, self.is_store_full = None, False

    def _has_room(self) -> bool:
        try:
            free = self._database.disk_free_bytes()
        except OSError:
            return True
        return free is None or free >= ROOM_BYTES

    def _broken(self, entry: QueuedCommand, error: Exception) -> Exception:
        if isinstance(error, StoreFull):
            if not self.is_store_full:  # once, not with each command that is refused meanwhile
                log.error("store_full", problem=error.detail)
            self.store_problem, self.is_store_full = error.detail, True
            return error
        if isinstance(error, RotaError):
            return error
        if isinstance(error, OUR_MISTAKES):
            log.error("command_failed", kind=type(entry.command).__name__, exc_info=error)
            return error
        self.store_problem, self.is_store_full = f"{type(error).__name__}: {error}", False
        log.error("store_failed", problem=self.store_problem)
        return _unwritten()

    def _forget_uncommitted(self) -> None:
        """Drop what a rollback has undone. The next batch loads the state again."""
        self._is_stale = True
        self.lease_calls.waitlist.forget_lanes()
        self._runs.roll_back()
        self._shards.roll_back()
        self._locks.clear()


def _unwritten() -> Unavailable:
    return Unavailable("the store cannot be written now; nothing was changed")
