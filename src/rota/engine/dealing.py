"""Deal out the work that waits to the workers that ask, inside the batch's transaction.

Those who ask in this batch are dealt to together with some whose calls were parked: as many as
there is new work for, and a few more, so that there is a choice among them. If that leaves work
over, more of them are asked, until there is no more work or nobody who could take it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from rota.core import claiming
from rota.core.choosing import Candidate
from rota.core.claiming import Claim
from rota.core.decisions import AddTask, LeaseTask
from rota.core.events import LeaseWork
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks import Lane, Task, TaskState, lane_of
from rota.core.workers import Worker
from rota.engine.parking import Parked, Parking
from rota.errors import RotaError, WorkerNotFound
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.runs import Runs
from rota.store.tasks import Tasks
from rota.store.workers import Workers

MOST_TURNS = 10_000  # workers whose last turn is remembered; forgotten ones come first again
CHOICE = 16  # parked calls to choose among, beyond those that there is work for
GROWTH = 4  # how many times more are asked each time when there is work left

Answer = Granted | RotaError


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
        new: Sequence[AddTask] = (),
    ) -> None:
        """Only where any task works for a run do leases have to be asked for whose they are.

        New: tasks of this batch that are not in the queue yet; those nobody gets are put into it.
        """
        self._tasks = Tasks(tx, lanes)
        self._runs = Runs(tx) if names_runs else None
        self._workers = Workers(tx)
        self._paused = paused
        self._has_open_breakers = has_open_breakers
        self._lanes = lanes
        self._snapshot = snapshot
        self._turns = turns
        self._open: dict[int, Lane] = {}  # in which there may be work
        self._waiting: Collection[int] = ()  # lanes in whose queue there is some
        self._new = self._sorted_in(new)
        self.leased: list[LeaseTask] = []

    def deal(
        self,
        asking: Sequence[LeaseWork],
        parking: Parking[Any],
        *,
        changed: Collection[str] = (),
        expected: int = 0,
    ) -> tuple[list[Answer], list[tuple[Parked, Answer]]]:
        """What each asker gets, in the order of asking, and the parked calls that get something.

        Workers that have come or left in this batch are `changed`: their parked calls are answered
        too, be it that they are over. So much new work is `expected`.
        """
        answers = self._deal(asking, parking, changed, expected)
        self._tasks.queue_new(self._new)
        return answers

    def _deal(
        self,
        asking: Sequence[LeaseWork],
        parking: Parking[Any],
        changed: Collection[str],
        expected: int,
    ) -> tuple[list[Answer], list[tuple[Parked, Answer]]]:
        concerned: list[Parked] = parking.of_workers(changed) if changed else []
        self._open = self._find_open_lanes()
        if not self._open and not concerned:
            # However many wait, that there is nothing for them costs nothing.
            return [self._nothing_for(event.worker_id) for event in asking], []
        asked: dict[Parked, Answer] = {}
        most, now = expected + CHOICE, len(asking)
        calls = [*concerned, *parking.some(self._open, most, but=concerned)]
        answers = self._deal_round([*asking, *map(_wish, calls)])
        asked.update(zip(calls, answers[now:], strict=True))
        while calls and self._open:
            most *= GROWTH
            calls = parking.some(self._open, most, but=asked)
            asked.update(zip(calls, self._deal_round([*map(_wish, calls)]), strict=True))
        given = [(call, answer) for call, answer in asked.items() if _says(answer)]
        given += [(call, asked[call]) for call in concerned if not _says(asked[call])]
        answers = answers[:now]
        if self._runs is not None and self.leased:
            whose = self._runs.tasks([one.id for one in self.leased])
            _name_runs([*answers, *(answer for _, answer in given)], whose)
        return answers, given

    def _nothing_for(self, worker_id: str) -> Answer:
        """There is no work; a worker that has left in this very batch is not to wait for any."""
        return Granted([]) if worker_id in self._snapshot.workers else WorkerNotFound(worker_id)

    @property
    def open_lanes(self) -> Collection[Lane]:
        """Those in which there may be work left."""
        return self._open.values()

    def _deal_round(self, asking: Sequence[LeaseWork]) -> list[Answer]:
        if not asking:
            return []
        self._meet(asking, with_breakers=bool(self._open))
        answers: list[Answer] = []
        claims: dict[int, Claim] = {}
        promised: Counter[str] = Counter()  # by worker, which may ask in several calls at once
        for number, event in enumerate(asking):
            try:
                claim = claiming.claim(
                    self._snapshot, event, self._open, promised=promised[event.worker_id]
                )
            except RotaError as error:
                answers.append(error)
            else:
                claims[number] = claim
                promised[event.worker_id] += claim.free
                answers.append(Granted([]))
        if self._open:
            self._deal_groups(claims, answers)
            self._deal_probes(claims, answers)
        return answers

    def _find_open_lanes(self) -> dict[int, Lane]:
        self._waiting = numbers = self._tasks.open_lanes()
        if self._new:
            numbers = sorted({*numbers, *(number for number, _ in self._new.values())})
        paused, known = self._paused, self._lanes.by_number
        return {number: known[number] for number in numbers if known[number].queue not in paused}

    def _sorted_in(self, new: Sequence[AddTask]) -> dict[TaskId, tuple[int, Task]]:
        """New tasks that may be leased now, each with the number of its lane."""
        found: dict[TaskId, tuple[int, Task]] = {}
        for one in new:
            if one.due_at_ms is None:
                number = self._lanes.number_of(lane_of(one.task))
                found[one.id] = number, added_task(one, self._lanes.by_number[number])
        return found

    def _head(self, lanes: Collection[int], most: int) -> list[Task]:
        """The next tasks of these lanes, from the queue and of those that have just come."""
        waiting = [lane for lane in lanes if lane in self._waiting]
        head = self._tasks.head(waiting, most) if waiting else []
        new = [task for number, task in self._new.values() if number in lanes]
        if not new:
            return head
        return sorted([*head, *new], key=claiming.turn)[:most]

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

    def _deal_groups(self, claims: Mapping[int, Claim], answers: list[Answer]) -> None:
        by_claim = {id(claim): number for number, claim in claims.items()}
        for group in claiming.groups(list(claims.values())):
            lanes, most = group[0].lanes, sum(claim.free for claim in group)
            head = self._head(lanes, most)
            if len(head) < most:
                for lane in lanes:
                    self._open.pop(lane, None)
            candidates = self._candidates(group) if len(group) > 1 and head else []
            dealt = claiming.deal(self._snapshot, head, group, candidates)
            self._write(list(chain.from_iterable(dealt)), head)
            known = {task.id: task for task in head}
            for claim, leases in zip(group, dealt, strict=True):
                answers[by_claim[id(claim)]] = Granted(granted(leases, known))
                if leases:
                    self._take_turn(claim.worker.id)

    def _candidates(self, group: Sequence[Claim]) -> list[Candidate]:
        qualities = self._workers.qualities_of([claim.worker.id for claim in group])
        return [
            claiming.candidate(
                self._snapshot,
                claim,
                qualities.get(claim.worker.id, {}),
                last_chosen=self._turns.get(claim.worker.id, 0),
            )
            for claim in group
        ]

    def _take_turn(self, worker_id: str) -> None:
        """Workers stand in the order of their last turns: whoever was just chosen goes last."""
        latest = next(reversed(self._turns.values()), 0)
        self._turns.pop(worker_id, None)
        self._turns[worker_id] = latest + 1
        if len(self._turns) > MOST_TURNS:
            del self._turns[next(iter(self._turns))]

    def _deal_probes(self, claims: Mapping[int, Claim], answers: list[Answer]) -> None:
        """A half-open breaker lets one task through at a time, to see how it goes."""
        for number, claim in claims.items():
            answer = answers[number]
            for lane in claim.probes:
                if not isinstance(answer, Granted) or len(answer.leases) >= claim.free:
                    break
                if self._is_probing(claim.worker, self._lanes.by_number[lane].name):
                    continue
                head = self._head([lane], 1)
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
            known = {task.id: task for task in head}
            self._tasks.lease(leases, known, unqueued=self._new)
            self.leased += leases
            for one in leases if self._new else ():
                self._new.pop(one.id, None)


def _wish(call: Parked) -> LeaseWork:
    """What a parked call asks for."""
    assert isinstance(call.event, LeaseWork)
    return call.event


def _says(answer: Answer) -> bool:
    """Whether an answer is more than that there is nothing."""
    return isinstance(answer, RotaError) or bool(answer.leases)


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


def _name_runs(answers: Sequence[Answer], working: Mapping[int, tuple[int, int]]) -> None:
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
