"""Views of workers, with the score of each on request."""

from collections.abc import Mapping

import msgspec

from rota.core.snapshot import Quality
from rota.core.workers import circuit_breaker, model, scoring, statistics
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.model import HealthPolicy, WorkerRecord, WorkerState
from rota.core.workers.scoring import ScoringPolicy
from rota.core.workers.statistics import Statistics
from rota.engine.queries.workers import WorkerFigures
from rota.messages import BreakerView, ScoreView, WorkerMetrics, WorkerView
from rota.settings import Settings


def worker_view(
    figures: WorkerFigures, *, now_ms: int, settings: Settings, is_ranked: bool = False
) -> WorkerView:
    """A worker as of now; with `is_ranked` also its score and the parts of it."""
    worker = figures.worker
    policy = health_policy(settings)
    history = statistics.combine(
        (quality.statistics for quality in figures.qualities.values()), now_ms=now_ms
    )
    view = WorkerView(
        id=worker.id,
        node_id=worker.node_id,
        capabilities=worker.capabilities,
        max_concurrent_tasks=worker.max_concurrent_tasks,
        current_tasks=figures.held,
        health=model.health(
            age_ms=now_ms - worker.last_heartbeat_ms,
            interval_ms=worker.heartbeat_interval_ms,
            policy=policy,
        ),
        state=worker.state,
        last_heartbeat_ms=worker.last_heartbeat_ms,
        started_at_ms=worker.started_at_ms,
        incarnation=worker.incarnation,
        heartbeat_interval_ms=worker.heartbeat_interval_ms,
        lease_ms=model.lease_ms(worker.heartbeat_interval_ms, policy),
        metrics=_metrics(history),
        tasks=worker.tasks,
        queues=worker.queues,
        group=worker.group,
        labels=worker.labels,
        load=worker.load,
        breakers=_breakers(figures.qualities, now_ms),
        available_capacity=available_capacity(worker, figures.held),
    )
    if not is_ranked:
        return view
    score = scoring.score(
        free=worker.max_concurrent_tasks - figures.held,
        maximum=worker.max_concurrent_tasks,
        statistics=history,
        age_ms=now_ms - worker.started_at_ms,
        policy=scoring_policy(settings),
    )
    parts = msgspec.convert(score, ScoreView, from_attributes=True)
    return msgspec.structs.replace(
        view, priority=score.total, success_rate=score.success, score=parts
    )


def available_capacity(worker: WorkerRecord, held: int) -> int:
    """The free slots of a worker; none while it takes nothing new."""
    if worker.state is not WorkerState.ACTIVE:
        return 0
    return max(0, worker.max_concurrent_tasks - held)


def health_policy(settings: Settings) -> HealthPolicy:
    return HealthPolicy(
        degraded_after=settings.degraded_after, unhealthy_after=settings.unhealthy_after
    )


def scoring_policy(settings: Settings) -> ScoringPolicy:
    return ScoringPolicy(lifetime=settings.scoring == "lifetime")


def _metrics(history: Statistics) -> WorkerMetrics:
    return WorkerMetrics(
        tasks_completed=history.tasks_completed,
        tasks_failed=history.tasks_failed,
        average_task_duration_ms=statistics.lifetime_average_duration_ms(history) or 0.0,
        p50_ms=statistics.percentile(history, 0.50),
        p95_ms=statistics.percentile(history, 0.95),
        p99_ms=statistics.percentile(history, 0.99),
    )


def _breakers(qualities: Mapping[str, Quality], now_ms: int) -> list[BreakerView]:
    """The task names whose circuit breaker is open or half open."""
    shown = []
    for name, quality in qualities.items():
        breaker = quality.breaker
        state = circuit_breaker.current_state(breaker, now_ms=now_ms)
        if state is BreakerState.CLOSED:
            continue
        until_ms = breaker.opened_at_ms + circuit_breaker.open_ms(breaker.trips)
        shown.append(
            BreakerView(
                task=name,
                state=state.value,
                until_ms=until_ms if state is BreakerState.OPEN else None,
            )
        )
    return shown
