"""The `/metrics` page.

Everything is observed first, on the event loop; rendering it needs no lock and no loop. Labels are
queues, services, states and paths of ours, never other text of a caller. A caller that is bound to
queues or services sees the metrics of those alone.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as MEDIA_TYPE
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rota.core.access import Caller, may_see_worker
from rota.engine.coordinator import Coordinator
from rota.engine.metrics.links import LinkTraffic
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.autoscaling import WorkSelection
from rota.engine.queries.queues import QueueFigures
from rota.engine.replicas.membership import ReplicaFigures
from rota.engine.webhooks.queries import WebhookFigures
from rota.gateways.http.prometheus.families import (
    LabelledRow,
    Row,
    counter,
    counters,
    counters_by_label,
    gauge,
    gauges,
)
from rota.gateways.http.prometheus.outbound import outbound_families
from rota.gateways.http.prometheus.replicas import replica_families
from rota.gateways.http.prometheus.services import service_families, total_families, wire_families
from rota.gateways.http.resources.workers import scale
from rota.gateways.http.routing.endpoint import Traffic
from rota.gateways.http.views.workers import health_policy, worker_view
from rota.messages import ScaleView
from rota.settings import Settings

__all__ = ["MEDIA_TYPE", "Observed", "observe", "render"]


class Observed(NamedTuple):
    metrics: Metrics
    queues: list[QueueFigures]
    scale: list[ScaleView]
    workers: Mapping[tuple[str, str], int]  # by health and state
    answers: Mapping[tuple[str, str, int], int]
    in_flight: int
    uptime_s: float
    replica: ReplicaFigures
    links: LinkTraffic
    webhooks: list[WebhookFigures]
    is_whole: bool = True  # False: the metrics of some queues and services alone


async def observe(
    coordinator: Coordinator, settings: Settings, traffic: Traffic, caller: Caller
) -> Observed:
    now_ms = coordinator.clock.now_ms()
    views = [
        worker_view(figures, now_ms=now_ms, settings=settings)
        for figures in await coordinator.queries.workers.all()
        if may_see_worker(caller, figures.worker.queues)
    ]
    is_whole = caller.queues is None and caller.services is None
    own = None if caller.queues is None else frozenset(caller.queues)
    demands = await coordinator.queries.autoscaling.demands(
        WorkSelection(queues=own), health_policy(settings)
    )
    return Observed(
        metrics=_within(_copy(coordinator.metrics()), caller),
        queues=[
            one for one in await coordinator.queries.queues.all() if own is None or one.name in own
        ],
        scale=scale.page(demands).items,
        workers=Counter((view.health.value, view.state.value) for view in views),
        answers=dict(traffic.answers),
        in_flight=traffic.in_flight,
        uptime_s=max(0, now_ms - coordinator.started_at_ms) / 1000,
        replica=coordinator.membership.figures,
        links=coordinator.metrics().links.total(),
        webhooks=await coordinator.queries.webhooks.all() if is_whole else [],
        is_whole=is_whole,
    )


def _within(metrics: Metrics, caller: Caller) -> Metrics:
    """The metrics without the queues and services that are not the caller's."""
    queues, services = caller.queues, caller.services
    if queues is not None:
        submitted = {one: count for one, count in metrics.submitted.items() if one in queues}
        finished = {one: count for one, count in metrics.finished.items() if one[0] in queues}
        firings = {one: count for one, count in metrics.firings.items() if one[0] in queues}
        delays = {one: ms for one, ms in metrics.firing_delay_ms.items() if one in queues}
        metrics = dataclasses.replace(
            metrics,
            submitted=Counter(submitted),
            finished=Counter(finished),
            firings=Counter(firings),
            firing_delay_ms=Counter(delays),
        )
    if services is not None:
        named = {name: one for name, one in metrics.services.items() if name in services}
        metrics = dataclasses.replace(metrics, services=named)
    return metrics


def _copy(metrics: Metrics) -> Metrics:
    """A copy of this moment: the engine's threads go on counting."""
    return dataclasses.replace(
        metrics,
        submitted=Counter(metrics.submitted),
        finished=Counter(metrics.finished),
        requeued=Counter(metrics.requeued),
        firings=Counter(metrics.firings),
        firing_delay_ms=Counter(metrics.firing_delay_ms),
        refusals=Counter(metrics.refusals),
        refused_results=Counter(metrics.refused_results),
        inbox=Counter(metrics.inbox),
        held_sweeps=Counter(metrics.held_sweeps),
        outbound=metrics.outbound.copy(),
        duty_runs_ms=dict(metrics.duty_runs_ms),
        services={
            name: dataclasses.replace(one, departures=Counter(one.departures))
            for name, one in list(metrics.services.items())
        },
        wire=dataclasses.replace(
            metrics.wire,
            received=Counter(metrics.wire.received),
            refused=Counter(metrics.wire.refused),
            refused_connections=Counter(metrics.wire.refused_connections),
            dropped_peers=Counter(metrics.wire.dropped_peers),
        ),
    )


# --- writing ------------------------------------------------------------------------------------

TASK_COUNTERS: tuple[LabelledRow[Metrics], ...] = (
    ("tasks_submitted", "Tasks accepted.", "queue", lambda one: one.submitted),
)

COUNTERS_BY_LABEL: tuple[LabelledRow[Metrics], ...] = (
    (
        "attempts_requeued",
        "Attempts after which their task waits for another.",
        "ending",
        lambda one: one.requeued,
    ),
    (
        "results_refused",
        "Results that were not accepted.",
        "outcome",
        lambda one: one.refused_results,
    ),
    (
        "sweeps_held",
        "Sweeps whose evictions a guard held back.",
        "reason",
        lambda one: one.held_sweeps,
    ),
    (
        "limit_refusals",
        "Refusals by limits: flows that have to wait, and submissions that are refused.",
        "kind",
        lambda one: one.refusals,
    ),
    (
        "inbox_tasks",
        "Tasks taken over from the inbox, by outcome.",
        "outcome",
        lambda one: one.inbox,
    ),
)

COUNTERS: tuple[Row[Metrics], ...] = (
    ("leases_granted", "Tasks given to workers.", lambda one: one.leased),
    ("workers_evicted", "Workers taken for dead.", lambda one: one.evicted_workers),
    ("history_forgotten", "Finished tasks past their retention.", lambda one: one.forgotten),
    ("commits", "Transactions committed.", lambda one: one.batches),
    ("committed_events", "Commands decided in these transactions.", lambda one: one.batched_events),
    ("commits_failed", "Transactions that failed.", lambda one: one.failed_batches),
    ("commit_seconds", "Time spent in transactions.", lambda one: one.commit_seconds),
    ("events", "Events of the public log.", lambda one: one.events),
    ("overloads", "Submissions refused under overload.", lambda one: one.overloads),
)

GAUGES: tuple[Row[Metrics], ...] = (
    (
        "event_watchers",
        "Streams, sessions and calls that follow events.",
        lambda one: one.watchers,
    ),
    ("changes_waiting", "Changes waiting for their commit.", lambda one: one.waiting),
    ("lease_calls_waiting", "Calls waiting for work.", lambda one: one.waiting_leases),
    (
        "store_disk_free_bytes",
        "Free space of the disk that the store is on; absent on PostgreSQL.",
        lambda one: one.store_disk_free_bytes,
    ),
    (
        "schedules",
        "Schedules that the leader knows.",
        lambda one: len(one.working_set.schedules),
    ),
    (
        "limits",
        "Limits of keys that are known.",
        lambda one: len(one.working_set.flows.limits.by_key),
    ),
    (
        "limited_tasks_running",
        "Tasks that have a slot of a concurrency limit.",
        lambda one: len(one.working_set.flows.limits.slots),
    ),
    (
        "flows_waiting",
        "Flows with queued tasks: tasks with the same lane, tenant and limits are one.",
        lambda one: len(one.working_set.flows),
    ),
    (
        "flows_blocked",
        "Those of the flows with queued tasks that a limit does not let start.",
        lambda one: one.working_set.flows.admission.blocked_count,
    ),
    (
        "held_workers",
        "Workers held in memory: all that are registered.",
        lambda one: len(one.working_set.workers),
    ),
    (
        "held_leases",
        "Leases held in memory: all of them.",
        lambda one: len(one.working_set.leases),
    ),
    (
        "held_tasks",
        "Queued tasks held in memory: the next ones of each lane.",
        lambda one: one.working_set.task_count,
    ),
    (
        "held_task_bytes",
        "Size of the queued tasks that are held in memory whole.",
        lambda one: one.working_set.task_bytes,
    ),
)

QUEUE_GAUGES: tuple[Row[QueueFigures], ...] = (
    ("queue_depth", "Tasks queued.", lambda one: one.depth),
    ("queue_scheduled", "Tasks waiting for their time.", lambda one: one.scheduled),
    ("queue_running", "Tasks leased to workers.", lambda one: one.running),
    (
        "queue_oldest_age_seconds",
        "How long the oldest queued task has been waiting.",
        lambda one: (one.oldest_age_ms or 0) / 1000,
    ),
    ("queue_paused", "1 when a queue gives out no work.", lambda one: int(one.paused)),
    (
        "queue_target_wait_seconds",
        "How long tasks should wait at most; absent without a target.",
        lambda one: None if one.target_wait_ms is None else one.target_wait_ms / 1000,
    ),
    (
        "queue_target_missed",
        "1 while a task waits longer than its queue's target; absent without a target.",
        lambda one: None if one.target_wait_ms is None else int(one.target_missed_ms is not None),
    ),
)

# What has no value (no capacity to be in use, no worker to drain it) is left out.
SCALE_GAUGES: tuple[Row[ScaleView], ...] = (
    ("scale_wanted_workers", "Workers that the work wants.", lambda one: one.wanted_workers),
    ("scale_wanted_capacity", "Tasks that should run at once.", lambda one: one.wanted_capacity),
    ("scale_workers", "Workers that can serve it.", lambda one: one.workers),
    ("scale_capacity", "Tasks that these can run at once.", lambda one: one.capacity),
    ("scale_depth", "Tasks queued.", lambda one: one.depth),
    ("scale_running", "Tasks leased to workers.", lambda one: one.running),
    (
        "scale_oldest_age_seconds",
        "How long the oldest queued task has been waiting.",
        lambda one: (one.oldest_age_ms or 0) / 1000,
    ),
    (
        "scale_submitted_per_second",
        "Tasks accepted a second, over the last minute.",
        lambda one: one.submitted_per_s,
    ),
    (
        "scale_finished_per_second",
        "Tasks ended a second, over the last minute.",
        lambda one: one.finished_per_s,
    ),
    (
        "scale_utilisation",
        "Share of the capacity that is in use; absent without any.",
        lambda one: one.utilisation,
    ),
    (
        "scale_drain_seconds",
        "Until what waits is worked off; absent when no worker takes it.",
        lambda one: None if one.drain_ms is None else one.drain_ms / 1000,
    ),
)


def render(observed: Observed) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Report(observed))
    if observed.is_whole:
        ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Report(Collector):
    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        observed, metrics = self._observed, self._observed.metrics
        yield from counters_by_label(TASK_COUNTERS, metrics)
        yield counter(
            "tasks_finished", "Tasks ended.", ("queue", "state"), metrics.finished.items()
        )
        yield counter(
            "schedule_firings",
            "Times of schedules, by what came of them; the queue of runs is empty.",
            ("queue", "outcome"),
            metrics.firings.items(),
        )
        yield counter(
            "schedule_delay_seconds",
            "How much later than their time schedules have fired, summed up.",
            ("queue",),
            [((queue,), ms / 1000) for queue, ms in metrics.firing_delay_ms.items()],
        )
        if observed.is_whole:
            yield from _of_the_whole(observed)
        queues = [((one.name,), one) for one in observed.queues]
        yield from gauges(QUEUE_GAUGES, ("queue",), queues)
        yield from service_families(metrics)
        groups = [((one.queue, ",".join(one.requires)), one) for one in observed.scale]
        yield from gauges(SCALE_GAUGES, ("queue", "requires"), groups)
        yield gauge("workers", "Workers registered.", ("health", "state"), observed.workers.items())


def _of_the_whole(observed: Observed) -> Iterator[Metric]:
    """What only a caller that is bound to nothing may see."""
    metrics = observed.metrics
    yield from counters_by_label(COUNTERS_BY_LABEL, metrics)
    yield from counters(COUNTERS, (), [((), metrics)])
    yield from gauges(GAUGES, (), [((), metrics)])
    yield gauge(
        "duty_last_run_timestamp_seconds",
        "When each duty last ran.",
        ("duty",),
        [((duty,), at_ms / 1000) for duty, at_ms in metrics.duty_runs_ms.items()],
    )
    yield from replica_families(observed.replica, observed.links)
    yield from outbound_families(metrics.outbound, observed.webhooks)
    yield from total_families(metrics)
    yield from wire_families(metrics.wire)
    yield counter(
        "http_answers",
        "Requests answered.",
        ("method", "path", "status"),
        [
            ((method, path, str(status)), count)
            for (method, path, status), count in observed.answers.items()
        ],
    )
    yield gauge("http_requests_in_flight", "Requests under way.", (), [((), observed.in_flight)])
    yield gauge("uptime_seconds", "Time since the start.", (), [((), observed.uptime_s)])
