"""Who has asked what, and what were they told?

Each call is noted when it arrives at the coordinator and when its answer leaves. Between the two
lie zero or more commits.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rota.core.commands import (
    BeatWorker,
    LeaseWork,
    LeaveWorker,
    ReportResults,
    RetryTasks,
    StartJob,
    TaskCommand,
)
from tests.simulation.observer import Observer

WorkerCall = BeatWorker | LeaseWork | ReportResults  # those that are signs of life


@dataclass(eq=False)
class Arrival:
    """A call that has reached the coordinator."""

    event: TaskCommand
    commit: int  # the last one before it came
    at_s: float
    highest_id: int  # of all tasks acknowledged before it came


@dataclass
class Book:
    observer: Observer
    now_s: Callable[[], float]
    under_way: list[Arrival] = field(default_factory=list)

    acknowledged: dict[int, bytes] = field(default_factory=dict)  # payload by task
    highest_id: int = 0  # of those
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)  # pruned, and rightly so
    completed: set[int] = field(default_factory=set)  # a worker was told that its result counts
    granted: set[tuple[int, int]] = field(default_factory=set)  # task and fence, told to a worker
    incarnations: set[int] = field(default_factory=set)  # told to workers

    hurried: Counter[int] = field(default_factory=Counter)  # tasks that a client wanted at once
    reported: Counter[tuple[int, int]] = field(default_factory=Counter)  # by task and fence
    leaving: set[int] = field(default_factory=set)  # incarnations that said goodbye
    retried: dict[int, int] = field(default_factory=dict)  # the commit after a task's last retry
    _heard_s: dict[int, float] = field(default_factory=dict)  # by incarnation

    def arrive(self, event: TaskCommand) -> Arrival:
        arrival = Arrival(event, self.observer.commit, self.now_s(), self.highest_id)
        self.under_way.append(arrival)
        match event:
            case RetryTasks():
                self.hurried.update(event.ids)
            case StartJob():
                self.hurried[event.task_id] += 1
            case ReportResults():
                self.reported.update((result.task_id, result.fence) for result in event.results)
            case LeaveWorker():
                assert event.incarnation is not None
                self.leaving.add(event.incarnation)
            case _:
                pass
        return arrival

    def depart(self, arrival: Arrival, *, is_served: bool) -> None:
        """A call is over: answered, refused, or cut off."""
        self.under_way.remove(arrival)
        if isinstance(arrival.event, RetryTasks):
            self.retried |= dict.fromkeys(arrival.event.ids, self.observer.commit)
        if is_served and isinstance(arrival.event, WorkerCall):
            number = arrival.event.incarnation
            self._heard_s[number] = max(arrival.at_s, self._heard_s.get(number, 0.0))

    def may_be_retried(self, task_id: int, *, since: int) -> bool:
        """Whether an operator sent a task round again after that commit, or is about to."""
        is_asked = any(
            isinstance(one.event, RetryTasks) and task_id in one.event.ids for one in self.under_way
        )
        return is_asked or self.retried.get(task_id, -1) > since

    def heard_s(self, incarnation: int) -> float:
        """When a worker's newest call arrived that was served, or still may be."""
        return max([self._heard_s.get(incarnation, 0.0), *self._waiting_since(incarnation)])

    def _waiting_since(self, incarnation: int) -> Iterator[float]:
        for arrival in self.under_way:
            if isinstance(arrival.event, WorkerCall) and arrival.event.incarnation == incarnation:
                yield arrival.at_s
