"""How long a batch waits for the commands of followers before it begins.

Theory of operation. The replies of a commit go to the followers, and the next commands of their
callers come back over the link. When the leader begins its next batch at once, most of them miss
it: batches stay small, and each costs every coordinator and the database a turn. So a batch waits
until as many commands have come as the last two batches had on average, for most of the time that a
batch takes. It does not wait for more: that many callers have just got their replies, or are about
to come back from the batch before. It waits for no one where callers are few, where no follower has
sent a command lately, and where commands are not cheap: such a batch takes long enough to gather
the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rota.engine.commit.request import QueuedCommand

FEWEST_COMMANDS = 4  # of the last batch, below which the next one does not wait
WAIT_SHARE = 0.8  # of the duration of a batch: the longest wait
MOST_WAIT_S = 0.005
RECENT = 2.0  # durations of a batch, after which the last one says nothing about the next


class Gathering(NamedTuple):
    """What a batch waits for before it begins."""

    commands: int  # so many; 0: it begins at once
    within_s: float


AT_ONCE = Gathering(0, 0.0)


class BatchPacing:
    """The last batches of a leader, by which the next one is paced. Belongs to the writer."""

    def __init__(self) -> None:
        self._last = 0  # commands of the last batch
        self._awaited = 0  # commands that are waited for
        self._usual_s = 0.0  # the duration of the last batch
        self._ended_at_s = 0.0

    def note(self, entries: Sequence[QueuedCommand], *, begun_s: float, ended_s: float) -> None:
        """Note a batch that has been executed."""
        count = len(entries)
        is_awaited = (
            count >= FEWEST_COMMANDS
            and any(entry.is_of_follower for entry in entries)
            and all(entry.is_cheap for entry in entries)
        )
        self._awaited = (count + self._last) // 2 if is_awaited else 0
        self._last = count
        self._usual_s = ended_s - begun_s
        self._ended_at_s = ended_s

    def gathering(self, *, now_s: float) -> Gathering:
        """Return what the next batch waits for."""
        if not self._awaited or now_s - self._ended_at_s > self._usual_s * RECENT:
            return AT_ONCE
        return Gathering(self._awaited, min(self._usual_s * WAIT_SHARE, MOST_WAIT_S))
