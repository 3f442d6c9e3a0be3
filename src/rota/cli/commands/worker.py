"""`rota worker`: starts a worker for an app.

A worker that has run `--max-tasks` leaves, and its process replaces itself by `exec`, under the
same process id: what its handlers leaked is gone. Signals that arrive in between stay pending.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click
import structlog
from msgspec import Struct

from rota import telemetry
from rota.cli.apps import app_argument, chosen_app
from rota.cli.commands.worker_options import (
    PoolSettings,
    pool_options,
    take_pool_settings,
    worker_options,
    worker_settings,
)
from rota.cli.connection import ca_option, token_option
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.process import STOPPING
from rota.cli.render.output import ExitCode, Refusal, show
from rota.cli.supervisor.children import ChildProcesses, run_processes, stop_with_parent
from rota.cli.supervisor.pool import Pool
from rota.cli.supervisor.supervisor import DemandProbe, Served, supervise
from rota.sdk.app.app import Rota
from rota.sdk.client.client import DEFAULT_URL, Client
from rota.sdk.worker.stopping import StopReason
from rota.sdk.worker.worker import Worker
from rota.tls import CA_VARIABLE

log = structlog.get_logger("rota.worker")

# New objects until the garbage collector looks at them; such rounds until it looks once more at
# those that are left; and those rounds until it looks at everything. Most objects of a task are
# freed without it. It looks at everything as often as usual: functions that have suspended are
# freed by it alone.
COLLECTED_AFTER = (5_000, 2, 4)
USUAL_THRESHOLD = gc.get_threshold()  # before the modules of the app are imported


class Introduction(Struct):
    """What is printed once a worker is registered."""

    worker_id: str
    url: str
    tasks: list[str]

    def __str__(self) -> str:
        return f"worker {self.worker_id} at {self.url} runs: {', '.join(self.tasks)}"


class LoggingWorker(Worker):
    """A worker that logs when it is asked to stop."""

    is_stopping = False

    def stop(self) -> None:
        if self.is_stopping:
            log.info("worker_aborting", hint="running tasks are returned to their queues")
        else:
            hint = "running tasks finish first; a second Ctrl-C returns them to their queues"
            log.info("worker_stopping", hint=hint)
        self.is_stopping = True
        super().stop()


@click.command()
@app_argument
@click.option(
    "--url",
    help="Where the coordinator is.  [env var: ROTA_URL; default: the app's own, or "
    f"{DEFAULT_URL}]",
)
@token_option
@ca_option
@worker_options
@click.option(
    "--max-tasks",
    type=click.IntRange(min=1),
    envvar="ROTA_MAX_TASKS",
    show_envvar=True,
    help="Restart the process after this many tasks.  [default: never]",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    envvar="ROTA_PROCESSES",
    show_envvar=True,
    help="Start this many workers, one process each; they end together.",
)
@pool_options
@settings_flags("log_level", "log_format")
@json_flag
def worker(
    *,
    app: str | None,
    app_option: str | None,
    url: str | None,
    token: str | None,
    ca: str | None,
    max_tasks: int | None,
    processes: int,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Start a worker for the tasks of an app.

    It runs until Ctrl-C or SIGTERM, which let running tasks finish within --drain-timeout-ms; a
    second signal returns them to their queues at once. Either way the exit code is 0.

    With --max it runs a pool of worker processes instead, as many as the waiting tasks need.
    """
    settings = load_settings({"log_level": log_level, "log_format": log_format})
    telemetry.set_up(level=settings.log_level, log_format=settings.log_format)
    pool = take_pool_settings(options)
    if processes > 1 and pool is not None:
        raise click.UsageError(
            "--processes starts a fixed number of workers, --max a pool; give one of them"
        )
    if processes > 1:
        raise SystemExit(run_processes(processes, worker_id=options["worker_id"]))

    _export_address(url, token, ca)
    chosen = chosen_app(app, app_option)
    if url is not None:
        chosen.use(Client.connect(url, token, verify=ca or True))
    worker = LoggingWorker(
        chosen,
        max_tasks=max_tasks,
        on_registered=introducer(chosen, as_json=as_json),
        **worker_settings(options),
    )
    if pool is None:
        _work(chosen, worker)
    else:
        # The worker made here only proves that the options of the pool's workers are right.
        raise SystemExit(_run_pool(chosen, pool, options, as_json=as_json))


def _export_address(url: str | None, token: str | None, ca: str | None) -> None:
    """Name the coordinator in the environment, for connections that the app opens itself."""
    os.environ["ROTA_URL"] = url or os.environ.get("ROTA_URL") or DEFAULT_URL
    if token is not None:
        os.environ["ROTA_TOKEN"] = token
    if ca is not None:
        os.environ[CA_VARIABLE] = ca


def _work(app: Rota, worker: LoggingWorker) -> None:
    for number in STOPPING:
        signal.signal(number, lambda _number, _frame: worker.stop())
    # The process before the `exec` blocked these; a stop asked for meanwhile arrives now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    stop_with_parent(worker.stop)
    if gc.get_threshold() == USUAL_THRESHOLD:  # the app has not set its own
        gc.set_threshold(*COLLECTED_AFTER)
    reason = worker.run()
    if reason is StopReason.RECYCLED and not worker.is_stopping:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        app.close()
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
    app.close()
    if reason is StopReason.REPLACED:
        raise Refusal(
            "another worker process uses this id; give each its own --worker-id",
            code="worker_replaced",
            exit_code=ExitCode.FAILED,
        )


def _run_pool(app: Rota, pool: PoolSettings, options: dict[str, Any], *, as_json: bool) -> int:
    if app.client.transport.is_embedded:
        app.close()
        raise Refusal(
            "the app embeds its coordinator, which only one process can use: start one with "
            "`rota up`, and give its --url",
            code="pool_embedded",
        )
    served = Served(
        queues=options["queues"],
        tasks=options["tasks"] or sorted(app.tasks),
        capabilities=options["capabilities"] or (),
        concurrency=options["concurrency"],
    )
    try:
        return asyncio.run(
            supervise(
                Pool(
                    pool.policy,
                    ChildProcesses("--max", "0", worker_id=options["worker_id"]),
                    lambda change: show(change, as_json=as_json, render=str),
                ),
                DemandProbe(app.client, served, target_ms=pool.target_ms),
                interval_ms=pool.interval_ms,
            )
        )
    finally:
        app.close()


def introducer(app: Rota, *, as_json: bool) -> Callable[[str], None]:
    """Make a callback that prints a worker's first registration; later ones are only logged."""
    printed: list[str] = []

    def introduce(worker_id: str) -> None:
        if not printed:
            printed.append(worker_id)
            address = app.client.transport.address
            introduction = Introduction(worker_id, address, sorted(app.tasks))
            show(introduction, as_json=as_json, render=str)

    return introduce
