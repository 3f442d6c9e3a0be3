"""Dispatch inside a batch: offers queued tasks to the lease calls of the batch and the waitlist.

`TaskDomain` has checked the workers that call, and has queued the tasks of the batch. Leases of
waiting work are decided here for all lease calls together, after the tasks are written.
"""

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
from rota.core.replies import Granted
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.state import paused_after
from rota.engine.dispatch.dispatcher import Dispatcher

BRINGS_WORK: tuple[type[Decision], ...] = (AddTask, RequeueTask, QueueTask, ReviveTask)


class DispatchDomain(Domain):
    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        """Whether a lease call asks for work."""
        return len(batch.waitlist) > 0 or LeaseWork in batch.kinds

    def write(self) -> None:
        """Assign work, and write the leases."""
        batch, decisions = self.batch, self.batch.decisions
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
        )
        replies, batch.served = dispatcher.assign(
            [command for _, command in asking],
            batch.waitlist,
            changed=self._came_or_left(),
            expected=sum(len(decisions.get(kind, ())) for kind in BRINGS_WORK),
        )
        for (index, command), reply in zip(asking, replies, strict=True):
            batch.outcomes[index] = reply
            self._note_granted(command, reply)
        for call, reply in batch.served:
            self._note_granted(call.command, reply)
        batch.open_lanes = dispatcher.open_lanes
        if dispatcher.leased:
            decisions.setdefault(LeaseTask, []).extend(dispatcher.leased)

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
