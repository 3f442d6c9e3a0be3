"""What does a batch do otherwise where several coordinators write to one store?

It knows whether others have written, and it writes down for them what is else known to one
coordinator alone. What comes of the passing of time is done once, whoever does it first.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from rota.core.events import SweepWorkers
from rota.core.registry import SWEEP_INTERVAL_MS
from rota.core.replicas import BeatReplica, Counted, Replica
from rota.core.valves import Watch
from rota.core.workers import Health
from rota.engine.neighbours import note_replica
from rota.store.database import Transaction
from rota.store.replicas import Replicas, WorkerWatch
from rota.store.workers import Workers


class Sharing(Struct, frozen=True, kw_only=True):
    """That there are other coordinators on the store, and what they have done."""

    replica: str  # our name among them
    counts: Callable[[], tuple[Counted, ...]]  # what we have counted, asked for with a beat
    is_foreign: bool  # they have written since our last batch
    workers_changed: bool  # workers came or left by that


class CatchUp(Struct, frozen=True):
    """Others have written: there may be work for the calls that wait here."""


class Known(Struct, frozen=True):
    """What a batch knows that others have to know as well."""

    watch: Watch
    healths: Mapping[str, Health]
    last_news: int


def share(
    tx: Transaction,
    sharing: Sharing,
    before: Known,
    after: Known,
    events: Iterable[object],
    *,
    now_ms: int,
) -> list[Replica]:
    """Write down what has changed about it, and, with a beat, who is there and what they count."""
    if (before.watch, before.healths) != (after.watch, after.healths):
        Replicas(tx).put_watch(WorkerWatch(watch=after.watch, healths=after.healths))
    if after.last_news > before.last_news:
        Workers(tx).raise_counter("news", after.last_news)
    replicas: list[Replica] = []
    for event in events:
        if type(event) is BeatReplica:
            replicas = note_replica(tx, event, sharing.counts(), now_ms=now_ms)
    return replicas


def is_swept(event: object, watch: Watch, *, now_ms: int) -> bool:
    """Whether somebody has just looked at the workers: two looks must lie apart.

    That one look finds the same as the one before says little if that was a moment ago.
    """
    if type(event) is not SweepWorkers or watch.previous_sweep_ms is None:
        return False
    return 0 <= now_ms - watch.previous_sweep_ms < SWEEP_INTERVAL_MS // 2
