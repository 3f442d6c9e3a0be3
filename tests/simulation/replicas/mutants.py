"""Mistakes of a leader, a follower or the store, each of which a schedule must find."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from rota.engine.commit.pipeline import Pipeline
from rota.engine.replicas import held
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from tests.engine.running import WatchedDatabase
from tests.engine.sharing import SharedElections, SharedHandle
from tests.simulation.mutation import Mutants
from tests.simulation.replicas.world import Pace

MUTANTS = Mutants[Pace](seeds=12)
mutant = MUTANTS.add


@mutant(Pace.ANYHOW)
def no_fence() -> Iterator[None]:
    """A leader that was deposed goes on to commit."""
    with patch.object(SharedHandle, "fence", lambda _: None):
        yield


@mutant(Pace.ANYHOW)
def takeover_without_a_new_epoch() -> Iterator[None]:
    """The epoch stays, so the fence cannot tell the leaders apart."""

    def same(self: SharedElections) -> None:
        self._store.epoch = max(1, self._store.epoch)
        self._handle.epoch = self._store.epoch

    with patch.object(SharedElections, "begin_epoch", same):
        yield


@mutant(Pace.ANYHOW)
def reply_before_commit() -> Iterator[None]:
    """Callers are answered when a batch is decided, whatever becomes of its commit."""
    write = WatchedDatabase.write

    def early(self: WatchedDatabase, body: Callable[[Transaction], Any]) -> Any:
        decided: list[Any] = []

        def noted(tx: Transaction) -> Any:
            decided.append(body(tx))
            return decided[0]

        try:
            return write(self, noted)
        except Exception:
            if decided:
                return decided[0]
            raise

    with patch.object(WatchedDatabase, "write", early):
        yield


@mutant(Pace.ANYHOW)
def stale_memory_after_a_failed_commit() -> Iterator[None]:
    """What a rollback has undone is still in memory, and decides."""
    loaded: set[int] = set()

    def trusting(self: WorkingSet, tx: Transaction, lanes: Lanes) -> None:
        self.is_fresh = id(self) not in loaded
        if self.is_fresh:
            loaded.add(id(self))
            self.load(tx, lanes)

    with (
        patch.object(Pipeline, "_forget_uncommitted", lambda _: None),
        patch.object(WorkingSet, "begin", trusting),
    ):
        yield


@mutant(Pace.ANYHOW, seeds=40)
def follower_repeats_everything() -> Iterator[None]:
    """A follower sends each unanswered command again, also one that must not be repeated."""
    with patch.object(held, "is_repeatable", lambda _: True):
        yield
