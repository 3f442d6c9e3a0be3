"""What does a coordinator carry from batch to batch, so that it need not ask the store again?"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rota.core.breakers import BreakerState
from rota.core.decisions import ChangeQueue, Decision, NoteQuality, NoteWatch, TellCancelled
from rota.core.valves import Watch
from rota.core.workers import Health
from rota.engine.happened import Happened
from rota.engine.sessions import SessionMemory
from rota.engine.sharing import Known


class Memory(Struct):
    """What a coordinator carries from batch to batch; taken over only after the commit.

    What is remembered of the store is true because nobody else writes to it; where others do, it is
    read anew first (`refreshing`).
    """

    last_task_id: int = 0
    watch: Watch = Watch()
    turns: dict[str, int] = {}  # when each worker was last chosen
    paused: frozenset[str] = frozenset()  # queues
    has_open_breakers: bool = True  # False: none is open
    has_cancelled: bool = True  # False: no worker is to be told of a cancelled task
    last_seq: int = 0  # of the notices
    healths: Mapping[str, Health] = {}  # of workers that are not healthy
    sessions: SessionMemory = SessionMemory()
    # Only where others write, too: another value than before says that something has changed.
    workers: tuple[int, int] = (0, 0)  # some worker came or left
    services: int = 0  # something about some service

    @property
    def known(self) -> Known:
        """What others have to know, too."""
        return Known(self.watch, self.healths, self.sessions.last_news)


def remembered(
    before: Memory, happened: Happened, *, last_seq: int, sessions: SessionMemory
) -> Memory:
    """What is remembered after a batch."""
    decisions = happened.decisions
    watches = decisions.get(NoteWatch)
    return Memory(
        last_task_id=happened.snapshot.last_task_id,
        watch=watches[-1].watch if watches else before.watch,
        turns=before.turns,
        paused=paused_after(before.paused, decisions),
        has_open_breakers=before.has_open_breakers or opens_breakers(decisions),
        has_cancelled=before.has_cancelled or TellCancelled in decisions,
        last_seq=last_seq,
        healths=happened.healths_now,
        sessions=sessions,
        workers=before.workers,
        services=before.services,
    )


def paused_after(
    before: frozenset[str], decisions: Mapping[type[Decision], list[Any]]
) -> frozenset[str]:
    """The queues that are paused after these decisions."""
    for one in decisions.get(ChangeQueue, ()):
        before = before | {one.queue} if one.paused else before - {one.queue}
    return before


def opens_breakers(decisions: Mapping[type[Decision], list[Any]]) -> bool:
    return any(one.breaker.state is BreakerState.OPEN for one in decisions.get(NoteQuality, ()))
