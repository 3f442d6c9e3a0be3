"""What became of the tasks? List, show, cancel and retry them, one by one or by filter."""

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.options import dry_run_flag, json_flag, page_options, yes_flag
from rota.cli.output import (
    ExitCode,
    Facts,
    Refusal,
    Table,
    is_terminal,
    note_more,
    refusal_of,
    show,
)
from rota.cli.times import absolute, relative
from rota.errors import RotaError
from rota.messages import TaskCount, TaskPage, TaskSelection, TaskState, TaskView
from rota.sdk import calls
from rota.sdk.calls import Call
from rota.sdk.client import Client


@click.group()
def tasks() -> None:
    """List, show, cancel and retry tasks."""


def task_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which tasks are picked."""
    states = click.Choice([state.value for state in TaskState])
    function = click.option("--label", help="Only tasks with this label (KEY=VALUE or a word).")(
        function
    )
    function = click.option("--name", help="Only tasks of this name.")(function)
    function = click.option("--queue", help="Only tasks of this queue.")(function)
    return click.option("--state", type=states, help="Only tasks in this state.")(function)


@tasks.command("ls")
@task_filters
@page_options
@connected
@json_flag
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List tasks, newest first."""
    page = client.run(calls.list_tasks(**selection))
    show(page, as_json=as_json, render=_table)
    if not as_json:
        note_more(page.next_cursor)


@tasks.command("show")
@click.argument("task_id")
@connected
@json_flag
def show_one(client: Client, task_id: str, *, as_json: bool) -> None:
    """Show one task with everything known about it."""
    show(client.run(calls.get_task(task_id)), as_json=as_json, render=_facts)


@tasks.command()
@click.argument("task_ids", nargs=-1)
@task_filters
@dry_run_flag
@yes_flag
@connected
@json_flag
def cancel(client: Client, task_ids: tuple[str, ...], **options: Any) -> None:
    """Cancel tasks, named by id or by filter; a running one's worker is told to stop."""
    _change(client, task_ids, "cancel", calls.cancel_task, calls.cancel_tasks, **options)


@tasks.command()
@click.argument("task_ids", nargs=-1)
@task_filters
@dry_run_flag
@yes_flag
@connected
@json_flag
def retry(client: Client, task_ids: tuple[str, ...], **options: Any) -> None:
    """Send failed or cancelled tasks round again, named by id or by filter."""
    _change(client, task_ids, "retry", calls.retry_task, calls.retry_tasks, **options)


def _change(
    client: Client,
    task_ids: tuple[str, ...],
    verb: str,
    one: Callable[[str], Call[TaskView]],
    many: Callable[[TaskSelection], Call[TaskCount]],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: str | None,
) -> None:
    given = {name: value for name, value in filters.items() if value is not None}
    if bool(task_ids) == bool(given):
        raise click.UsageError(f"say which tasks to {verb}: either ids, or a filter")

    if task_ids and not dry_run:
        _change_each(client, task_ids, one, as_json=as_json)
        return

    picked = {"ids": list(task_ids)} if task_ids else given
    selection = msgspec.convert(picked, TaskSelection)
    count = client.run(many(msgspec.structs.replace(selection, dry_run=True)))
    if not dry_run and count.count:
        _confirm(f"{verb} {count.count} tasks ({_told(given)})?", yes=yes)
    if not dry_run:
        count = client.run(many(selection))
    show(count, as_json=as_json, render=lambda count: _count_line(count, verb))


def _change_each(
    client: Client,
    task_ids: tuple[str, ...],
    call: Callable[[str], Call[TaskView]],
    *,
    as_json: bool,
) -> None:
    """Change the named tasks one by one: one that refuses does not keep the others back."""
    changed: list[TaskView] = []
    refusals: list[Refusal] = []
    for task_id in task_ids:
        try:
            changed.append(client.run(call(task_id)))
        except RotaError as error:
            refusals.append(refusal_of(error))

    if changed or as_json:
        show(TaskPage(items=changed), as_json=as_json, render=_table)
    for refusal in refusals:
        refusal.show()
    if refusals:
        click.get_current_context().exit(max(refusal.ends_with for refusal in refusals))


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise click.UsageError("nobody is there to confirm; give --yes, or --dry-run to look first")
    if not click.confirm(question, err=True):
        raise Refusal("nothing was changed", code="declined", ends_with=ExitCode.FAILED)


def _told(filters: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in filters.items())


def _count_line(count: TaskCount, verb: str) -> str:
    if count.dry_run:
        return f"would {verb} {count.count} tasks"
    return f"{verb}: {count.count} tasks changed"


def _table(page: TaskPage) -> Table:
    return Table(
        ("task", "name", "state", "queue", "attempt", "worker", "created", "finished"),
        [
            (
                task.id,
                task.name,
                task.state.value,
                task.queue,
                f"{task.attempt}/{task.max_attempts}",
                task.worker_id,
                relative(task.created_at_ms),
                relative(task.finished_at_ms),
            )
            for task in page.items
        ],
        empty="no tasks",
    )


def _facts(task: TaskView) -> Facts:
    error = task.error
    return Facts(
        [
            ("id", task.id),
            ("name", task.name),
            ("state", task.state.value),
            ("queue", task.queue),
            ("position", task.position),
            ("priority", task.priority),
            ("requires", ", ".join(task.requires) or None),
            ("attempt", f"{task.attempt} of {task.max_attempts}"),
            ("worker", task.worker_id),
            ("key", task.key),
            ("labels", msgspec.json.encode(task.labels).decode() if task.labels else None),
            ("created", absolute(task.created_at_ms)),
            ("runs at", absolute(task.run_at_ms)),
            ("started", absolute(task.started_at_ms)),
            ("finished", absolute(task.finished_at_ms)),
            ("payload", _json_text(task.payload)),
            ("progress", _said(task.progress)),
            ("partial", _said(task.partial)),
            ("result", _json_text(task.result) if task.state is TaskState.SUCCEEDED else None),
            ("error", f"{error.type}: {error.message}" if error else None),
        ]
    )


def _json_text(value: msgspec.Raw | None) -> str:
    """A JSON value as it is read best: indented when it is not small."""
    text = bytes(value or b"null").decode()
    return text if len(text) <= 80 else msgspec.json.format(text, indent=2)


def _said(value: msgspec.Raw | None) -> str | None:
    """A JSON value that is there only when it says something."""
    text = _json_text(value)
    return None if text == "null" else text
