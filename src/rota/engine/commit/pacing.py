"""How long a batch waits for the commands of followers before it begins.

Theory of operation. The replies of a commit go to the followers, and the next commands of their
callers come back over the link. When the leader begins its next batch at once, most of them miss
it: batches stay small, and each costs every coordinator and the database a turn. So the leader
waits until most of the callers that it has replied to lately have come back, for a fraction of
what a commit takes. It waits for no one where callers are few, where no follower has sent a command
lately, and where commands are not cheap: such a batch takes long enough to gather the next one.
"""

from collections.abc import Sequence

from rota.engine.commit.request import QueuedCommand

FEWEST_COMMANDS = 4  # of the last batch, below which the next one does not wait
AWAITED_SHARE = 0.75  # of the commands of the last two batches, which are waited for
WAIT_SHARE = 0.4  # of the duration of a batch: the longest wait
MOST_WAIT_S = 0.005
STEPS = 4  # in which it is waited
RECENT = 2.0  # durations of a batch, after which the last one says nothing about the next


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
        self._awaited = int((count + self._last) * AWAITED_SHARE) if is_awaited else 0
        self._last = count
        self._usual_s = ended_s - begun_s
        self._ended_at_s = ended_s

    def wait_s(self, waiting: int, *, now_s: float, waited_s: float = 0.0) -> float:
        """Return how long to wait before looking again; 0: the batch is to begin.

        Waiting: the commands that are there. Waited: for how long it has been waited.
        """
        if waiting >= self._awaited:
            return 0.0
        most_s = min(self._usual_s * WAIT_SHARE, MOST_WAIT_S)
        is_recent = now_s - waited_s - self._ended_at_s <= self._usual_s * RECENT
        return most_s / STEPS if is_recent and waited_s < most_s else 0.0
