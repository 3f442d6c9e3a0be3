"""How many workers the queued work needs, and why."""

import math
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.dispatch.autoscaling import (
    DEFAULT_SCALE_POLICY,
    ScalePolicy,
    assess,
    slots_of_a_worker,
    workers_for,
)
from rota.engine.queries.autoscaling import GroupDemand, WorkSelection
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.gateways.http.views.workers import health_policy
from rota.messages import Name, Request, ScalePage, ScaleView

routes = Routes("Scaling")


class ScaleQuery(Request, frozen=True, kw_only=True):
    queue: Annotated[
        tuple[Name, ...], Meta(description="Only the work of these queues; repeated.")
    ] = ()
    task: Annotated[tuple[Name, ...], Meta(description="Only tasks of these names; repeated.")] = ()
    target_ms: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_TIMEOUT_MS, description="How soon waiting tasks should be done."),
    ] = DEFAULT_SCALE_POLICY.target_ms
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_CONCURRENT_TASKS)] | None,
        Meta(description="Tasks that a worker runs at once; absent: as registered workers do."),
    ] = None


@routes.get("/api/scale", Action.SCALE)
async def show(call: HttpCall[None, ScaleQuery]) -> ScalePage:
    """Show for each queue and capability set how many workers it wants, and why.

    Figures are at most a second old; with very deep queues, a few seconds.
    """
    query = call.query
    groups = await call.coordinator.queries.autoscaling.demands(
        WorkSelection(
            queues=_queues(call.caller, query.queue),
            names=frozenset(query.task) or None,
        ),
        health_policy(call.settings),
    )
    return page(groups, ScalePolicy(target_ms=query.target_ms, slots=query.concurrency))


def _queues(caller: Caller, asked: Sequence[str]) -> frozenset[str] | None:
    """The queues of the query, or all that the caller may see."""
    for queue in asked:
        access.check_queue(caller, queue)
    if asked:
        return frozenset(asked)
    return None if caller.queues is None else frozenset(caller.queues)


def page(groups: Sequence[GroupDemand], policy: ScalePolicy = DEFAULT_SCALE_POLICY) -> ScalePage:
    items = [_view(group, policy) for group in groups]
    wanted = math.fsum(item.wanted_capacity for item in items)
    slots = slots_of_a_worker([group.demand for group in groups], policy)
    return ScalePage(
        items=items,
        depth=sum(item.depth for item in items),
        running=sum(item.running for item in items),
        wanted_capacity=wanted,
        wanted_workers=workers_for(wanted, slots),
    )


def _view(group: GroupDemand, policy: ScalePolicy) -> ScaleView:
    demand, judged = group.demand, assess(group.demand, policy)
    return ScaleView(
        queue=group.queue,
        requires=group.requires,
        paused=demand.is_paused,
        depth=demand.depth,
        oldest_age_ms=demand.oldest_age_ms,
        running=demand.running,
        submitted_per_s=demand.submitted_per_s,
        finished_per_s=demand.finished_per_s,
        duration_ms=demand.duration_ms,
        workers=demand.workers,
        capacity=demand.capacity,
        available_capacity=demand.free,
        utilisation=judged.utilisation,
        drain_ms=judged.drain_ms,
        wanted_capacity=judged.wanted_capacity,
        wanted_workers=judged.wanted_workers,
        decided_by=judged.decided_by,
        explanation=judged.explanation,
    )
