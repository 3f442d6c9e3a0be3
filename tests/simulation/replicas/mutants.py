"""What goes wrong if a coordinator trusts its memory although others write? Each way, broken."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.shards import hydration
from rota.engine.clock import StoreClock
from rota.engine.commit import pipeline, state
from rota.engine.commit.pipeline import Pipeline
from rota.engine.runs.cache import RunCache
from rota.engine.shards import cache
from rota.engine.shards.cache import ShardCache
from rota.engine.shards.shard_domain import ShardDomain
from rota.store.tasks.lanes import Lanes
from tests.simulation.mutation import Mutants
from tests.simulation.replicas.world import Pace

MUTANTS = Mutants[Pace](seeds=6)
mutant = MUTANTS.add


def nothing(*_: Any, **__: Any) -> None:
    """Do not."""


@mutant(Pace.ANYHOW)
def memory_not_refreshed() -> Iterator[None]:
    """What is remembered counts, whoever has written."""
    with patch.object(pipeline, "refreshed", lambda _tx, before, _lanes, _runs: before):
        yield


@mutant(Pace.ANYHOW)
def lanes_not_refreshed() -> Iterator[None]:
    """A number is given to a lane that another replica gave to another."""
    with patch.object(Lanes, "refresh", nothing):
        yield


@mutant(Pace.ANYHOW)
def stale_run_used() -> Iterator[None]:
    """A run in memory is taken to stand where this replica left it."""
    with patch.object(RunCache, "grow_old", nothing):
        yield


@mutant(Pace.ANYHOW)
def stale_service_used() -> Iterator[None]:
    """A service in memory is taken to stand where this replica left it."""
    with patch.object(ShardCache, "refresh", lambda *_, **__: set()):
        yield


@mutant(Pace.ANYHOW)
def version_not_raised() -> Iterator[None]:
    """Others do not notice that a service has changed."""
    with patch.object(ShardCache, "note_version", nothing):
        yield


@mutant(Pace.TIMELY)
def last_seen_not_read() -> Iterator[None]:
    """A sweep judges by what this replica alone has heard."""
    with patch.object(ShardCache, "read_heartbeats", nothing):
        yield


@mutant(Pace.TIMELY)
def beat_answered_before_it_is_written() -> Iterator[None]:
    """A member is told that its lease was renewed, and others do not know."""
    write = ShardDomain._write_seen

    def late(self: ShardDomain, *, is_due: bool) -> None:
        del is_due
        write(self, is_due=False)

    with (
        patch.object(ShardDomain, "_write_seen", late),
        patch("rota.engine.shards.shard_domain.SEEN_KEPT_MS", 20_000),
    ):
        yield


@mutant(Pace.TIMELY)
def own_clock_used() -> Iterator[None]:
    """Each replica goes by its own clock."""

    def own(self: Pipeline, _tx: object) -> tuple[int, int]:
        assert isinstance(self._clock, StoreClock)
        now_ms = self._clock._own.now_ms()
        return now_ms, now_ms

    with patch.object(Pipeline, "_times", own):
        yield


@mutant(Pace.ANYHOW)
def epochs_from_memory() -> Iterator[None]:
    """What others have granted is taken in, but not under which epochs."""
    carry_over = hydration.carry_over

    def forgetful(before: Any, after: Any) -> None:
        carry_over(before, after)
        after.epochs = [*before.epochs, *after.epochs[len(before.epochs) :]]

    with patch.object(cache, "carry_over", forgetful):
        yield


@mutant(Pace.ANYHOW)
def numbers_of_events_from_memory() -> Iterator[None]:
    """The log goes on from the last number that this replica gave."""
    refreshed = state.refreshed

    def partly(tx: Any, before: state.WriterState, lanes: Any, runs: Any) -> state.WriterState:
        memory = refreshed(tx, before, lanes, runs)
        memory.last_seq = before.last_seq or memory.last_seq
        return memory

    with patch.object(pipeline, "refreshed", partly):
        yield
