"""Replicas: coordinators that share a store, their heartbeats and their counts."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from rota.core.replies import CommandBase, Done

BEAT_MS = 2_000  # the interval of a coordinator's heartbeats
SILENT_MS = 10_000  # a coordinator silent for this long is gone, and its callers are elsewhere
FORGOTTEN_MS = 3_600_000  # a coordinator gone for this long is no longer listed


class QueueCounts(NamedTuple):
    """Counts of the tasks of a queue."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0  # among the finished


class Counted(Struct, frozen=True, kw_only=True):
    """The counts of a coordinator between two of its heartbeats."""

    number: int  # the first is 1
    queues: Mapping[str, QueueCounts]  # '' is the sum of the queues that are not named


class Replica(Struct, frozen=True, kw_only=True):
    """One of the coordinators that share a store; its times are by the store's clock."""

    name: str
    url: str | None = None  # where it is reached; None: it is not, or not yet
    host: str
    version: str
    started_at_ms: int
    seen_ms: int = 0
    counts: tuple[Counted, ...] = ()  # of its last heartbeats, the oldest first


class BeatReplica(CommandBase[Done], frozen=True, kw_only=True, tag="BeatReplica"):
    """A coordinator's heartbeat; it also finds the peers that have gone silent."""

    replica: Replica
    is_leaving: bool = False


class CatchUp(CommandBase[Done], frozen=True, tag="CatchUp"):
    """Run a batch after a peer has written: there may be work for the waiting lease calls."""


def is_away(replica: Replica, *, now_ms: int) -> bool:
    return now_ms - replica.seen_ms > SILENT_MS
