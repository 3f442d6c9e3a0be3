"""Which coordinators share a store, and which of them are gone?"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

BEAT_MS = 2_000  # how often a coordinator says that it is there
SILENT_MS = 10_000  # one that has not said so for this long is gone; its callers are elsewhere
FORGOTTEN_MS = 3_600_000  # what is gone for this long is not listed any more


class Counts(NamedTuple):
    """What has happened to the tasks of a queue."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0  # among the finished


class Counted(Struct, frozen=True, kw_only=True):
    """What a coordinator has counted from one beat to another."""

    number: int  # the first is 1
    queues: Mapping[str, Counts]  # '' is all that are not named


class Replica(Struct, frozen=True, kw_only=True):
    """A coordinator among those that share a store; times are those of the store."""

    name: str
    url: str | None = None  # where it is reached; None: it is not, or not yet
    host: str
    version: str
    started_at_ms: int
    seen_ms: int = 0
    counts: tuple[Counted, ...] = ()  # of its last beats, the oldest first


class BeatReplica(Struct, frozen=True, kw_only=True, tag=True):
    """A coordinator is there, and looks who of the others no longer is."""

    replica: Replica
    is_leaving: bool = False


def is_away(replica: Replica, *, now_ms: int) -> bool:
    return now_ms - replica.seen_ms > SILENT_MS
