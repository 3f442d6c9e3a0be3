"""Tasks and workers inside a batch: load, reduce by the rules of core, write by kind."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, get_args

from rota.core.commands import PruneHistory, TakeInbox, TaskCommand
from rota.core.decisions import AddTask, ReplaceTask
from rota.core.reducer import reduce
from rota.core.replies import Done, Reply
from rota.core.schedules.commands import ScheduleCommand
from rota.core.tasks.model import NewTask, flow_of
from rota.core.workflow.commands import RunCommand
from rota.engine.commit.applier import apply
from rota.engine.commit.batch import Domain
from rota.engine.commit.loader import load
from rota.engine.dispatch.dispatch_domain import DispatchDomain

MOST_UNQUEUED = 16  # new tasks that may be leased without having been in the queue
# Runs and schedules add and cancel tasks.
CONCERNED = frozenset(get_args(TaskCommand) + get_args(RunCommand) + get_args(ScheduleCommand))


class TaskDomain(Domain):
    """The tasks and workers of one batch. It also writes what runs decide about their tasks."""

    # A set, since a look-up is fast. An `isinstance` check of a union of many kinds is slower than
    # the decision itself.
    COMMANDS = frozenset(get_args(TaskCommand))

    @classmethod
    def is_named_by(cls, kinds: frozenset[type[Any]]) -> bool:
        return not CONCERNED.isdisjoint(kinds)

    def load(self, commands: Sequence[TaskCommand]) -> None:
        batch = self.batch
        if commands:
            load(
                batch.tx,
                batch.lanes,
                batch.snapshot,
                commands,
                batch.context,
                kinds=batch.kinds,
                held=batch.held,
                unwell=batch.state.healths.keys(),
            )
        batch.leases = dict(batch.snapshot.leases)

    def reduce(self, command: TaskCommand) -> Reply:
        batch = self.batch
        decided, reply = reduce(batch.snapshot, command, batch.context)
        decisions = batch.decisions
        if len(decided) == 1:
            decisions.setdefault(type(decided[0]), []).append(decided[0])
            return reply
        for kind, group in groupby(decided, key=type):
            decisions.setdefault(kind, []).extend(group)
        return reply

    def write(self) -> None:
        batch, decisions = self.batch, self.batch.decisions
        batch.unqueued = self._new_and_wanted()
        applied = apply(
            batch.tx,
            batch.lanes,
            decisions,
            held=batch.held,
            now_ms=batch.context.now_ms,
            tasks=batch.snapshot.tasks,
            run_tokens=batch.run_tokens,
            queues_new=not batch.unqueued,
        )
        batch.opened = applied.opened
        batch.forgotten = applied.forgotten
        batch.delivery.ended[:0] = applied.finished
        if applied.logged:
            batch.delivery.logged = [*applied.logged]
        if PruneHistory in batch.kinds:
            for index, command in enumerate(batch.commands):
                if type(command) is PruneHistory:
                    batch.outcomes[index] = Done(applied.forgotten)

    def _is_managed(self, task: NewTask) -> bool:
        """Whether a task takes its turn by limits or between tenants, and has to be queued."""
        return flow_of(task) is not None or self.batch.held.flows.is_managed(task.queue)

    def _new_and_wanted(self) -> list[AddTask]:
        """New tasks that need not go through the queue, since a lease call waits for work.

        Only a few: many tasks are claimed from the queue together at a lower cost.
        Tasks from the inbox may have failed already. Only a task in the queue can be replaced.
        """
        batch = self.batch
        new: list[AddTask] | None = batch.decisions.get(AddTask)
        if new is None:
            return []
        is_wanted = (
            len(new) <= MOST_UNQUEUED
            and DispatchDomain.is_concerned(batch)
            and TakeInbox not in batch.kinds
            and ReplaceTask not in batch.decisions
            and not any(self._is_managed(one.task) for one in new)
        )
        return new if is_wanted else []
