"""Which coordinators share a store, and which of them are gone?"""

from msgspec import Struct

BEAT_MS = 2_000  # how often a coordinator says that it is there
SILENT_MS = 10_000  # one that has not said so for this long is gone; its callers are elsewhere
FORGOTTEN_MS = 3_600_000  # what is gone for this long is not listed any more


class Replica(Struct, frozen=True, kw_only=True):
    """A coordinator among those that share a store; times are those of the store."""

    name: str
    url: str | None = None  # where it is reached; None: it is not, or not yet
    host: str
    version: str
    started_at_ms: int
    seen_ms: int = 0


class BeatReplica(Struct, frozen=True, kw_only=True, tag=True):
    """A coordinator is there, and looks who of the others no longer is."""

    replica: Replica
    is_leaving: bool = False


def is_away(replica: Replica, *, now_ms: int) -> bool:
    return now_ms - replica.seen_ms > SILENT_MS
