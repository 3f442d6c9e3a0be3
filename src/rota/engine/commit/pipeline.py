"""The writer's side of the engine: batches in, deliveries out, on the database thread.

A command that cannot be executed fails alone: when a batch fails, it is rolled back, and the
pipeline tries its commands again one by one.
"""

import time
from collections.abc import Callable, Sequence

import structlog

from rota.core.context import Context, Rules
from rota.engine.clock import Clock, StoreClock
from rota.engine.commit.batch import Batch
from rota.engine.commit.counters import count_batch
from rota.engine.commit.domains import execute
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.state import WriterState, joined, recovered, refreshed, reread
from rota.engine.dispatch.lease_calls import LeaseCalls
from rota.engine.metrics.metrics import Metrics
from rota.engine.replicas.counters import ReplicaCounters
from rota.engine.replicas.shared_store import SharedStore
from rota.engine.runs.cache import RunCache
from rota.engine.shards.cache import ShardCache
from rota.errors import RotaError, Unavailable
from rota.store.database import Database, Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.blobs import Blobs

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
        self._is_shared = database.is_shared
        self._replica = replica
        if self._is_shared:
            metrics.replica_counters = ReplicaCounters(replica)
        self._blobs = blobs
        self._lanes = lanes
        self._metrics = metrics
        self._clock = clock
        self._steady_clock = steady_clock
        self._rules = rules
        self._dice = dice
        self._state = WriterState()
        self._runs = RunCache()
        self._shards = ShardCache(rules.shards, is_shared=self._is_shared)
        self._has_lanes = True  # False: the lanes in memory may include uncommitted ones
        self._is_unsure = False  # True: a batch failed, perhaps after its commit
        self.lease_calls = LeaseCalls()
        self.store_problem: str | None = None

    def recover(self) -> None:
        """Load the state that this store holds."""

        def body(tx: Transaction) -> WriterState:
            now_ms, steady_ms = self._times(tx)
            self._lanes.load(tx)
            self._metrics.load(tx, now_ms=now_ms)
            if self._is_shared:
                return joined(
                    tx, self._lanes, self._runs, self._shards, self._replica, now_ms=now_ms
                )
            if self._blobs is not None:
                self._blobs.sweep(ArtifactStore(tx).files())
            return recovered(tx, self._lanes, self._runs, self._shards, steady_ms=steady_ms)

        self._state = self._database.write(body)

    def _times(self, tx: Transaction) -> tuple[int, int]:
        """Return the wall-clock time, and the time of the steady clock, which is never set."""
        if tx.now_ms is None:
            return self._clock.now_ms(), self._steady_clock.now_ms()
        if isinstance(self._clock, StoreClock):
            self._clock.note(tx.now_ms)
        return tx.now_ms, tx.now_ms

    @property
    def last_seq(self) -> int:
        """The number of the last event in the log."""
        return self._state.last_seq

    def run(self, entries: Sequence[QueuedCommand]) -> Delivery:
        """Execute a batch in one transaction; if that fails, each command in its own."""
        self.lease_calls.waitlist.sweep()
        try:
            batch, after = self._commit(entries)
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
        self._state = after
        self._runs.touched.clear()
        self._shards.commit()
        self._remove_files(batch.dropped_files)
        count_batch(self._metrics, batch)
        if self._is_shared and concerns_peers(batch):
            self._database.notify_peers()
        batch.delivery.answers = self.lease_calls.answers(entries, batch)
        self._metrics.waiting_leases = len(self.lease_calls.waitlist)
        return batch.delivery

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

    def _commit(self, entries: Sequence[QueuedCommand]) -> tuple[Batch, WriterState]:
        begun_ms = self._steady_clock.now_ms()

        def body(tx: Transaction) -> tuple[Batch, WriterState]:
            if not self._has_lanes:
                self._lanes.load(tx)
            state, sharing = self._state, None
            if self._is_shared:
                state, sharing = self._shared(tx)
            now_ms, steady_ms = self._times(tx)
            batch = Batch.begin(
                tx,
                [entry.command for entry in entries],
                context=Context(
                    now_ms=now_ms, steady_ms=steady_ms, rules=self._rules, dice=self._dice
                ),
                state=state,
                lanes=self._lanes,
                runs=self._runs,
                services=self._shards,
                waitlist=self.lease_calls.waitlist,
                sharing=sharing,
            )
            return batch, execute(batch)

        started = time.perf_counter()
        try:
            committed = self._database.write(body)
        finally:
            self._shards.note_busy(begun_ms, self._steady_clock.now_ms())
        self._has_lanes, self._is_unsure = True, False
        self._metrics.commit_seconds += time.perf_counter() - started
        return committed

    def _shared(self, tx: Transaction) -> tuple[WriterState, SharedStore]:
        """Return the writer's state, read again if peers have written since the last batch."""
        before = state = self._state
        changed_by_peer = tx.changed_by_peer or self._is_unsure
        if changed_by_peer:
            state = refreshed(tx, before, self._lanes, self._runs)
        assert self._metrics.replica_counters is not None
        return state, SharedStore(
            replica=self._replica,
            counts=self._metrics.replica_counters.draw_up,
            changed_by_peer=changed_by_peer,
            workers_changed=state.workers != before.workers,
        )

    def _broken(self, entry: QueuedCommand, error: Exception) -> Exception:
        if isinstance(error, RotaError):
            return error
        if isinstance(error, OUR_MISTAKES):
            log.error("command_failed", kind=type(entry.command).__name__, exc_info=error)
            return error
        self.store_problem = f"{type(error).__name__}: {error}"
        log.error("store_failed", problem=self.store_problem)
        return _unwritten()

    def _forget_uncommitted(self) -> None:
        """Drop what a rollback has undone; read the lanes again, now or in the next batch."""
        self._has_lanes = False
        self.lease_calls.waitlist.forget_lanes()
        self._runs.roll_back()
        self._shards.roll_back()
        if self._is_shared:
            # The failed batch may be committed after all. The next batch reads the state again, as
            # after a peer's commit.
            self._is_unsure = True
            return
        try:
            self._database.read(lambda tx: reread(tx, self._state, self._lanes))
        except Exception as error:  # noqa: BLE001 - the next batch reports the unavailable store
            self.store_problem = f"{type(error).__name__}: {error}"
        else:
            self._has_lanes = True


def _unwritten() -> Unavailable:
    return Unavailable("the store cannot be written now; nothing was changed")


def concerns_peers(batch: Batch) -> bool:
    """Whether a peer's caller may wait for an effect of this batch; never for a heartbeat's."""
    return bool(
        batch.delivery.events
        or batch.opened
        or batch.delivery.granted_locks
        or batch.delivery.pushes
        or any(changes.are_lasting for changes in batch.service_changes.values())
    )
