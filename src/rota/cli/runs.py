"""What became of the runs? List, show, steer and signal them, and look at what they decided."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import Raw

from rota.cli.connection import connected
from rota.cli.inputs import json_value
from rota.cli.options import json_flag, page_options
from rota.cli.output import Refusal, note, note_more, refusal_of, show
from rota.cli.run_tables import (
    artifact_table,
    graph_table,
    journal_table,
    run_facts,
    run_table,
    token_table,
)
from rota.errors import RotaError
from rota.messages import ArtifactPage, JournalPage, RunPage, RunView
from rota.sdk import run_calls
from rota.sdk.calls import Call
from rota.sdk.client import Client

STATES = ("running", "paused", "completed", "failed", "cancelled", "timed_out")


@click.group()
def runs() -> None:
    """List, show and steer runs of workflows."""


@runs.command("ls")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@page_options
@connected
@json_flag
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List runs, newest first."""
    page = client.run(run_calls.list_runs(**selection))
    show(page, as_json=as_json, render=run_table)
    if not as_json:
        note_more(page.next_cursor)


@runs.command("show")
@click.argument("run_id")
@connected
@json_flag
def show_one(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show one run: where it stands, its context, its output or its error."""
    show(client.run(run_calls.get_run(run_id)), as_json=as_json, render=run_facts)


@runs.command()
@click.argument("run_id")
@page_options
@connected
@json_flag
def tokens(client: Client, run_id: str, *, as_json: bool, **page_of: Any) -> None:
    """List the tokens of a run: where it is, and was."""
    page = client.run(run_calls.list_run_tokens(run_id, **page_of))
    show(page, as_json=as_json, render=token_table)
    if not as_json:
        note_more(page.next_cursor)


@runs.command()
@click.argument("run_id")
@connected
@json_flag
def journal(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show what happened to a run, and what was decided each time and why.

    With --json the whole journal, as `rota replay --journal` takes it.
    """
    items = run_calls.every_item(client.run, lambda at: run_calls.list_journal(run_id, after=at))
    show(JournalPage(items=items), as_json=as_json, render=journal_table)


@runs.command()
@click.argument("run_id")
@connected
@json_flag
def graph(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show the nodes of a run with the tokens at each, and the transitions with those taken."""
    view = client.run(run_calls.get_graph(run_id))
    show(view, as_json=as_json, render=graph_table)


@runs.command()
@click.argument("run_id")
@click.argument("name", required=False)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the content here.")
@connected
@json_flag
def artifacts(
    client: Client, run_id: str, name: str | None, *, output: Path | None, as_json: bool
) -> None:
    """List the artifacts of a run; with a NAME, give the content of that one."""
    if name is None:
        if output is not None:
            raise click.UsageError("say which artifact to write: rota runs artifacts RUN NAME")
        items = run_calls.every_item(
            client.run, lambda at: run_calls.list_artifacts(run_id, cursor=at)
        )
        show(ArtifactPage(items=items), as_json=as_json, render=artifact_table)
        return
    if as_json:
        raise click.UsageError("an artifact is given as it is; --json lists them")
    content = client.run(run_calls.get_artifact(run_id, name))
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror}") from error
    note(f"{len(content)} bytes written to {output}")


# --- steering -----------------------------------------------------------------------------------


@runs.command()
@click.argument("run_ids", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept with the run.")
@connected
@json_flag
def cancel(client: Client, run_ids: tuple[str, ...], *, reason: str, as_json: bool) -> None:
    """End runs now; workers that are at work for them are told to stop."""
    _each(client, run_ids, lambda one: run_calls.cancel_run(one, reason=reason), as_json=as_json)


@runs.command()
@click.argument("run_ids", nargs=-1, required=True)
@connected
@json_flag
def pause(client: Client, run_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Let runs begin nothing new; what is under way finishes."""
    _each(client, run_ids, run_calls.pause_run, as_json=as_json)


@runs.command()
@click.argument("run_ids", nargs=-1, required=True)
@connected
@json_flag
def resume(client: Client, run_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Let paused runs go on."""
    _each(client, run_ids, run_calls.resume_run, as_json=as_json)


@runs.command()
@click.argument("run_ids", nargs=-1, required=True)
@connected
@json_flag
def retry(client: Client, run_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Let failed runs go on from where they failed."""
    _each(client, run_ids, run_calls.retry_run, as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.argument("name")
@click.option("--payload", help="What to tell, as JSON; @FILE reads a file, - stdin.")
@connected
@json_flag
def signal(client: Client, run_id: str, name: str, *, payload: str | None, as_json: bool) -> None:
    """Tell a run something that it waits for, or will.

    An approval waits for a signal of its node's name: --payload '{"approved": true}', or true.
    """
    value = json_value("--payload", payload) or Raw(b"null")
    view = client.run(run_calls.signal_run(run_id, name, value))
    show(view, as_json=as_json, render=lambda view: f"run {view.id} was told {name}")


@runs.command()
@click.argument("run_id")
@click.option("--from-node", "--from", required=True, help="Node that the new run begins at.")
@click.option("--state", help="State to begin with, as JSON, @FILE or -.  [default: the run's own]")
@connected
@json_flag
def fork(client: Client, run_id: str, *, from_node: str, state: str | None, as_json: bool) -> None:
    """Start a new run on the same input from a node on; prints its id."""
    view = client.run(run_calls.fork_run(run_id, from_node, json_value("--state", state)))
    show(view, as_json=as_json, render=lambda view: view.id)


def _each(
    client: Client,
    run_ids: tuple[str, ...],
    call: Callable[[str], Call[RunView]],
    *,
    as_json: bool,
) -> None:
    """Steer the named runs one by one: one that refuses does not keep the others back."""
    changed: list[RunView] = []
    refusals: list[Refusal] = []
    for run_id in run_ids:
        try:
            changed.append(client.run(call(run_id)))
        except RotaError as error:
            refusals.append(refusal_of(error))
    if changed or as_json:
        show(RunPage(items=changed), as_json=as_json, render=run_table)
    for refusal in refusals:
        refusal.show()
    if refusals:
        click.get_current_context().exit(max(refusal.ends_with for refusal in refusals))
