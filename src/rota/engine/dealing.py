"""Deal out the work that waits to the workers that ask, inside the batch's transaction."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import msgspec

from rota.core import claiming
from rota.core.claiming import Claim
from rota.core.decisions import LeaseTask
from rota.core.events import LeaseWork
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.snapshot import Snapshot
from rota.core.tasks import Lane, Task, TaskState
from rota.core.workers import Worker
from rota.errors import RotaError
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.runs import Runs
from rota.store.tasks import Tasks
from rota.store.workers import Workers

MOST_TURNS = 10_000  # workers whose last turn is remembered; forgotten ones come first again


class Dealer:
    def __init__(
        self,
        tx: Transaction,
        lanes: Lanes,
        snapshot: Snapshot,
        turns: dict[str, int],
        *,
        paused: Collection[str],
        has_open_breakers: bool,
        names_runs: bool,
        workers_changed: bool = True,
    ) -> None:
        """Only where any task works for a run do leases have to be asked for whose they are.

        If no worker came or left, calls that wait are still those of workers that are there.
        """
        self._tasks = Tasks(tx, lanes)
        self._runs = Runs(tx) if names_runs else None
        self._workers = Workers(tx)
        self._paused = paused
        self._has_open_breakers = has_open_breakers
        self._lanes = lanes
        self._snapshot = snapshot
        self._turns = turns
        self._workers_changed = workers_changed
        self.leased: list[LeaseTask] = []

    def deal(self, asking: Sequence[LeaseWork]) -> list[Granted | RotaError]:
        """What each asker gets, in the order of asking."""
        if not asking:
            return []
        open_lanes = self._open_lanes()
        if not open_lanes and not self._workers_changed:
            # However many wait, that there is nothing for them costs nothing.
            return [Granted([]) for _ in asking]
        self._meet(asking, with_breakers=bool(open_lanes))
        answers: list[Granted | RotaError] = []
        claims: dict[int, Claim] = {}
        promised: Counter[str] = Counter()  # by worker, which may ask in several calls at once
        for number, event in enumerate(asking):
            try:
                claim = claiming.claim(
                    self._snapshot, event, open_lanes, promised=promised[event.worker_id]
                )
            except RotaError as error:
                answers.append(error)
            else:
                claims[number] = claim
                promised[event.worker_id] += claim.free
                answers.append(Granted([]))
        if open_lanes:
            self._deal_groups(claims, answers)
            self._deal_probes(claims, answers)
        if self._runs is not None and self.leased:
            _name_runs(answers, self._runs.tasks([one.id for one in self.leased]))
        return answers

    def _open_lanes(self) -> dict[int, Lane]:
        numbers = self._tasks.open_lanes()
        paused, known = self._paused, self._lanes.by_number
        return {number: known[number] for number in numbers if known[number].queue not in paused}

    def _meet(self, asking: Sequence[LeaseWork], *, with_breakers: bool) -> None:
        """Load what the snapshot lacks about those who ask."""
        snapshot = self._snapshot
        missing = {event.worker_id for event in asking} - snapshot.workers.keys()
        if missing:
            workers, held = self._workers.with_held(list(missing))
            snapshot.workers |= workers
            snapshot.held |= held
        uncounted = {
            worker.incarnation for worker in snapshot.workers.values()
        } - snapshot.held.keys()
        if uncounted:
            snapshot.held |= self._tasks.held(list(uncounted))
        if with_breakers and self._has_open_breakers:
            for key, quality in self._workers.every_quality(open_only=True).items():
                snapshot.qualities.setdefault(key, quality)

    def _deal_groups(self, claims: Mapping[int, Claim], answers: list[Granted | RotaError]) -> None:
        by_claim = {id(claim): number for number, claim in claims.items()}
        for group in claiming.groups(list(claims.values())):
            lanes, most = group[0].lanes, sum(claim.free for claim in group)
            head = self._tasks.head(lanes, most)
            candidates = []
            if len(group) > 1 and head:
                candidates = [
                    claiming.candidate(
                        self._snapshot,
                        claim,
                        self._workers.qualities(claim.worker.id),
                        last_chosen=self._turns.get(claim.worker.id, 0),
                    )
                    for claim in group
                ]
            dealt = claiming.deal(self._snapshot, head, group, candidates)
            self._write(list(chain.from_iterable(dealt)), head)
            known = {task.id: task for task in head}
            for claim, leases in zip(group, dealt, strict=True):
                answers[by_claim[id(claim)]] = Granted(granted(leases, known))
                if leases:
                    self._take_turn(claim.worker.id)

    def _take_turn(self, worker_id: str) -> None:
        """Workers stand in the order of their last turns: whoever was just chosen goes last."""
        latest = next(reversed(self._turns.values()), 0)
        self._turns.pop(worker_id, None)
        self._turns[worker_id] = latest + 1
        if len(self._turns) > MOST_TURNS:
            del self._turns[next(iter(self._turns))]

    def _deal_probes(self, claims: Mapping[int, Claim], answers: list[Granted | RotaError]) -> None:
        """A half-open breaker lets one task through at a time, to see how it goes."""
        for number, claim in claims.items():
            answer = answers[number]
            for lane in claim.probes:
                if not isinstance(answer, Granted) or len(answer.leases) >= claim.free:
                    break
                if self._is_probing(claim.worker, self._lanes.by_number[lane].name):
                    continue
                head = self._tasks.head([lane], 1)
                leases = claiming.lease_all(self._snapshot, head, claim.worker)
                self._write(leases, head)
                answer.leases.extend(granted(leases, {task.id: task for task in head}))

    def _is_probing(self, worker: Worker, name: str) -> bool:
        """Whether the worker runs a task of this name, from whatever lane."""
        return any(
            self._tasks.held_in_lane(worker.incarnation, lane)
            for lane in self._lanes.matching(name=name)
        )

    def _write(self, leases: list[LeaseTask], head: Sequence[Task]) -> None:
        if leases:
            self._tasks.lease(leases, {task.id: task for task in head})
            self.leased += leases


def granted(leases: Sequence[LeaseTask], known: Mapping[TaskId, Task]) -> list[Task]:
    """The tasks as their worker sees them, under the fence of its lease."""
    replace = msgspec.structs.replace
    return [
        replace(
            known[one.id],
            state=TaskState.RUNNING,
            fence=one.fence,
            attempt=one.attempt,
            started_at_ms=one.started_at_ms,
            deadline_ms=one.deadline_ms,
        )
        for one in leases
    ]


def _name_runs(
    answers: Sequence[Granted | RotaError], working: Mapping[int, tuple[int, int]]
) -> None:
    """Say of each task which run and token it works for."""
    if not working:
        return
    for answer in answers:
        if isinstance(answer, Granted):
            answer.leases[:] = [of_run(task, working.get(task.id)) for task in answer.leases]


def of_run(task: Task, whose: tuple[int, int] | None) -> Task:
    """The task with the run and token that it works for, if any."""
    if whose is None:
        return task
    run, token = whose
    return msgspec.structs.replace(task, run=run, token=token)
