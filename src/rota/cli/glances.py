"""What does one see of a coordinator at a glance? Its counts, queues, workers and what is stuck."""

import math
from collections.abc import Sequence

from msgspec import Struct

from rota.cli.times import duration
from rota.messages import BacklogView, Overview, QueueView, WorkerView
from rota.sdk import board_calls, calls
from rota.sdk.client import Client

MOST_WORKERS = 500  # asked for; a larger fleet is counted, not listed
HEADINGS = {
    "queues": ("queue", "queued", "running", "later", "oldest", "in/s", "done/s", "failed/s"),
    "workers": ("worker", "health", "state", "tasks", "p50", "p95", "done", "failed", "heard"),
    "waiting": ("stuck", "queue", "task", "queued", "oldest", "why"),
}


class Glance(Struct, frozen=True, kw_only=True):
    """A coordinator as it stands; also what `rota top --json` prints."""

    overview: Overview
    queues: list[QueueView]
    workers: list[WorkerView]
    backlog: list[BacklogView]


def glance(client: Client) -> Glance:
    return Glance(
        overview=client.run(board_calls.get_overview()),
        queues=client.run(calls.list_queues()).items,
        workers=client.run(calls.list_workers(limit=MOST_WORKERS)).items,
        backlog=client.run(board_calls.get_backlog()).items,
    )


# --- as lines -----------------------------------------------------------------------------------


def summary(seen: Glance) -> list[tuple[str, str]]:
    """The counts, by noun; what there is none of is left out."""
    overview, shards = seen.overview, seen.overview.shards
    owned = f"{shards.owned:,} of {shards.shards:,} owned" if shards.shards else ""
    lines = [
        ("tasks", _counts(overview.tasks)),
        ("runs", _counts(overview.runs)),
        ("workers", _counts(overview.workers)),
        ("shards", owned + (f", {shards.moving:,} moving" if shards.moving else "")),
        ("paused", ", ".join(overview.paused_queues)),
    ]
    return [(noun, text) for noun, text in lines if text]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def queue_rows(seen: Glance) -> list[tuple[str, ...]]:
    """The queues, those first in which most waits."""
    ordered = sorted(seen.queues, key=lambda queue: (-queue.depth, -queue.running, queue.name))
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


def worker_rows(seen: Glance) -> list[tuple[str, ...]]:
    """The workers, those first that somebody should look at, then the busiest."""
    healths = ("unhealthy", "degraded", "healthy")
    ordered = sorted(
        seen.workers,
        key=lambda one: (healths.index(one.health), -one.current_tasks, one.id),
    )
    return [_worker(one, now_ms=seen.overview.now_ms) for one in ordered]


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


def waiting_rows(seen: Glance) -> list[tuple[str, ...]]:
    """What waits and why; as it comes, what is stuck stands first."""
    return [
        (
            "stuck" if one.why.is_stuck else "",
            one.queue,
            one.name,
            f"{one.queued:,}",
            duration(one.oldest_age_ms),
            one.why.text,
        )
        for one in seen.backlog
        if one.queued
    ]


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """How many rows of each table fit: the short ones whole, the others the rest in equal parts."""
    granted = [0] * len(lengths)
    waiting = sorted(range(len(lengths)), key=lambda table: lengths[table])
    for done, table in enumerate(waiting):
        fair = math.ceil(room / (len(lengths) - done))
        granted[table] = max(0, min(lengths[table], fair))
        room -= granted[table]
    return granted
