"""The overview of a coordinator: counts, queues, workers, what is stuck."""

import math
from collections.abc import Sequence

from msgspec import Struct

from rota.cli.render.formatting import duration
from rota.messages import BacklogView, Overview, QueueView, WorkerView
from rota.sdk.client import calls
from rota.sdk.client.client import Client

MAX_WORKERS = 500  # listed; more workers are only counted
HEADINGS = {
    "queues": ("queue", "queued", "running", "later", "oldest", "in/s", "done/s", "failed/s"),
    "workers": ("worker", "health", "state", "tasks", "p50", "p95", "done", "failed", "heard"),
    "waiting": ("stuck", "queue", "task", "queued", "oldest", "why"),
}


class TopView(Struct, frozen=True, kw_only=True):
    """The state of a coordinator; `rota top --json` prints it."""

    overview: Overview
    queues: list[QueueView]
    workers: list[WorkerView]
    backlog: list[BacklogView]


def load_top_view(client: Client) -> TopView:
    return TopView(
        overview=client.run(calls.get_overview()),
        queues=client.run(calls.list_queues()).items,
        workers=client.run(calls.list_workers(limit=MAX_WORKERS)).items,
        backlog=client.run(calls.get_backlog()).items,
    )


# --- as lines -----------------------------------------------------------------------------------


def summary(view: TopView) -> list[tuple[str, str]]:
    """The counts by noun, without those that are zero."""
    overview, shards = view.overview, view.overview.shards
    owned = f"{shards.owned:,} of {shards.shards:,} owned" if shards.shards else ""
    lines = [
        ("tasks", _counts(overview.tasks)),
        ("runs", _counts(overview.runs)),
        ("workers", _counts(overview.workers)),
        ("shards", owned + (f", {shards.moving:,} moving" if shards.moving else "")),
        ("paused", ", ".join(overview.paused_queues)),
        ("leader", _leader(overview)),
    ]
    return [(noun, text) for noun, text in lines if text]


def _leader(overview: Overview) -> str:
    leader = overview.leader
    if leader is None:
        return ""
    since = duration(max(0, overview.now_ms - leader.since_ms))
    return f"{leader.name} for {since}, epoch {leader.epoch}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def queue_rows(view: TopView) -> list[tuple[str, ...]]:
    """The queues, deepest first."""
    ordered = sorted(view.queues, key=lambda queue: (-queue.depth, -queue.running, queue.name))
    return [
        (
            f"{queue.name} (paused)" if queue.paused else queue.name,
            f"{queue.depth:,}",
            f"{queue.running:,}",
            f"{queue.scheduled:,}",
            duration(queue.oldest_age_ms),
            f"{queue.submitted_per_s:,.1f}",
            f"{queue.finished_per_s:,.1f}",
            f"{queue.failed_per_s:,.1f}",
        )
        for queue in ordered
    ]


def worker_rows(view: TopView) -> list[tuple[str, ...]]:
    """The workers: unhealthy ones first, then the busiest."""
    healths = ("unhealthy", "degraded", "healthy")
    ordered = sorted(
        view.workers,
        key=lambda one: (healths.index(one.health), -one.current_tasks, one.id),
    )
    return [_worker(one, now_ms=view.overview.now_ms) for one in ordered]


def _worker(worker: WorkerView, *, now_ms: int) -> tuple[str, ...]:
    metrics = worker.metrics
    return (
        worker.id,
        worker.health,
        worker.state,
        f"{worker.current_tasks}/{worker.max_concurrent_tasks}",
        duration(metrics.p50_ms),
        duration(metrics.p95_ms),
        f"{metrics.tasks_completed:,}",
        f"{metrics.tasks_failed:,}",
        f"{duration(max(0, now_ms - worker.last_heartbeat_ms))} ago",
    )


def waiting_rows(view: TopView) -> list[tuple[str, ...]]:
    """Waiting tasks with the reason; the coordinator lists stuck ones first."""
    return [
        (
            "stuck" if one.why.is_stuck else "",
            one.queue,
            one.name,
            f"{one.queued:,}",
            duration(one.oldest_age_ms),
            one.why.text,
        )
        for one in view.backlog
        if one.queued
    ]


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """How many rows each table gets: short ones all, the others an equal part of the rest."""
    granted = [0] * len(lengths)
    waiting = sorted(range(len(lengths)), key=lambda table: lengths[table])
    for done, table in enumerate(waiting):
        fair = math.ceil(room / (len(lengths) - done))
        granted[table] = max(0, min(lengths[table], fair))
        room -= granted[table]
    return granted
