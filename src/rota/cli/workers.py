"""Who works? List and show workers, and steer what each is given."""

from collections.abc import Callable
from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.options import json_flag, page_options
from rota.cli.output import Facts, Table, note_more, show
from rota.cli.times import absolute, duration, relative
from rota.core.workers import Health
from rota.messages import WorkerPage, WorkerView
from rota.sdk import calls
from rota.sdk.calls import Call
from rota.sdk.client import Client


@click.group()
def workers() -> None:
    """List, show and steer workers."""


@workers.command("ls")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    help="Only workers that have this capability; repeat for all of several.",
)
@click.option(
    "--health",
    multiple=True,
    type=click.Choice([health.value for health in Health]),
    help="Only workers of this health; repeat for any of several.",
)
@click.option("--group", help="Only workers of this group.")
@click.option("--min-available", type=int, help="Only workers with this many free places.")
@click.option("--rank", is_flag=True, help="Best first, with the score and its parts.")
@page_options
@connected
@json_flag
def ls(client: Client, *, rank: bool, as_json: bool, **selection: Any) -> None:
    """List the workers."""
    page = client.run(calls.list_workers(rank=rank, **selection))
    show(page, as_json=as_json, render=_ranking if rank else _table)
    if not as_json:
        note_more(page.next_cursor)


@workers.command("show")
@click.argument("worker_id")
@connected
@json_flag
def show_one(client: Client, worker_id: str, *, as_json: bool) -> None:
    """Show one worker: what it can do, how it is, how well it works."""
    show(client.run(calls.get_worker(worker_id)), as_json=as_json, render=_facts)


def _add_verb(name: str, call: Callable[[str], Call[WorkerView]], description: str) -> None:
    @workers.command(name, help=description)
    @click.argument("worker_id")
    @connected
    @json_flag
    def verb(client: Client, worker_id: str, *, as_json: bool) -> None:
        show(client.run(call(worker_id)), as_json=as_json, render=_line)


_add_verb("drain", calls.drain_worker, "Let a worker finish what it holds, and give it no more.")
_add_verb("resume", calls.resume_worker, "Give a drained or quarantined worker tasks again.")
_add_verb("quarantine", calls.quarantine_worker, "Give a worker no more tasks, and watch it.")


@workers.command()
@click.argument("worker_id")
@connected
@json_flag
def remove(client: Client, worker_id: str, *, as_json: bool) -> None:
    """Take a worker off the list; what it holds goes back to its queue at once."""
    client.run(calls.leave_worker(worker_id))
    show(
        {"id": worker_id, "removed": True}, as_json=as_json, render=lambda _: f"removed {worker_id}"
    )


def _line(worker: WorkerView) -> str:
    return f"worker {worker.id} is {worker.state.value}"


def _table(page: WorkerPage) -> Table:
    return Table(
        ("worker", "health", "state", "tasks", "done", "failed", "p95", "last beat", "can"),
        [
            (
                worker.id,
                worker.health.value,
                worker.state.value,
                f"{worker.current_tasks}/{worker.max_concurrent_tasks}",
                worker.metrics.tasks_completed,
                worker.metrics.tasks_failed,
                duration(worker.metrics.p95_ms),
                relative(worker.last_heartbeat_ms),
                ", ".join(worker.capabilities) or "-",
            )
            for worker in page.items
        ],
        empty="no workers; start one with: rota worker MODULE:APP",
    )


def _ranking(page: WorkerPage) -> Table:
    return Table(
        ("worker", "health", "priority", "free", "success", "capacity", "speed", "slow start"),
        [
            (
                worker.id,
                worker.health.value,
                _number(worker.priority),
                worker.available_capacity,
                _number(worker.success_rate),
                *(
                    (
                        _number(worker.score.capacity),
                        _number(worker.score.speed),
                        _number(worker.score.slow_start),
                    )
                    if worker.score
                    else ("-", "-", "-")
                ),
            )
            for worker in page.items
        ],
        empty="no workers",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _facts(worker: WorkerView) -> Facts:
    metrics = worker.metrics
    return Facts(
        [
            ("id", worker.id),
            ("node", worker.node_id),
            ("health", worker.health.value),
            ("state", worker.state.value),
            ("incarnation", worker.incarnation),
            ("running", f"{worker.current_tasks} of {worker.max_concurrent_tasks}"),
            ("capabilities", ", ".join(worker.capabilities) or "none"),
            ("tasks", "any" if worker.tasks is None else ", ".join(worker.tasks)),
            ("queues", "all" if worker.queues is None else ", ".join(worker.queues)),
            ("group", worker.group),
            ("started", absolute(worker.started_at_ms)),
            ("last beat", absolute(worker.last_heartbeat_ms)),
            ("beats every", duration(worker.heartbeat_interval_ms)),
            ("lease", duration(worker.lease_ms)),
            ("completed", metrics.tasks_completed),
            ("failed", metrics.tasks_failed),
            ("average", duration(metrics.average_task_duration_ms)),
            (
                "p50 / p95 / p99",
                " / ".join(map(duration, (metrics.p50_ms, metrics.p95_ms, metrics.p99_ms))),
            ),
            *((f"kept from {breaker.task}", breaker.state) for breaker in worker.breakers),
        ]
    )
