"""Which commands are there? `cli` is the click group that help, tests and the reference walk."""

import click

import rota
from rota.cli.lazy import LazyCommand, RotaGroup

COMMANDS: dict[str, LazyCommand] = {
    "up": LazyCommand("rota.cli.up", "up", "Start a coordinator."),
    "worker": LazyCommand("rota.cli.worker", "worker", "Start a worker for the tasks of an app."),
    "dev": LazyCommand("rota.cli.dev", "dev", "Start a coordinator and a worker in one process."),
    "submit": LazyCommand("rota.cli.submit", "submit", "Submit a task, or a file of tasks."),
    "run": LazyCommand("rota.cli.run", "run", "Run a workflow."),
    "validate": LazyCommand(
        "rota.cli.validate",
        "validate",
        "Find everything that is wrong with a workflow's definition.",
    ),
    "replay": LazyCommand(
        "rota.cli.replay", "replay", "Decide a run's journal again, and compare."
    ),
    "tasks": LazyCommand("rota.cli.tasks", "tasks", "List, show, cancel and retry tasks."),
    "queues": LazyCommand("rota.cli.queues", "queues", "List, pause and resume queues."),
    "runs": LazyCommand("rota.cli.runs", "runs", "List, show and steer runs of workflows."),
    "workflows": LazyCommand("rota.cli.workflows", "workflows", "List, show and put workflows."),
    "workers": LazyCommand("rota.cli.workers", "workers", "List, show and steer workers."),
    "services": LazyCommand(
        "rota.cli.services", "services", "List, show and steer services and their shards."
    ),
    "memory": LazyCommand("rota.cli.memory", "memory", "List, get, put and delete values."),
    "locks": LazyCommand("rota.cli.locks", "locks", "List, show and release locks."),
    "events": LazyCommand(
        "rota.cli.events", "events", "List the newest events, or follow what happens."
    ),
    "top": LazyCommand("rota.cli.top", "top", "Show what is going on, live."),
    "token": LazyCommand("rota.cli.tokens", "token", "Create, list and revoke access tokens."),
    "migrate": LazyCommand("rota.cli.migrate", "migrate", "Bring the store's schema up to date."),
    "copy": LazyCommand(
        "rota.cli.copy", "copy", "Copy everything in a store to another one, and compare both."
    ),
    "health": LazyCommand("rota.cli.health", "health", "Probe a coordinator's health."),
    "doctor": LazyCommand("rota.cli.doctor", "doctor", "Check this machine and a coordinator."),
}


def _print_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    if asked:
        click.echo(f"rota {rota.__version__}")
        context.exit()


@click.group(
    cls=RotaGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and end.",
)
def cli() -> None:
    """Rota: a durable work coordinator for Python."""


def main() -> None:
    cli(prog_name="rota")


if __name__ == "__main__":
    main()
