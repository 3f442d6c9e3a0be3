"""`rota workers`: list, show and steer workers."""

from collections.abc import Callable
from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.options import page_options
from rota.cli.render.formatting import absolute, duration, relative
from rota.cli.render.output import Facts, Table, show, show_page, table
from rota.core.workers.model import Health
from rota.messages import WorkerPage, WorkerView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall


@click.group(cls=CommandGroup)
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
@click.option("--min-available", type=int, help="Only workers with this many free slots.")
@click.option("--rank", is_flag=True, help="Sort by score, best first, and show its parts.")
@page_options
@connected
def ls(client: Client, *, rank: bool, as_json: bool, **selection: Any) -> None:
    """List the workers."""
    page = client.run(calls.list_workers(rank=rank, **selection))
    show_page(page, as_json=as_json, render=_ranking if rank else _table)


@workers.command("show")
@click.argument("worker_id")
@connected
def show_one(client: Client, worker_id: str, *, as_json: bool) -> None:
    """Show one worker: its capabilities, its health and its statistics."""
    show(client.run(calls.get_worker(worker_id)), as_json=as_json, render=_facts)


def _add_verb(name: str, call: Callable[[str], ApiCall[WorkerView]], description: str) -> None:
    @workers.command(name, help=description)
    @click.argument("worker_id")
    @connected
    def verb(client: Client, worker_id: str, *, as_json: bool) -> None:
        show(client.run(call(worker_id)), as_json=as_json, render=_line)


_add_verb("drain", calls.drain_worker, "Let a worker finish its tasks, and give it no more.")
_add_verb("resume", calls.resume_worker, "Give a drained or quarantined worker tasks again.")
_add_verb(
    "quarantine",
    calls.quarantine_worker,
    "Give a worker no more tasks, and keep it under observation.",
)


@workers.command()
@click.argument("worker_id")
@connected
def remove(client: Client, worker_id: str, *, as_json: bool) -> None:
    """Remove a worker; its tasks go back to their queues at once."""
    client.run(calls.leave_worker(worker_id))
    show(
        {"id": worker_id, "removed": True}, as_json=as_json, render=lambda _: f"removed {worker_id}"
    )


def _line(worker: WorkerView) -> str:
    return f"worker {worker.id} is {worker.state.value}"


def _table(page: WorkerPage) -> Table:
    columns: dict[str, Callable[[WorkerView], object]] = {
        "worker": lambda worker: worker.id,
        "health": lambda worker: worker.health.value,
        "state": lambda worker: worker.state.value,
        "tasks": lambda worker: f"{worker.current_tasks}/{worker.max_concurrent_tasks}",
        "done": lambda worker: worker.metrics.tasks_completed,
        "failed": lambda worker: worker.metrics.tasks_failed,
        "p95": lambda worker: duration(worker.metrics.p95_ms),
        "last beat": lambda worker: relative(worker.last_heartbeat_ms),
        "can": lambda worker: ", ".join(worker.capabilities) or "-",
    }
    return table(page.items, columns, empty="no workers; start one with: rota worker MODULE:APP")


def _ranking(page: WorkerPage) -> Table:
    columns: dict[str, Callable[[WorkerView], object]] = {
        "worker": lambda worker: worker.id,
        "health": lambda worker: worker.health.value,
        "priority": lambda worker: _number(worker.priority),
        "free": lambda worker: worker.available_capacity,
        "success": lambda worker: _number(worker.success_rate),
        "capacity": lambda worker: _score(worker, "capacity"),
        "speed": lambda worker: _score(worker, "speed"),
        "slow start": lambda worker: _score(worker, "slow_start"),
    }
    return table(page.items, columns, empty="no workers")


def _score(worker: WorkerView, part: str) -> str:
    return _number(None if worker.score is None else getattr(worker.score, part))


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
            *((f"breaker of {breaker.task}", breaker.state) for breaker in worker.breakers),
        ]
    )
