"""The command group and its table of commands.

A command's module, with everything it needs (the store, the server, the SDK), is imported when the
command is used, so that `rota --help` is fast.
"""

import signal
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

import rota
from rota.cli.render.output import ExitCode, Refusal, refusal_of, refusal_of_usage
from rota.errors import RotaError


class LazyCommand(NamedTuple):
    module: str  # in `rota.cli.commands`; its function has the name of the command
    summary: str


COMMANDS: dict[str, LazyCommand] = {
    "up": LazyCommand("up", "Start a coordinator."),
    "worker": LazyCommand("worker", "Start a worker for the tasks of an app."),
    "dev": LazyCommand("dev", "Start a coordinator and a worker in one process."),
    "submit": LazyCommand("tasks.submit", "Submit a task, or a file of tasks."),
    "run": LazyCommand("workflow.run", "Run a workflow."),
    "validate": LazyCommand("workflow.validate", "Find every problem of a workflow definition."),
    "replay": LazyCommand("workflow.replay", "Replay a run's journal, and compare the decisions."),
    "tasks": LazyCommand(
        "tasks.tasks", "List, show, cancel, retry and acknowledge tasks, and read their logs."
    ),
    "queues": LazyCommand("queues", "List, pause and resume queues, and change their settings."),
    "limits": LazyCommand("tasks.limits", "List, show, set, pin and unpin limits of keys."),
    "runs": LazyCommand("workflow.runs", "List, show and steer runs of workflows."),
    "workflows": LazyCommand("workflow.workflows", "List, show and put workflows."),
    "schedules": LazyCommand("schedules", "List, show, put, fire, pause and delete schedules."),
    "workers": LazyCommand("workers", "List, show and steer workers."),
    "services": LazyCommand("services.services", "List, show and steer services and their shards."),
    "memory": LazyCommand("kv", "List, get, put and delete values."),
    "locks": LazyCommand("locks", "List, show and release locks."),
    "events": LazyCommand("events", "List the newest events, or follow new ones."),
    "webhooks": LazyCommand("notifications.webhooks", "List, show, put, test and delete webhooks."),
    "top": LazyCommand("top", "Show tasks, queues, workers and runs, live."),
    "token": LazyCommand("tokens", "Create, list and revoke access tokens."),
    "migrate": LazyCommand("store", "Bring the store's schema up to date."),
    "backup": LazyCommand(
        "store", "Back up the store to FILE, while the coordinator runs, and check the copy."
    ),
    "copy": LazyCommand("store", "Copy a store to another one, and compare both."),
    "mcp": LazyCommand(
        "monitoring.mcp", "Serve assistants over MCP, on standard input and output."
    ),
    "health": LazyCommand("monitoring.health", "Probe a coordinator's health."),
    "doctor": LazyCommand("monitoring.health", "Check this machine and a coordinator."),
}


class RotaGroup(click.Group):
    """The top of the command line: imports commands on use, and prints errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(f"rota.cli.commands.{entry.module}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run a command line; every failure ends as one line on stderr and an exit code."""
        try:
            answer = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            raise SystemExit(ExitCode.INTERRUPTED) from None
        except RotaError as error:
            refusal = refusal_of(error)
        except Refusal as error:
            refusal = error
        except click.exceptions.NoArgsIsHelpError as error:  # a group without a command: its help
            error.show()
            raise SystemExit(error.exit_code) from None
        except click.ClickException as error:
            refusal = refusal_of_usage(error)
        else:
            if not standalone_mode:
                return answer
            # click returns the argument of `Context.exit`; commands themselves return nothing.
            raise SystemExit(answer if isinstance(answer, int) else ExitCode.OK)
        refusal.show()
        raise SystemExit(refusal.exits_with)


@click.group(
    cls=RotaGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    no_args_is_help=True,
)
@click.option("--version", "asks_version", is_flag=True, help="Print the version and exit.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="With --version: print the versions of Rota and its dependencies, as JSON.",
)
@click.pass_context
def cli(context: click.Context, *, asks_version: bool, as_json: bool) -> None:
    """Rota: a durable work coordinator for Python."""
    if asks_version:
        _print_version(as_json=as_json)
        context.exit()
    if as_json:
        raise click.UsageError("--json goes with --version, or behind a command", context)


def _print_version(*, as_json: bool) -> None:
    if not as_json:
        click.echo(f"rota {rota.__version__}")
        return
    import json  # noqa: PLC0415 - the list of commands starts quickly

    from rota.cli.versions import versions  # noqa: PLC0415 - imports apsw and ZeroMQ

    click.echo(json.dumps(versions(), indent=2))


def main() -> None:
    # A shell starts background jobs with SIGINT ignored, and Python then leaves it so: a command
    # that watches or waits could not be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli(prog_name="rota")


if __name__ == "__main__":
    main()
