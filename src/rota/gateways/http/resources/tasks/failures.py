"""Failures over HTTP: failed tasks grouped by their error, and their retry."""

from typing import Annotated

from msgspec import Meta

from rota.core import ids
from rota.core.access import Action
from rota.core.commands import RetryTasks
from rota.engine.queries.failures import FailureGroup
from rota.errors import NotFound
from rota.gateways.http.resources.tasks.bulk import change_named
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.messages import FailurePage, FailureView, Redrive, Request, TaskCount

routes = Routes("Failures")


class FailuresQuery(Request, frozen=True, kw_only=True):
    acknowledged: Annotated[
        bool, Meta(description="Those that are acknowledged, instead of the others.")
    ] = False


@routes.get("/api/failures", Action.READ)
async def listing(call: HttpCall[None, FailuresQuery]) -> FailurePage:
    """List failed tasks that nobody has acknowledged, grouped by their error.

    Tasks of one name whose errors have the same type, and messages that differ in numbers, ids
    and quoted texts only, are one group. The 1,000 largest groups are shown.
    """
    found = await call.coordinator.queries.failures.groups(
        call.caller.queues, acknowledged=call.query.acknowledged
    )
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


@routes.post("/api/failures/{fingerprint}/retry", Action.SUBMIT, errors=(NotFound,))
async def redrive(call: HttpCall[Redrive | None, NoQuery]) -> TaskCount:
    """Retry all failed tasks of a group.

    With `dry_run` nothing changes, and the answer has the number of matching tasks.
    """
    fingerprint = call.path["fingerprint"]
    named = await call.coordinator.queries.failures.tasks_of(fingerprint, call.caller.queues)
    if not named:
        raise NotFound(
            f"failure group {fingerprint!r} not found; its tasks may have been retried or removed"
        )
    if call.body is not None and call.body.dry_run:
        return TaskCount(count=len(named), dry_run=True)
    return TaskCount(count=await change_named(call.coordinator, named, RetryTasks))
