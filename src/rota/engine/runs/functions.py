"""The commands about functions: put them, report what they do, read their logs."""

from rota.core import access, limits
from rota.core.access import Caller
from rota.core.ids import TaskId, to_text
from rota.core.replies import OutcomeName
from rota.core.tasks.model import Lease
from rota.core.workers.registry import check_owner
from rota.core.workflow.commands import (
    LookAtOperations,
    LookAtReply,
    LookAtStream,
    OperationsNoted,
    OperationsShown,
    PutCode,
    ReplyShown,
    ReportedOperations,
    ReportOperations,
    StreamShown,
)
from rota.core.workflow.events import OperationsReported
from rota.core.workflow.functions.model import FUNCTION_TOKEN
from rota.core.workflow.functions.operations import unknown_part
from rota.core.workflow.functions.run import CodeRun, Function
from rota.engine.commit.batch import Batch
from rota.engine.runs.advancing.run_advancer import RunAdvancer
from rota.engine.runs.cache import LiveRun
from rota.errors import Forbidden, Invalid, StaleIncarnation, WorkerNotFound


class FunctionCommands:
    """The commands about functions in one batch.

    Reports are judged by the leases before the batch. So a report counts also if the task ends, or
    is taken from its worker, in the same batch.
    """

    def __init__(self, batch: Batch, advancer: RunAdvancer) -> None:
        self._leases = batch.held.leases
        self._workers = batch.held.workers
        self._advancer = advancer
        self.reported: list[tuple[TaskId, int]] = []  # attempts whose operations are logged
        self._now_ms = batch.context.now_ms

    def check_put(self, command: PutCode) -> None:
        """Refuse a worker that would replace a graph, or a function of another tenant's queue."""
        by, definition = command.by, command.definition
        if by is None or by.is_operator:
            return
        access.check_queue(by, definition.queue)
        current = self._advancer.loader.current(definition.name)
        known = None if current is None else self._advancer.loader.program(definition.name, current)
        if known is None:
            return
        if not isinstance(known, Function):
            detail = f"workflow {definition.name!r} is no function; an admin token may replace it"
            raise Forbidden(detail, workflow=definition.name)
        access.check_queue(by, known.definition.queue, of=f"workflow {definition.name!r}")

    # --- reporting ----------------------------------------------------------------------------

    def take_up(self, command: ReportOperations) -> OperationsNoted:
        """Feed reported operations to their runs; each item has its outcome."""
        worker = self._workers.by_id.get(command.worker_id)
        if worker is None:
            raise WorkerNotFound(command.worker_id)
        check_owner(worker, command.by)
        if worker.incarnation != command.incarnation:
            raise StaleIncarnation(worker.id, given=command.incarnation, current=worker.incarnation)
        outcomes: list[OutcomeName] = []
        cancelled: dict[int, str] = {}
        for place, item in enumerate(command.items):
            run = self._run_of(item, command.incarnation)
            if run is None:
                is_known = item.task_id in self._leases.by_task
                outcomes.append("stale" if is_known else "unknown")
                continue
            run_id, code_run = run
            outcomes.append(self._outcome(run_id, code_run, item))
            if outcomes[-1] == "accepted":
                self.reported.append((item.task_id, item.fence))
            if code_run.cancelled is not None:
                cancelled[place] = code_run.cancelled
        return OperationsNoted(outcomes, cancelled)

    def _run_of(self, item: ReportedOperations, incarnation: int) -> tuple[int, CodeRun] | None:
        """Return the run whose function an item is about; None: the worker does not hold it."""
        lease = self._leases.by_task.get(item.task_id)
        if lease is None or lease.fence != item.fence or lease.incarnation != incarnation:
            return None
        run_id, token = self._leases.run_tokens.get(item.task_id, (0, None))
        live = self._advancer.loader.find(run_id) if token == FUNCTION_TOKEN else None
        if live is None or not isinstance(live.run, CodeRun) or live.run.is_ended:
            return None
        return run_id, live.run

    def _outcome(self, run_id: int, run: CodeRun, item: ReportedOperations) -> OutcomeName:
        operations = unknown_part(run, item.after, item.operations)
        if operations is None:
            return "stale"
        if not operations and item.operations:
            return "duplicate"
        if operations:
            self._advancer.feed(run_id, OperationsReported(self._now_ms, operations))
        return "accepted"

    # --- reading ------------------------------------------------------------------------------

    def look_at_stream(self, live: LiveRun, command: LookAtStream) -> StreamShown:
        run = _function_run(live)
        after = command.after
        values = bounded(run.streams.get(command.name, [])[after : after + command.limit])
        return StreamShown(values=values, next_after=after + len(values), is_ended=run.is_ended)

    def look_at_reply(self, live: LiveRun, command: LookAtReply) -> ReplyShown:
        run = _function_run(live)
        return ReplyShown(value=run.replies.get(command.key), is_ended=run.is_ended)

    def look(self, live: LiveRun, command: LookAtOperations) -> OperationsShown:
        """Return a page of the log of a function."""
        if command.by is not None:
            self._check_holder(live, command.by)
        run = _function_run(live)
        entries = bounded(run.log[command.after : command.after + command.limit])
        end = command.after + len(entries)
        return OperationsShown(
            entries=entries,
            next_after=end if end < len(run.log) else None,
            reported=run.reported,
            restarts=run.restarts,
        )

    def _check_holder(self, live: LiveRun, by: Caller) -> None:
        """Refuse a worker that does not run the function."""
        lease = self._leases.by_task.get(TaskId(live.links.get(FUNCTION_TOKEN, 0)))
        if lease is None or not self._is_of(lease, by):
            raise Forbidden(f"token {by.name!r} does not run the function of this run")

    def _is_of(self, lease: Lease, by: Caller) -> bool:
        """Whether a lease is held by a worker of this caller."""
        for worker in self._workers.by_id.values():
            if worker.incarnation == lease.incarnation:
                try:
                    check_owner(worker, by)
                except Forbidden:
                    return False
                return True
        return False


def _function_run(live: LiveRun) -> CodeRun:
    if not isinstance(live.run, CodeRun):
        detail = f"run {to_text(live.record.id)!r} has no operations: its workflow is a graph"
        raise Invalid(detail, field="run_id")
    return live.run


def bounded(entries: list[bytes]) -> list[bytes]:
    """Return as many entries as one answer may have, and at least one."""
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry)
        if place and size > limits.MAX_OPERATIONS_PAGE_BYTES:
            return entries[:place]
    return entries
