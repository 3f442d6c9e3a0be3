"""The events that runs of a batch still have to be fed, in their order."""

from collections import deque

from rota.core.workflow.decisions import SendSignal
from rota.core.workflow.events import RunEvent

DECISIONS_PER_STEP = 1_000  # of runs in one transaction; what follows waits for the next ones

AgendaItem = tuple[int, RunEvent | SendSignal]  # a run, and what it is fed or sends


class RunAgenda:
    """What follows from the event of one run in this run, its parent and its child runs."""

    def __init__(self) -> None:
        self.decided = 0  # decisions of runs in this batch
        self._items: deque[AgendaItem] = deque()

    @property
    def has_enough(self) -> bool:
        """Whether runs that follow each other take their steps in later transactions."""
        return self.decided >= DECISIONS_PER_STEP

    def add(self, run_id: int, item: RunEvent | SendSignal) -> None:
        self._items.append((run_id, item))

    def add_first(self, run_id: int, item: RunEvent) -> None:
        self._items.appendleft((run_id, item))

    def next(self) -> AgendaItem | None:
        return self._items.popleft() if self._items else None
