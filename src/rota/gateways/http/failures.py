"""Failures over HTTP: the dead letter by what its tasks failed of, and their way back."""

from rota.core import ids, limits
from rota.core.access import Action
from rota.core.events import RetryTasks
from rota.core.ids import TaskId
from rota.core.replies import Changed
from rota.engine.board_views import FailureGroup
from rota.errors import NotFound
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import FailurePage, FailureView, Redrive, TaskCount


async def listing(call: Call[None, NoQuery]) -> FailurePage:
    found = await call.coordinator.queries.board.failures(call.caller.queues)
    return FailurePage(
        items=[_view(group) for group in found.shown],
        looked_at=found.tasks,
        is_complete=found.is_complete,
    )


def _view(group: FailureGroup) -> FailureView:
    return FailureView(
        fingerprint=group.fingerprint,
        name=group.name,
        error=group.error,
        count=group.count,
        queues=group.queues,
        first_failed_at_ms=group.first_failed_at_ms,
        last_failed_at_ms=group.last_failed_at_ms,
        task_ids=[ids.to_text(one) for one in group.ids],
    )


async def redrive(call: Call[Redrive | None, NoQuery]) -> TaskCount:
    """Send all tasks of a group round again, in steps, each a transaction."""
    named = await call.coordinator.queries.board.failed_alike(call.parameter, call.caller.queues)
    if not named:
        raise NotFound(f"failures {call.parameter!r} not found; none is left, perhaps")
    if call.body is not None and call.body.dry_run:
        return TaskCount(count=len(named), dry_run=True)
    count = 0
    for start in range(0, len(named), limits.MAX_BULK_STEP):
        count += await _retry(call, tuple(named[start : start + limits.MAX_BULK_STEP]))
    return TaskCount(count=count)


async def _retry(call: Call[Redrive | None, NoQuery], step: tuple[TaskId, ...]) -> int:
    reply = await call.coordinator.handle(RetryTasks(step))
    assert isinstance(reply, Changed)
    return len(reply.changed)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/failures",
        summary="List failed tasks by what they failed of",
        description="Tasks of one name whose errors have the same type, and messages that differ "
        "in numbers, ids and quoted texts only, are one group. The 1,000 largest groups are shown.",
        noun="Failures",
        action=Action.READ,
        handler=listing,
        answer=FailurePage,
    ),
    Endpoint(
        method="POST",
        path="/api/failures/{fingerprint}/retry",
        summary="Send all failed tasks of a group round again",
        description="With `dry_run` nothing changes, and the answer says how many it would be.",
        noun="Failures",
        action=Action.SUBMIT,
        handler=redrive,
        body=Redrive,
        answer=TaskCount,
        errors=(NotFound,),
    ),
)
