"""What is a duty? An event that time brings, and how often it is due."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from rota.core.events import Event
from rota.core.locks import SweepLocks
from rota.core.memory import SweepMemory
from rota.core.notices import PruneNotices
from rota.core.replicas import BeatReplica
from rota.core.shards.events import ShardEvent
from rota.core.workflow.commands import RunCommand
from rota.engine.queries import Queries
from rota.settings import Settings


class Duty(Struct, frozen=True, kw_only=True):
    name: str
    interval_ms: int  # at the latest after this; a hint of a nearer moment runs it earlier
    event: Callable[
        [int, Settings],
        Event | RunCommand | ShardEvent | SweepLocks | SweepMemory | PruneNotices | BeatReplica,
    ]  # of the time and the settings
    full_step: int | None = None  # when this many were done, more may wait: run again at once
    follows_hints: bool = False
    listens: bool = False  # others may have brought something: their hints run it earlier
    is_due: Callable[[Queries], Awaitable[bool]] | None = None  # None: always
