"""The overview of a coordinator: counts, queues, workers, what is stuck, what needs an answer."""

import math
from collections.abc import Sequence

from msgspec import Struct

from rota.cli.render.formatting import duration, relative
from rota.messages import (
    BacklogView,
    Overview,
    QueueView,
    RunActivity,
    RunView,
    WaitView,
    WorkerView,
)
from rota.sdk.client import calls, run_calls
from rota.sdk.client.client import Client

MAX_WORKERS = 500  # listed; more workers are only counted
MAX_WAITS = 50  # listed, approvals first; more are only counted
MAX_RUNS = 30  # open runs listed, the newest
HEADINGS = {
    "queues": ("queue", "queued", "running", "later", "oldest", "in/s", "done/s", "failed/s"),
    "workers": ("worker", "health", "state", "tasks", "p50", "p95", "done", "failed", "heard"),
    "waiting": ("stuck", "queue", "task", "queued", "oldest", "why"),
    "waits": ("needs you", "kind", "workflow", "run", "since", "due"),
    "runs": ("run", "workflow", "state", "since", "waiting for"),
}


class TopView(Struct, frozen=True, kw_only=True):
    """The state of a coordinator; `rota top --json` prints it."""

    overview: Overview
    queues: list[QueueView]
    workers: list[WorkerView]
    backlog: list[BacklogView]
    waits: list[WaitView] = []  # the first of what open runs need an answer for
    runs: list[RunView] = []  # the newest that are open
    activity: list[RunActivity] = []  # of these


def load_top_view(client: Client) -> TopView:
    overview = client.run(calls.get_overview())
    waits: list[WaitView] = []
    runs: list[RunView] = []
    activity: list[RunActivity] = []
    # A token that is bound to queues sees no runs, and has no counts of them.
    if overview.waits:
        waits = client.run(run_calls.list_waits(limit=MAX_WAITS)).items
    if overview.runs.get("running"):
        runs = client.run(run_calls.list_runs(state="running", limit=MAX_RUNS)).items
        activity = client.run(run_calls.get_activity([run.id for run in runs])).items
    return TopView(
        overview=overview,
        queues=client.run(calls.list_queues()).items,
        workers=client.run(calls.list_workers(limit=MAX_WORKERS)).items,
        backlog=client.run(calls.get_backlog()).items,
        waits=waits,
        runs=runs,
        activity=activity,
    )


# --- as lines -----------------------------------------------------------------------------------


def summary(view: TopView) -> list[tuple[str, str]]:
    """The counts by noun, without those that are zero."""
    overview, shards = view.overview, view.overview.shards
    owned = f"{shards.owned:,} of {shards.shards:,} owned" if shards.shards else ""
    lines = [
        ("tasks", _counts(overview.tasks)),
        ("failed", _unacknowledged(overview)),
        ("runs", _counts(overview.runs)),
        ("needs you", _waits(overview.waits)),
        ("workers", _counts(overview.workers)),
        ("shards", owned + (f", {shards.moving:,} moving" if shards.moving else "")),
        ("paused", ", ".join(overview.paused_queues)),
        ("leader", _leader(overview)),
    ]
    return [(noun, text) for noun, text in lines if text]


def _unacknowledged(overview: Overview) -> str:
    """How many failed tasks nobody has acknowledged, if some are acknowledged."""
    failed, count = overview.tasks.get("failed", 0), overview.unacknowledged
    return f"{count:,} of {failed:,} not acknowledged" if failed and count < failed else ""


def _waits(counts: dict[str, int]) -> str:
    """What open runs wait for, in the plural."""
    names = {"approval": ("approval", "approvals"), "signal": ("signal", "signals")}
    found = [(count, *names[kind]) for kind, count in counts.items() if count and kind in names]
    return ", ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in found)


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


def wait_rows(view: TopView) -> list[tuple[str, ...]]:
    """What open runs need an answer for: approvals first, the oldest of each kind first."""
    now_ms = view.overview.now_ms
    return [
        (
            wait.title,
            wait.kind,
            _within(wait.workflow, wait.parent_workflow),
            wait.run_id,
            relative(wait.since_ms, now_ms=now_ms),
            relative(wait.due_at_ms, now_ms=now_ms),
        )
        for wait in view.waits
    ]


def run_rows(view: TopView) -> list[tuple[str, ...]]:
    """The newest open runs, with what they wait for."""
    now_ms = view.overview.now_ms
    texts = {one.run_id: one.text for one in view.activity}
    return [
        (
            run.id,
            _within(run.workflow, run.parent_workflow),
            run.state.value,
            relative(run.created_at_ms, now_ms=now_ms),
            texts.get(run.id) or "",
        )
        for run in view.runs
    ]


def _within(workflow: str, parent: str | None) -> str:
    """The workflow of a run, with that of the run that started it."""
    return workflow if parent is None else f"{workflow} in {parent}"


def tables(view: TopView) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each table, without empty tables; the most urgent first."""
    found = {
        "waits": wait_rows(view),
        "waiting": waiting_rows(view),
        "queues": queue_rows(view),
        "workers": worker_rows(view),
        "runs": run_rows(view),
    }
    return {name: rows for name, rows in found.items() if rows}


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """How many rows each table gets: short ones all, the others an equal part of the rest."""
    granted = [0] * len(lengths)
    waiting = sorted(range(len(lengths)), key=lambda table: lengths[table])
    for done, table in enumerate(waiting):
        fair = math.ceil(room / (len(lengths) - done))
        granted[table] = max(0, min(lengths[table], fair))
        room -= granted[table]
    return granted
