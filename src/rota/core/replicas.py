"""Replicas: coordinators that share a store. One of them leads, the others forward to it.

Theory of operation. The store has one row that names the leader, its epoch and the end of its
lease. A coordinator takes over by raising the epoch, and every commit checks the epoch, so an old
leader cannot commit after a takeover, whatever it believes. The lease is there against flapping
only: a coordinator takes over when the lease has run out, or as soon as the leader can be shown to
be gone.
"""

from enum import StrEnum

from msgspec import Struct

from rota.core.replies import CommandBase, Done

BEAT_MS = 2_000  # the interval of a coordinator's heartbeats
SILENT_MS = 10_000  # a coordinator silent for this long is gone, and its callers are elsewhere
FORGOTTEN_MS = 3_600_000  # a coordinator gone for this long is no longer listed


class Replica(Struct, frozen=True, kw_only=True):
    """One of the coordinators that share a store; its times are by the store's clock."""

    name: str
    url: str | None = None  # where it is reached; None: it is not, or not yet
    host: str
    version: str
    started_at_ms: int
    seen_ms: int = 0


class BeatReplica(CommandBase[Done], frozen=True, kw_only=True, tag="BeatReplica"):
    """A coordinator's heartbeat; that of the leader also finds the peers that have gone silent."""

    replica: Replica
    finds_silent: bool = False
    is_leaving: bool = False


def is_away(replica: Replica, *, now_ms: int) -> bool:
    return now_ms - replica.seen_ms > SILENT_MS


# --- leadership -----------------------------------------------------------------------------------


class Leader(Struct, frozen=True, kw_only=True):
    """The leader of a store, as the store has it."""

    epoch: int
    name: str
    address: str  # where the other coordinators reach it
    since_ms: int  # by the store's clock
    expires_in_ms: int  # until its lease ends; not positive: it has ended
    is_connected: bool  # its session with the store exists; also True where that is not known


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    SEEKING = "seeking"  # neither leads nor has a connection to the leader


class Step(StrEnum):
    """What a coordinator that does not lead does next."""

    TAKE_OVER = "take_over"
    FOLLOW = "follow"


def next_step(leader: Leader | None, *, is_cut_off: bool) -> Step:
    """Return the next step of a coordinator that does not lead.

    `is_cut_off`: its connection to the leader was refused or lost. A leader that has also left the
    store is gone, so its lease need not run out.
    """
    if leader is None:
        return Step.TAKE_OVER
    if leader.expires_in_ms <= 0 or (is_cut_off and not leader.is_connected):
        return Step.TAKE_OVER
    return Step.FOLLOW
