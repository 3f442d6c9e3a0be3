"""What passed between us and a member lately, and what was it asked for?"""

from dataclasses import dataclass

from rota.core.shards.columns import Shards


@dataclass(frozen=True, slots=True)
class Revoking:
    """Shards that their owner was asked to give up, all at one time."""

    shards: Shards
    generation: int  # a beat that has seen it, and does not list a shard, releases that
    since_ms: int
    beats: int  # of the owner, when it was asked: protocol 1 has no generations to go by


@dataclass(slots=True)
class Talk:
    """What passed between us and a member lately; forgotten by a restart, and that is safe."""

    beats: int = 0
    seq: int = -1  # the highest one heard of this incarnation
    generation: int = -1  # the newest one it says it has seen
    pending_since_ms: int | None = None  # a register of protocol 1 that waits for its answer
    held: tuple[int, ...] = ()  # what its last beat listed
