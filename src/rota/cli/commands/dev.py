"""`rota dev`: a coordinator and a worker in one process, to try an app out.

The worker runs on a thread with its own event loop: a handler that blocks the loop does not keep
the coordinator from answering. A stop drains the worker first, then the coordinator ends.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from rota import telemetry
from rota.cli import process
from rota.cli.apps import app_argument, chosen_app
from rota.cli.commands.up import announce
from rota.cli.commands.worker import introducer
from rota.cli.commands.worker_options import worker_options, worker_settings
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.reloading import FileWatcher, start_again
from rota.cli.render.output import Refusal, note, refusal_of
from rota.errors import RotaError
from rota.node import Node
from rota.sdk.app.app import Rota
from rota.sdk.client.client import Client
from rota.sdk.worker.worker import Worker
from rota.settings import Settings, field_names
from rota.tls import CA_VARIABLE


@click.command()
@app_argument
@worker_options
@settings_flags()
@json_flag
@click.option("--reload", "is_reloading", is_flag=True, help="Start again when a file changes.")
def dev(
    *, app: str | None, app_option: str | None, as_json: bool, is_reloading: bool, **options: Any
) -> None:
    """Start a coordinator and a worker in one process.

    For development: it takes the options of `rota up` and of `rota worker`. With --reload it drains
    and starts again when a Python file below the current folder has changed; an app that cannot be
    loaded is tried again after the next change.
    """
    flags = {name: options.pop(name) for name in field_names()}
    settings = load_settings(flags)
    telemetry.set_up(level=settings.log_level, log_format=settings.log_format)
    watcher = FileWatcher(Path.cwd()) if is_reloading else None
    try:
        chosen = chosen_app(app, app_option)
        worker = Worker(
            chosen,
            on_registered=introducer(chosen, as_json=as_json),
            **worker_settings(options),
        )
    except (Refusal, RotaError) as error:
        if watcher is None:
            raise
        # The app is being written: the next change may mend it.
        (error if isinstance(error, Refusal) else refusal_of(error)).show()
        process.run(_wait_for_change(watcher))
    else:
        process.run(_serve(settings, chosen, worker, watcher, as_json=as_json))
    if watcher is not None and watcher.has_changed:
        start_again()


async def _wait_for_change(watcher: FileWatcher) -> None:
    """Wait until a file has changed, or the process is asked to stop."""
    asked_to_stop = asyncio.Event()
    process.stop_on_signals(asked_to_stop.set)
    note("waiting for a change")
    either = [asyncio.create_task(watcher.wait()), asyncio.create_task(asked_to_stop.wait())]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    for one in either:
        one.cancel()


async def _serve(
    settings: Settings, app: Rota, worker: Worker, watcher: FileWatcher | None, *, as_json: bool
) -> None:
    node = Node(settings)
    watching = asyncio.create_task(_stop_on_change(watcher, worker))
    process.stop_on_signals(worker.stop)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(node.serve(ready.set_result))
    serving.add_done_callback(lambda _: worker.stop())
    try:
        either: list[asyncio.Future[Any]] = [ready, serving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            url = ready.result()
            announce(url, node, as_json=as_json)
            os.environ["ROTA_URL"] = url
            if settings.tls_cert is not None:  # the app trusts its own coordinator
                os.environ.setdefault(CA_VARIABLE, settings.tls_cert)
            app.use(Client.connect(url))
            await asyncio.to_thread(process.run, worker.arun())
            app.close()
    finally:
        watching.cancel()
        node.ask_to_stop()
        await serving


async def _stop_on_change(watcher: FileWatcher | None, worker: Worker) -> None:
    if watcher is not None:
        for path in await watcher.wait():
            note(f"{path} has changed")
        worker.stop()
