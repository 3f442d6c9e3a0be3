"""Acknowledgements over HTTP: failed tasks that need no attention any more.

They stay in the history, and can be retried. They leave the failures, and the counts that ask for
attention.
"""

from rota.core.access import Action, Caller
from rota.core.commands import AcknowledgeTasks
from rota.errors import Forbidden, IllegalState, NotFound, TaskNotFound
from rota.gateways.http.resources.tasks import bulk
from rota.gateways.http.resources.tasks.tasks import change_one
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.messages import (
    AcknowledgedSelection,
    Acknowledging,
    FailureAcknowledging,
    TaskCount,
    TaskView,
)

routes = Routes("Failures")


@routes.post("/api/tasks/{task_id}/acknowledge", Action.SUBMIT, errors=(TaskNotFound, IllegalState))
async def acknowledge(call: HttpCall[Acknowledging | None, NoQuery]) -> TaskView:
    """Acknowledge a failed task, or take that back with `undo`."""
    return await change_one(call, _command(call.caller, call.body or Acknowledging()))


@routes.post("/api/tasks/acknowledge", Action.SUBMIT, errors=(Forbidden,))
async def acknowledge_many(call: HttpCall[AcknowledgedSelection, NoQuery]) -> TaskCount:
    """Acknowledge all failed tasks that match and that nobody has acknowledged.

    With `undo`, those that are acknowledged ask for attention again. With `dry_run` nothing
    changes, and the answer has the number of matching tasks.
    """
    asked = call.body
    return await bulk.change(
        call,
        _command(call.caller, Acknowledging(reason=asked.reason, undo=asked.undo)),
        usual_states=bulk.RETRYABLE,
        acknowledged=asked.undo,
    )


@routes.post("/api/failures/{fingerprint}/acknowledge", Action.SUBMIT, errors=(NotFound,))
async def acknowledge_group(call: HttpCall[FailureAcknowledging | None, NoQuery]) -> TaskCount:
    """Acknowledge all failed tasks of a group, or take that back with `undo`.

    With `dry_run` nothing changes, and the answer has the number of matching tasks.
    """
    fingerprint, asked = call.path["fingerprint"], call.body or FailureAcknowledging()
    named = await call.coordinator.queries.failures.tasks_of(
        fingerprint, call.caller.queues, acknowledged=asked.undo
    )
    if not named:
        kind = "acknowledged failures" if asked.undo else "failures"
        raise NotFound(f"{kind} {fingerprint!r} not found; none may be left")
    if asked.dry_run:
        return TaskCount(count=len(named), dry_run=True)
    make = _command(call.caller, asked)
    return TaskCount(count=await bulk.change_named(call.coordinator, named, make))


def _command(caller: Caller, asked: Acknowledging) -> bulk.Change:
    """Make the command for some tasks."""
    return lambda ids: AcknowledgeTasks(
        ids=ids, by=caller.name, reason=asked.reason, undo=asked.undo
    )
