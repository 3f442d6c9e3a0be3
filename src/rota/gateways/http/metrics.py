"""What does a coordinator tell Prometheus?

Everything is observed first, on the event loop; writing it out needs no lock and no loop. Names
are those of the reference; labels are queues, services, states and paths of ours, never what else a
caller sent.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as MEDIA_TYPE
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rota.engine.coordinator import Coordinator
from rota.engine.figures import Figures, ServiceFigures
from rota.engine.queue_views import QueueFigures
from rota.engine.scale_views import WorkSelection
from rota.gateways.http import scale
from rota.gateways.http.families import counter, gauge, single
from rota.gateways.http.scale_metrics import scale_families
from rota.gateways.http.service_metrics import service_families, wire_families
from rota.gateways.http.traffic import Traffic
from rota.gateways.http.worker_views import health_policy, worker_view
from rota.messages import ScaleView
from rota.settings import Settings

__all__ = ["MEDIA_TYPE", "Observed", "observe", "render"]


class Observed(NamedTuple):
    figures: Figures
    queues: list[QueueFigures]
    scale: list[ScaleView]
    workers: Mapping[tuple[str, str], int]  # by health and state
    answers: Mapping[tuple[str, str, int], int]
    in_flight: int
    uptime_s: float


async def observe(coordinator: Coordinator, settings: Settings, traffic: Traffic) -> Observed:
    now_ms = coordinator.clock.now_ms()
    views = [
        worker_view(figures, now_ms=now_ms, settings=settings)
        for figures in await coordinator.queries.workers()
    ]
    demands = await coordinator.queries.scale.demands(WorkSelection(), health_policy(settings))
    return Observed(
        figures=_copy(coordinator.figures()),
        queues=await coordinator.queries.queues(),
        scale=scale.page(demands).items,
        workers=Counter((view.health.value, view.state.value) for view in views),
        answers=dict(traffic.answers),
        in_flight=traffic.in_flight,
        uptime_s=max(0, now_ms - coordinator.started_at_ms) / 1000,
    )


def _copy(figures: Figures) -> Figures:
    """The figures of one moment: the engine's threads go on counting in their own."""
    return dataclasses.replace(
        figures,
        submitted=Counter(figures.submitted),
        finished=Counter(figures.finished),
        requeued=Counter(figures.requeued),
        refused_results=Counter(figures.refused_results),
        inbox=Counter(figures.inbox),
        held_sweeps=Counter(figures.held_sweeps),
        duty_runs_ms=dict(figures.duty_runs_ms),
        rates={},
        services={name: _copied(one) for name, one in list(figures.services.items())},
        wire=dataclasses.replace(
            figures.wire,
            received=Counter(figures.wire.received),
            refused=Counter(figures.wire.refused),
            refused_connections=Counter(figures.wire.refused_connections),
        ),
    )


def _copied(service: ServiceFigures) -> ServiceFigures:
    return dataclasses.replace(service, departures=Counter(service.departures))


def render(observed: Observed) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Report(observed))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Report(Collector):
    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        yield from _work(self._observed.figures)
        yield from _engine(self._observed.figures)
        yield from _queues(self._observed.queues)
        yield from service_families(self._observed.figures)
        yield from wire_families(self._observed.figures.wire)
        yield from scale_families(self._observed.scale)
        yield from _surroundings(self._observed)


def _work(figures: Figures) -> Iterator[Metric]:
    yield counter("rota_tasks_submitted", "Tasks accepted.", ("queue",), single(figures.submitted))
    yield counter(
        "rota_tasks_finished", "Tasks ended.", ("queue", "state"), figures.finished.items()
    )
    yield counter(
        "rota_attempts_requeued",
        "Attempts after which their task waits for another.",
        ("ending",),
        single(figures.requeued),
    )
    yield counter("rota_leases_granted", "Tasks given to workers.", (), [((), figures.leased)])
    yield counter(
        "rota_results_refused",
        "Results that were not accepted.",
        ("outcome",),
        single(figures.refused_results),
    )
    yield counter(
        "rota_workers_evicted", "Workers taken for dead.", (), [((), figures.evicted_workers)]
    )
    yield counter(
        "rota_sweeps_held",
        "Sweeps whose evictions a safety valve held back.",
        ("reason",),
        single(figures.held_sweeps),
    )
    yield counter(
        "rota_history_forgotten",
        "Finished tasks past their keeping time.",
        (),
        [((), figures.forgotten)],
    )


def _engine(figures: Figures) -> Iterator[Metric]:
    yield counter("rota_commits", "Transactions committed.", (), [((), figures.batches)])
    yield counter(
        "rota_committed_events",
        "Events decided in these transactions.",
        (),
        [((), figures.batched_events)],
    )
    yield counter(
        "rota_commits_failed", "Transactions that failed.", (), [((), figures.failed_batches)]
    )
    yield counter(
        "rota_commit_seconds", "Time spent in transactions.", (), [((), figures.commit_seconds)]
    )
    yield counter("rota_events", "Events told to the outside.", (), [((), figures.notices)])
    yield gauge(
        "rota_event_watchers",
        "Streams, sessions and calls that follow events.",
        (),
        [((), figures.watchers)],
    )
    yield counter(
        "rota_inbox_tasks",
        "Tasks taken over from transactions of others.",
        ("outcome",),
        single(figures.inbox),
    )
    yield counter(
        "rota_overloads", "Submissions refused under overload.", (), [((), figures.overloads)]
    )
    yield gauge(
        "rota_changes_waiting", "Changes waiting for their commit.", (), [((), figures.waiting)]
    )
    yield gauge("rota_lease_calls_waiting", "Calls waiting for work.", (), [((), figures.parked)])
    yield gauge(
        "rota_duty_last_run_timestamp_seconds",
        "When each duty last ran.",
        ("duty",),
        [((duty,), at_ms / 1000) for duty, at_ms in figures.duty_runs_ms.items()],
    )


def _queues(queues: list[QueueFigures]) -> Iterator[Metric]:
    yield gauge(
        "rota_queue_depth", "Tasks queued.", ("queue",), [((q.name,), q.depth) for q in queues]
    )
    yield gauge(
        "rota_queue_scheduled",
        "Tasks waiting for their time.",
        ("queue",),
        [((q.name,), q.scheduled) for q in queues],
    )
    yield gauge(
        "rota_queue_running",
        "Tasks leased to workers.",
        ("queue",),
        [((q.name,), q.running) for q in queues],
    )
    yield gauge(
        "rota_queue_oldest_age_seconds",
        "How long the oldest queued task has been waiting.",
        ("queue",),
        [((q.name,), (q.oldest_age_ms or 0) / 1000) for q in queues],
    )
    yield gauge(
        "rota_queue_paused",
        "1 when a queue gives out no work.",
        ("queue",),
        [((q.name,), int(q.paused)) for q in queues],
    )


def _surroundings(observed: Observed) -> Iterator[Metric]:
    yield gauge(
        "rota_workers", "Workers registered.", ("health", "state"), observed.workers.items()
    )
    yield counter(
        "rota_http_answers",
        "Requests answered.",
        ("method", "path", "status"),
        [
            ((method, path, str(status)), count)
            for (method, path, status), count in observed.answers.items()
        ],
    )
    yield gauge(
        "rota_http_requests_in_flight", "Requests under way.", (), [((), observed.in_flight)]
    )
    yield gauge("rota_uptime_seconds", "Time since the start.", (), [((), observed.uptime_s)])
