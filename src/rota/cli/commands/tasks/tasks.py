"""`rota tasks`: list, show, cancel, retry and acknowledge tasks, and read their logs."""

import textwrap
from collections.abc import Callable
from typing import Any

import click
import msgspec

from rota.cli.commands.tasks.logs import logs
from rota.cli.connection import change_each, connected
from rota.cli.groups import CommandGroup
from rota.cli.options import page_options, yes_flag
from rota.cli.render.formatting import absolute, relative
from rota.cli.render.output import (
    Facts,
    Table,
    confirm,
    json_text,
    show,
    show_page,
    table,
    visible,
)
from rota.core.tasks.model import FINISHED, TaskError
from rota.messages import (
    AcknowledgedSelection,
    TaskCount,
    TaskPage,
    TaskSelection,
    TaskState,
    TaskView,
)
from rota.messages.dashboard import AttemptView, WhyView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall
from rota.sdk.handles import traceback_of


@click.group(cls=CommandGroup)
def tasks() -> None:
    """List, show, cancel, retry and acknowledge tasks, and read their logs."""


tasks.add_command(logs)


def task_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select tasks."""
    states = click.Choice([state.value for state in TaskState])
    function = click.option("--label", help="Only tasks with this label (KEY=VALUE or a word).")(
        function
    )
    function = click.option("--name", help="Only tasks of this name.")(function)
    function = click.option("--queue", help="Only tasks of this queue.")(function)
    return click.option("--state", type=states, help="Only tasks in this state.")(function)


@tasks.command("ls")
@task_filters
@click.option(
    "--acknowledged/--unacknowledged",
    default=None,
    help="Only failed tasks that are acknowledged, or that are not.",
)
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List tasks, newest first."""
    page = client.run(calls.list_tasks(**selection))
    show_page(page, as_json=as_json, render=_table)


@tasks.command("show")
@click.argument("task_id")
@connected
def show_one(client: Client, task_id: str, *, as_json: bool) -> None:
    """Show everything that is known about one task: why it waits, and each attempt's traceback."""
    task = client.run(calls.get_task(task_id))
    timeline = client.run(calls.get_timeline(task_id))
    fields = {name: getattr(task, name) for name in task.__struct_fields__}
    details = TaskDetails(**fields, why=timeline.why, attempts=timeline.attempts)
    show(details, as_json=as_json, render=_facts)
    if not as_json:
        _show_attempts(details)


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of a command that changes tasks, by id or by filter."""
    dry_run = click.option(
        "--dry-run", is_flag=True, help="Only print how many tasks match; change nothing."
    )
    return click.argument("task_ids", nargs=-1)(task_filters(dry_run(yes_flag(function))))


def _add_verb(
    verb: str,
    one: Callable[[str], ApiCall[TaskView]],
    many: Callable[[TaskSelection], ApiCall[TaskCount]],
    description: str,
) -> None:
    """Add a command that changes tasks by id one by one, or by filter all at once."""

    @tasks.command(verb, help=description)
    @change_options
    @connected
    def change(client: Client, task_ids: tuple[str, ...], **asked: Any) -> None:
        change_tasks(client, verb, task_ids, one=one, many=many, **asked)


def change_tasks(
    client: Client,
    verb: str,
    task_ids: tuple[str, ...],
    *,
    one: Callable[[str], ApiCall[TaskView]],
    many: Callable[[TaskSelection], ApiCall[TaskCount]],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: str | None,
) -> None:
    """Change tasks by id one by one, or by filter all at once, after a question."""
    given = {name: value for name, value in filters.items() if value is not None}
    if bool(task_ids) == bool(given):
        raise click.UsageError(f"name the tasks to {verb}: give either ids or a filter")
    if task_ids and not dry_run:
        change_each(
            client,
            map(one, task_ids),
            page=lambda items: TaskPage(items=items),
            render=_table,
            as_json=as_json,
        )
        return

    picked = {"ids": list(task_ids)} if task_ids else given
    selection = msgspec.convert(picked, TaskSelection)
    count = client.run(many(msgspec.structs.replace(selection, dry_run=True)))
    if not dry_run:
        if count.count and not yes:
            chosen = ", ".join(f"{name} {value}" for name, value in given.items())
            confirm(f"{verb} {count.count} tasks ({chosen})?")
        count = client.run(many(selection))
    show(count, as_json=as_json, render=lambda count: _count_line(count, verb))


_add_verb(
    "cancel",
    calls.cancel_task,
    calls.cancel_tasks,
    "Cancel tasks by id or by filter; the worker of a running task is told to stop.",
)
_add_verb(
    "retry",
    calls.retry_task,
    calls.retry_tasks,
    "Queue failed or cancelled tasks again, by id or by filter.",
)


@tasks.command()
@change_options
@click.option("--reason", default="", help="Why they need no attention; kept with each task.")
@click.option("--undo", is_flag=True, help="Take it back: the tasks ask for attention again.")
@connected
def acknowledge(
    client: Client, task_ids: tuple[str, ...], *, reason: str, undo: bool, **asked: Any
) -> None:
    """Acknowledge failed tasks, by id or by filter.

    Acknowledged tasks are no longer counted among the failures that need attention. They stay in
    the history, and can still be retried.
    """

    def one(task_id: str) -> ApiCall[TaskView]:
        return calls.acknowledge_task(task_id, reason=reason, undo=undo)

    def many(selection: TaskSelection) -> ApiCall[TaskCount]:
        picked = {name: getattr(selection, name) for name in selection.__struct_fields__}
        return calls.acknowledge_tasks(AcknowledgedSelection(**picked, reason=reason, undo=undo))

    change_tasks(client, "acknowledge", task_ids, one=one, many=many, **asked)


def _count_line(count: TaskCount, verb: str) -> str:
    tasks = f"{count.count} {'task' if count.count == 1 else 'tasks'}"
    return f"would {verb} {tasks}" if count.dry_run else f"{verb}: {tasks} changed"


def _table(page: TaskPage) -> Table:
    columns: dict[str, Callable[[TaskView], object]] = {
        "task": lambda task: task.id,
        "name": lambda task: task.name,
        "state": lambda task: task.state.value,
        "queue": lambda task: task.queue,
        "attempt": lambda task: f"{task.attempt}/{task.max_attempts}",
        "worker": lambda task: task.worker_id,
        "created": lambda task: relative(task.created_at_ms),
        "finished": lambda task: relative(task.finished_at_ms),
    }
    return table(page.items, columns, empty="no tasks")


def _facts(task: "TaskDetails") -> Facts:
    error = task.error
    return Facts(
        [
            ("id", task.id),
            ("name", task.name),
            ("state", task.state.value),
            ("why", task.why.text if task.state not in FINISHED else None),
            ("queue", task.queue),
            ("position", task.position),
            ("priority", task.priority),
            ("requires", ", ".join(task.requires) or None),
            ("attempt", f"{task.attempt} of {task.max_attempts}"),
            ("worker", task.worker_id),
            ("key", task.key),
            ("labels", msgspec.json.encode(task.labels).decode() if task.labels else None),
            ("headers", msgspec.json.encode(task.headers).decode() if task.headers else None),
            ("created", absolute(task.created_at_ms)),
            ("runs at", absolute(task.run_at_ms)),
            ("started", absolute(task.started_at_ms)),
            ("finished", absolute(task.finished_at_ms)),
            ("payload", json_text(task.payload)),
            ("progress", _reported(task.progress)),
            ("partial", _reported(task.partial)),
            ("result", json_text(task.result) if task.state is TaskState.SUCCEEDED else None),
            ("error", f"{error.type}: {error.message}" if error else None),
            ("acknowledged", _acknowledgement(task)),
        ]
    )


def _acknowledgement(task: TaskView) -> str | None:
    noted = task.acknowledged
    if noted is None:
        return None
    reason = f": {noted.reason}" if noted.reason else ""
    return f"by {noted.by}, {absolute(noted.at_ms)}{reason}"


class TaskDetails(TaskView, frozen=True, kw_only=True):
    """A task with its attempts, and why it is in its state."""

    why: WhyView
    attempts: list[AttemptView]  # those that ended without finishing it


def _show_attempts(task: TaskDetails) -> None:
    """Print each failed attempt with its traceback, the oldest first."""
    for one in task.attempts:
        where = f" on {one.worker_id}" if one.worker_id else ""
        ending = one.ending.replace("_", " ")
        text = f"attempt {one.attempt} {ending}{where}, {absolute(one.ended_at_ms)}"
        _show_error(text, one.error)
    is_logged = bool(task.attempts) and task.attempts[-1].next_state == TaskState.FAILED
    if task.error is not None and task.state is TaskState.FAILED and not is_logged:
        _show_error(f"attempt {task.attempt} failed, {absolute(task.finished_at_ms)}", task.error)


def _show_error(heading: str, error: TaskError | None) -> None:
    click.echo(f"\n{visible(heading)}")
    if error is not None:
        shown = traceback_of(error) or f"{error.type}: {error.message}"
        click.echo(textwrap.indent(visible(shown.rstrip()), "  "))


def _reported(value: msgspec.Raw | None) -> str | None:
    """A JSON value of the handler, if it has reported one."""
    return None if value is None or bytes(value) == b"null" else json_text(value)
