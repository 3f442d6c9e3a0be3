"""Assigns queued tasks to lease calls, inside the batch's transaction.

The lease calls of the batch compete with some calls of the waitlist: one for each new task, and a
few more, so that the dispatcher can choose among them. While work is left over, the dispatcher
takes more calls from the waitlist, until no work is left or no call can take it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

import msgspec

from rota.core.commands import LeaseWork
from rota.core.context import Context
from rota.core.decisions import AddTask, LeaseTask
from rota.core.dispatch import matching
from rota.core.dispatch.matching import LeaseCall
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks.model import Lane, TaskRecord, TaskState, lane_of, of_run
from rota.core.workers.selection import Candidate
from rota.engine.dispatch.fair_picker import FairPicker
from rota.engine.dispatch.waitlist import WaitingLease, Waitlist
from rota.engine.working_set.working_set import WorkingSet
from rota.errors import RotaError, WorkerNotFound
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore

MOST_TURNS = 10_000  # workers whose last turn is remembered; forgotten ones come first again
CHOICE = 16  # waiting calls to choose among, beyond one for each new task
GROWTH = 4  # the factor by which the number of calls grows in each round that leaves work

LeaseReply = Granted | RotaError


class Dispatcher:
    def __init__(
        self,
        tx: Transaction,
        lanes: Lanes,
        held: WorkingSet,
        snapshot: Snapshot,
        context: Context,
        *,
        turns: dict[str, int],
        paused: Collection[str],
        new: Sequence[AddTask] = (),
        run_tokens: Mapping[TaskId, tuple[int, int]] = MappingProxyType({}),
        preferred: Mapping[TaskId, int] = MappingProxyType({}),
    ) -> None:
        """Set up the dispatch of one batch.

        New: tasks of this batch that are not in the queue yet; those not leased are queued.
        Run tokens: the run and the token of those among them that work for one.
        Preferred: the incarnations of the workers that have functions in memory.
        """
        self._tasks = TaskStore(tx, lanes)
        self._tx = tx
        self._held = held
        self._paused = paused
        self._lanes = lanes
        self._snapshot = snapshot
        self._context = context
        self._turns = turns
        self._preferred = preferred
        self._open: dict[int, Lane] = {}  # lanes that may have work
        self._new = self._sorted_in(new, run_tokens)
        self.leased: list[LeaseTask] = []

    def assign(
        self,
        asking: Sequence[LeaseWork],
        waitlist: Waitlist[Any],
        *,
        changed: Collection[str] = (),
        expected: int = 0,
    ) -> tuple[list[LeaseReply], list[tuple[WaitingLease, LeaseReply]]]:
        """Return the replies to the batch's lease calls, and to calls of the waitlist.

        Changed: workers that registered or left in this batch; their waiting calls get a reply,
        which may be an error. Expected: how much new work there is.
        """
        answers = self._assign(asking, waitlist, changed, expected)
        if self._new:
            self._tasks.queue_new(self._new)
            self._held.windows.note_unclaimed(self._new.values())
        return answers

    def _assign(
        self,
        asking: Sequence[LeaseWork],
        waitlist: Waitlist[Any],
        changed: Collection[str],
        expected: int,
    ) -> tuple[list[LeaseReply], list[tuple[WaitingLease, LeaseReply]]]:
        concerned: list[WaitingLease] = waitlist.of_workers(changed) if changed else []
        self._open = self._find_open_lanes()
        if not self._open and not concerned:
            # Without work, even a long waitlist costs nothing.
            return [self._nothing_for(command.worker_id) for command in asking], []
        asked: dict[WaitingLease, LeaseReply] = {}
        most, now = expected + CHOICE, len(asking)
        calls = [*concerned, *waitlist.some(self._open, most, but=concerned)]
        answers = self._assign_round([*asking, *map(_command_of, calls)])
        asked.update(zip(calls, answers[now:], strict=True))
        while calls and self._open:
            most *= GROWTH
            calls = waitlist.some(self._open, most, but=asked)
            asked.update(zip(calls, self._assign_round([*map(_command_of, calls)]), strict=True))
        given = [(call, answer) for call, answer in asked.items() if _says(answer)]
        given += [(call, asked[call]) for call in concerned if not _says(asked[call])]
        return answers[:now], given

    def _nothing_for(self, worker_id: str) -> LeaseReply:
        """Reply that there is no work; a worker that has left in this batch must not wait."""
        return Granted([]) if worker_id in self._snapshot.workers else WorkerNotFound(worker_id)

    @property
    def open_lanes(self) -> Collection[Lane]:
        """The lanes that may have work left."""
        return self._open.values()

    def _assign_round(self, asking: Sequence[LeaseWork]) -> list[LeaseReply]:
        if not asking:
            return []
        self._meet(asking)
        answers: list[LeaseReply] = []
        claims: dict[int, LeaseCall] = {}
        promised: Counter[str] = Counter()  # by worker; a worker may have several calls at once
        for number, command in enumerate(asking):
            try:
                claim = matching.claim(
                    self._snapshot,
                    command,
                    self._open,
                    self._context,
                    promised=promised[command.worker_id],
                )
            except RotaError as error:
                answers.append(error)
            else:
                claims[number] = claim
                promised[command.worker_id] += claim.free
                answers.append(Granted([]))
        if self._open:
            self._assign_groups(claims, answers)
            self._assign_probes(claims, answers)
        return answers

    def _find_open_lanes(self) -> dict[int, Lane]:
        numbers = self._held.windows.open_lanes()
        flows = self._held.flows
        if flows.admission.active:
            numbers = sorted({*numbers, *flows.admission.active_lanes()})
        if self._new:
            numbers = sorted({*numbers, *(number for number, _ in self._new.values())})
        paused, known = self._paused, self._lanes.by_number
        return {number: known[number] for number in numbers if known[number].queue not in paused}

    def _sorted_in(
        self, new: Sequence[AddTask], run_tokens: Mapping[TaskId, tuple[int, int]]
    ) -> dict[TaskId, tuple[int, TaskRecord]]:
        """New tasks that may be leased now, each with the number of its lane."""
        found: dict[TaskId, tuple[int, TaskRecord]] = {}
        for one in new:
            if one.due_at_ms is None:
                number = self._lanes.number_of(lane_of(one.task))
                task = added_task(one, self._lanes.by_number[number])
                found[one.id] = number, of_run(task, run_tokens.get(one.id))
        return found

    def _head(self, lanes: Collection[int], most: int) -> list[TaskRecord]:
        """Return the next tasks of these lanes, from the queue and from the batch's new tasks."""
        flows = self._held.flows
        if flows.flows_of_queue or flows.queues.specs:
            managed = flows.managed_lanes(lanes)
            if managed:
                return self._fair_head(managed, lanes, most)
        return self._plain_head(lanes, most)

    def _fair_head(
        self, managed: Sequence[int], lanes: Collection[int], most: int
    ) -> list[TaskRecord]:
        """Return the next tasks where some lanes are of queues with flows or limits."""
        others = [lane for lane in lanes if lane not in managed]
        plain = self._plain_head(others, most) if others else []
        picker = FairPicker(self._tx, self._lanes, self._held, now_ms=self._context.now_ms)
        return picker.pick(managed, plain, most)

    def _plain_head(self, lanes: Collection[int], most: int) -> list[TaskRecord]:
        head = self._held.windows.head(self._tx, lanes, most)
        new = [task for number, task in self._new.values() if number in lanes]
        if not new:
            return head
        return sorted([*head, *new], key=matching.turn)[:most]

    def _meet(self, asking: Sequence[LeaseWork]) -> None:
        """Add to the snapshot what it lacks about the asking workers.

        The working set has all decisions of the batch by now, and counts the leases after them.
        """
        snapshot, workers, leases = self._snapshot, self._held.workers, self._held.leases
        callers = {command.worker_id for command in asking}
        snapshot.workers |= workers.of_ids(callers - snapshot.workers.keys())
        for worker in workers.of_ids(callers).values():
            snapshot.held[worker.incarnation] = leases.count(worker.incarnation)
        snapshot.qualities |= workers.open_breakers

    def _assign_groups(self, claims: Mapping[int, LeaseCall], answers: list[LeaseReply]) -> None:
        by_claim = {id(claim): number for number, claim in claims.items()}
        for group in matching.groups(list(claims.values())):
            lanes, most = group[0].lanes, sum(claim.free for claim in group)
            head = self._head(lanes, most)
            if len(head) < most:
                for lane in lanes:
                    self._open.pop(lane, None)
            candidates = self._candidates(group) if len(group) > 1 and head else []
            assigned = matching.assign(
                self._snapshot,
                head,
                group,
                candidates,
                self._context,
                preferred=self._preferred,
            )
            known = {task.id: task for task in head}
            self._write(list(chain.from_iterable(assigned)), known)
            for claim, leases in zip(group, assigned, strict=True):
                answers[by_claim[id(claim)]] = Granted(granted(leases, known))
                if leases:
                    self._take_turn(claim.worker.id)

    def _candidates(self, group: Sequence[LeaseCall]) -> list[Candidate]:
        ids = [claim.worker.id for claim in group]
        qualities = self._held.workers.qualities_of(self._tx, ids)
        return [
            matching.candidate(
                self._snapshot,
                claim,
                qualities.get(claim.worker.id, {}),
                self._context,
                last_chosen=self._turns.get(claim.worker.id, 0),
            )
            for claim in group
        ]

    def _take_turn(self, worker_id: str) -> None:
        """Move the worker to the end of the turns, which are ordered by each worker's last."""
        latest = next(reversed(self._turns.values()), 0)
        self._turns.pop(worker_id, None)
        self._turns[worker_id] = latest + 1
        if len(self._turns) > MOST_TURNS:
            del self._turns[next(iter(self._turns))]

    def _assign_probes(self, claims: Mapping[int, LeaseCall], answers: list[LeaseReply]) -> None:
        """Assign probes: a half-open breaker lets one task at a time through, as a trial."""
        for number, claim in claims.items():
            answer = answers[number]
            for lane in claim.probes:
                if not isinstance(answer, Granted) or len(answer.leases) >= claim.free:
                    break
                name = self._lanes.by_number[lane].name
                if self._held.leases.is_running(claim.worker.incarnation, name):
                    continue
                head = self._head([lane], 1)
                leases = matching.lease_all(self._snapshot, head, claim.worker, self._context)
                known = {task.id: task for task in head}
                self._write(leases, known)
                answer.leases.extend(granted(leases, known))

    def _write(self, leases: list[LeaseTask], known: dict[TaskId, TaskRecord]) -> None:
        if leases:
            self._tasks.lease(leases, known, unqueued=self._new, are_next=True)
            self._held.note_leased(leases, known, unqueued=self._new, now_ms=self._context.now_ms)
            self.leased += leases
            for one in leases if self._new else ():
                self._new.pop(one.id, None)


def _command_of(call: WaitingLease) -> LeaseWork:
    """Return the command of a waiting call."""
    assert isinstance(call.command, LeaseWork)
    return call.command


def _says(answer: LeaseReply) -> bool:
    """Whether a reply is an error or grants at least one lease."""
    return isinstance(answer, RotaError) or bool(answer.leases)


def granted(leases: Sequence[LeaseTask], known: Mapping[TaskId, TaskRecord]) -> list[TaskRecord]:
    """Return the leased tasks as their worker sees them, with the fence of its lease."""
    replace, running = msgspec.structs.replace, TaskState.QUEUED.to(TaskState.RUNNING)
    return [
        replace(
            known[one.id],
            state=running,
            fence=one.fence,
            attempt=one.attempt,
            started_at_ms=one.started_at_ms,
            deadline_ms=one.deadline_ms,
        )
        for one in leases
    ]
