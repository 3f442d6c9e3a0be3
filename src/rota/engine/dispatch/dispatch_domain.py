"""Dispatch inside a batch: offers queued tasks to the lease calls of the batch and the waitlist.

`TaskDomain` has checked the workers that call, and has queued the tasks of the batch. Leases of
waiting work are decided here for all lease calls together, after the tasks are written.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.core.commands import LeaseWork
from rota.core.decisions import (
    AddTask,
    Decision,
    LeaseTask,
    PutWorker,
    QueueTask,
    RemoveWorker,
    RequeueTask,
    ReviveTask,
)
from rota.core.dispatch import matching
from rota.core.replies import Granted
from rota.core.tasks.model import TaskRecord, of_run
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.state import paused_after
from rota.engine.dispatch.dispatcher import Dispatcher
from rota.store.tasks.tasks import TaskStore

BRINGS_WORK: tuple[type[Decision], ...] = (AddTask, RequeueTask, QueueTask, ReviveTask)
DISPATCHED: frozenset[type[Decision]] = frozenset({*BRINGS_WORK, PutWorker, RemoveWorker})


class DispatchDomain(Domain):
    @classmethod
    def is_named_by(cls, kinds: frozenset[type[Any]]) -> bool:
        return LeaseWork in kinds

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        """Whether a lease call asks for work."""
        return len(batch.waitlist) > 0 or LeaseWork in batch.kinds

    def write(self) -> None:
        """Assign work, and write the leases."""
        batch, decisions = self.batch, self.batch.decisions
        if (
            LeaseWork not in batch.kinds
            and not batch.held.has_work
            and DISPATCHED.isdisjoint(decisions)
        ):
            return  # only calls of the waitlist ask, for which there was no work before either
        asking = [
            (index, command)
            for index, command in enumerate(batch.commands)
            if isinstance(command, LeaseWork) and isinstance(batch.outcomes[index], Granted)
        ]
        dispatcher = Dispatcher(
            batch.tx,
            batch.lanes,
            batch.held,
            batch.snapshot,
            batch.context,
            turns=batch.state.turns,
            paused=paused_after(batch.state.paused, decisions),
            new=batch.unqueued,
            run_tokens=batch.run_tokens,
            preferred=batch.preferred,
        )
        repeated = self._repeated([command for _, command in asking])
        replies, batch.served = dispatcher.assign(
            [
                command if number not in repeated else _remainder(command, repeated[number])
                for number, (_, command) in enumerate(asking)
            ],
            batch.waitlist,
            changed=self._came_or_left(),
            expected=sum(len(decisions.get(kind, ())) for kind in BRINGS_WORK),
        )
        for number, ((index, command), reply) in enumerate(zip(asking, replies, strict=True)):
            batch.outcomes[index] = reply
            self._note_granted(command, reply)
            if number in repeated and isinstance(reply, Granted):
                batch.outcomes[index] = Granted([*repeated[number], *reply.leases])
        for call, reply in batch.served:
            self._note_granted(call.command, reply)
        batch.open_lanes = dispatcher.open_lanes
        if dispatcher.leased:
            decisions.setdefault(LeaseTask, []).extend(dispatcher.leased)

    def _repeated(self, asking: Sequence[LeaseWork]) -> dict[int, list[TaskRecord]]:
        """Return the leased tasks that calls get again, by the number of the call."""
        incarnations = {one.incarnation for one in asking if one.running is not None}
        if not incarnations:
            return {}
        batch, leases = self.batch, self.batch.held.leases
        wanted = matching.leases_to_repeat(
            asking,
            {one: [*leases.of_incarnations([one]).values()] for one in incarnations},
            now_ms=batch.context.now_ms,
        )
        ids = [task_id for found in wanted.values() for task_id in found]
        tasks = TaskStore(batch.tx, batch.lanes).by_ids([*ids])
        leases.note_repeated(ids)
        return {
            number: [of_run(tasks[one], leases.run_tokens.get(one)) for one in found]
            for number, found in wanted.items()
            if found
        }

    def _note_granted(self, command: object, reply: object) -> None:
        if isinstance(reply, Granted) and reply.leases:
            assert isinstance(command, LeaseWork)
            self.batch.granted.append((command.worker_id, reply.leases))

    def _came_or_left(self) -> set[str]:
        """Return the workers that have registered or left in this batch."""
        decisions = self.batch.decisions
        if PutWorker not in decisions and RemoveWorker not in decisions:
            return set()
        came = {one.worker.id for one in decisions.get(PutWorker, ())}
        return came | {one.worker_id for one in decisions.get(RemoveWorker, ())}


def _remainder(command: LeaseWork, repeated: Sequence[TaskRecord]) -> LeaseWork:
    """Return what a call may get beside the leases that it gets again."""
    return msgspec.structs.replace(command, most=command.most - len(repeated))
