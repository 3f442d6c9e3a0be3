"""`rota runs`: list, show, steer and signal runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Raw

from rota.cli.connection import change_each, connected
from rota.cli.groups import CommandGroup
from rota.cli.inputs import json_value
from rota.cli.options import page_options
from rota.cli.render.output import note, show, show_page
from rota.cli.render.run_tables import (
    artifact_table,
    graph_table,
    journal_table,
    run_facts,
    run_table,
    scope_table,
    token_table,
    wait_table,
)
from rota.core.workflow.states import RUN_ENDED
from rota.messages import ArtifactPage, JournalPage, RunActivity, RunPage, RunView
from rota.sdk.client import function_calls, run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, every_item

MOST_ACTIVE = 100  # runs that the coordinator describes at once
STATES = ("running", "paused", "completed", "failed", "cancelled", "timed_out")


@click.group(cls=CommandGroup)
def runs() -> None:
    """List, show and steer runs of workflows."""


@runs.command("ls")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List runs, newest first; open ones with what they wait for."""
    page = client.run(run_calls.list_runs(**selection))
    known = {} if as_json else _activity(client, page.items)
    show_page(page, as_json=as_json, render=lambda page: run_table(page, known))


def _activity(client: Client, runs: Sequence[RunView]) -> dict[str, RunActivity]:
    """What the open ones of these runs wait for, by run."""
    open_runs = [run.id for run in runs if run.state not in RUN_ENDED]
    found: dict[str, RunActivity] = {}
    for start in range(0, len(open_runs), MOST_ACTIVE):
        call = run_calls.get_activity(open_runs[start : start + MOST_ACTIVE])
        found |= {one.run_id: one for one in client.run(call).items}
    return found


@runs.command()
@click.option("--kind", type=click.Choice(("approval", "signal")), help="Only waits of this kind.")
@page_options
@connected
def waits(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List the approvals and signals that open runs wait for, the oldest first.

    Approvals come first. `rota runs signal RUN NAME` answers one.
    """
    page = client.run(run_calls.list_waits(**selection))
    show_page(page, as_json=as_json, render=wait_table)


@runs.command("show")
@click.argument("run_id")
@connected
def show_one(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show one run: its state, its context, what it waits for, its output or its error."""
    run = client.run(run_calls.get_run(run_id))
    known = {} if as_json else _activity(client, [run])
    show(run, as_json=as_json, render=lambda run: run_facts(run, known.get(run.id)))


@runs.command()
@click.argument("run_id")
@page_options
@connected
def tokens(client: Client, run_id: str, *, as_json: bool, **page_of: Any) -> None:
    """List the tokens of a run: where it is, and where it was."""
    page = client.run(run_calls.list_run_tokens(run_id, **page_of))
    show_page(page, as_json=as_json, render=token_table)


@runs.command()
@click.argument("run_id")
@click.option("--closed", is_flag=True, help="Show closed ones as well.")
@page_options
@connected
def scopes(client: Client, run_id: str, *, as_json: bool, **selection: Any) -> None:
    """List the open scopes of a run: fan-outs whose branches have not been joined."""
    page = client.run(run_calls.list_scopes(run_id, **selection))
    show_page(page, as_json=as_json, render=scope_table)


@runs.command()
@click.argument("run_id")
@connected
def journal(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show the events of a run, and what was decided on each and why.

    With --json the whole journal, as `rota replay --journal` takes it.
    """
    items = client.run(every_item(lambda at: run_calls.list_journal(run_id, after=at)))
    show(JournalPage(items=items), as_json=as_json, render=journal_table)


@runs.command()
@click.argument("run_id")
@connected
def graph(client: Client, run_id: str, *, as_json: bool) -> None:
    """Show the nodes of a run with the tokens at each, and the transitions with those taken."""
    view = client.run(run_calls.get_graph(run_id))
    show(view, as_json=as_json, render=graph_table)


@runs.command()
@click.argument("run_id")
@click.argument("name", required=False)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the content here.")
@connected
def artifacts(
    client: Client, run_id: str, name: str | None, *, output: Path | None, as_json: bool
) -> None:
    """List the artifacts of a run; with a NAME, print the content of that one."""
    if name is None:
        if output is not None:
            raise click.UsageError("name the artifact to write: rota runs artifacts RUN NAME")
        items = client.run(every_item(lambda at: run_calls.list_artifacts(run_id, cursor=at)))
        show(ArtifactPage(items=items), as_json=as_json, render=artifact_table)
        return
    if as_json:
        raise click.UsageError(
            "an artifact is printed unchanged; --json is for the list of artifacts"
        )
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
@click.option("--force", is_flag=True, help="Undo nothing, and end at once.")
@connected
def cancel(
    client: Client, run_ids: tuple[str, ...], *, reason: str, force: bool, as_json: bool
) -> None:
    """Cancel runs; workers that run their tasks are told to stop.

    What a run has done is undone first, where its nodes have compensating tasks. With --force it is
    not, and the run's error lists it.
    """

    def call(run_id: str) -> ApiCall[RunView]:
        return run_calls.cancel_run(run_id, reason=reason, force=force)

    _change(client, run_ids, call, as_json=as_json)


def _add_verb(name: str, call: Callable[[str], ApiCall[RunView]], description: str) -> None:
    @runs.command(name, help=description)
    @click.argument("run_ids", nargs=-1, required=True)
    @connected
    def verb(client: Client, run_ids: tuple[str, ...], *, as_json: bool) -> None:
        _change(client, run_ids, call, as_json=as_json)


_add_verb("pause", run_calls.pause_run, "Start nothing new in runs; what is running finishes.")
_add_verb("retry", run_calls.retry_run, "Continue failed runs from where they failed.")


@runs.command()
@click.argument("run_ids", nargs=-1, required=True)
@click.option("--accept", is_flag=True, help="After a divergence: accept the new code.")
@connected
def resume(client: Client, run_ids: tuple[str, ...], *, accept: bool, as_json: bool) -> None:
    """Continue paused runs.

    With --accept, the new code of a diverged function counts: recorded operations that it does not
    ask for again are dropped.
    """

    def call(run_id: str) -> ApiCall[RunView]:
        return function_calls.resume_run(run_id, accept=accept)

    _change(client, run_ids, call, as_json=as_json)


@runs.command("complete-scope")
@click.argument("run_id")
@click.argument("scope", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Why; kept in the journal.")
@connected
def complete_scope(client: Client, run_id: str, scope: int, *, reason: str, as_json: bool) -> None:
    """Let the join of an open scope fire with the branches that have arrived.

    `rota runs scopes RUN_ID` lists the numbers of the scopes.
    """
    view = client.run(run_calls.complete_scope(run_id, scope, reason=reason))
    show(view, as_json=as_json, render=lambda view: f"scope {scope} of run {view.id} is complete")


@runs.command("add-branches")
@click.argument("run_id")
@click.argument("scope", type=click.IntRange(min=1))
@click.option("--items", required=True, help="JSON list, a branch for each; @FILE, or - for stdin.")
@click.option("--key", help="Idempotency key: branches with a known key are not added again.")
@click.option("--last", is_flag=True, help="The scope takes no further branches.")
@connected
def add_branches(
    client: Client,
    run_id: str,
    scope: int,
    *,
    items: str,
    key: str | None,
    last: bool,
    as_json: bool,
) -> None:
    """Add branches to a scope whose fan-out is `open`.

    `rota runs scopes RUN_ID` lists the numbers of the scopes.
    """
    given = json_value("--items", items)
    found = None if given is None else msgspec.json.decode(given)
    if not isinstance(found, list):
        raise click.UsageError("--items must be a JSON list")
    view = client.run(run_calls.add_branches(run_id, scope, found, key=key, last=last))
    show(
        view,
        as_json=as_json,
        render=lambda view: f"scope {scope} of run {view.run_id} has {view.branch_total} branches",
    )


@runs.command("cancel-scope")
@click.argument("run_id")
@click.argument("scope", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Why; kept in the journal.")
@connected
def cancel_scope(client: Client, run_id: str, scope: int, *, reason: str, as_json: bool) -> None:
    """End the branches of an open scope; nothing follows them, and the run goes on.

    `rota runs scopes RUN_ID` lists the numbers of the scopes.
    """
    view = client.run(run_calls.cancel_scope(run_id, scope, reason=reason))
    show(view, as_json=as_json, render=lambda view: f"scope {scope} of run {view.id} is cancelled")


@runs.command()
@click.argument("run_id")
@click.argument("name")
@click.option("--payload", help="The payload as JSON; @FILE reads a file, - stdin.")
@click.option("--key", help="Idempotency key: a repeated signal with this key counts once.")
@click.option(
    "--token-id",
    help="Token that it is for.  [default: the one that has waited longest]",
)
@connected
def signal(
    client: Client,
    run_id: str,
    name: str,
    *,
    payload: str | None,
    key: str | None,
    token_id: str | None,
    as_json: bool,
) -> None:
    """Send a signal that a run waits for, or will wait for.

    An approval waits for a signal of its node's name: --payload '{"approved": true}', or true. It
    is refused when nothing waits for it. With --token-id, a repeated answer never answers the next
    question.
    """
    value = json_value("--payload", payload) or Raw(b"null")
    if token_id is None:
        token_id = _asking_token(client, run_id, name)
    call = run_calls.signal_run(run_id, name, value, key=key, token_id=token_id)
    view = client.run(call)
    show(view, as_json=as_json, render=lambda view: f"run {view.id} got signal {name}")


def _asking_token(client: Client, run_id: str, name: str) -> str | None:
    """The token that asks for an approval of this name; None: it is no approval, or none asks."""
    nodes = client.run(run_calls.get_graph(run_id)).nodes
    if not any(one.id == name and one.kind == "approval" for one in nodes):
        return None
    page = client.run(run_calls.list_asking_tokens(run_id, name))
    return page.items[0].id if page.items else None


@runs.command()
@click.argument("run_id")
@click.option("--from-node", "--from", required=True, help="Node where the new run begins.")
@click.option("--state", help="State to begin with, as JSON, @FILE or -.  [default: the run's own]")
@connected
def fork(client: Client, run_id: str, *, from_node: str, state: str | None, as_json: bool) -> None:
    """Start a new run with the same input at another node; prints its id."""
    view = client.run(run_calls.fork_run(run_id, from_node, json_value("--state", state)))
    show(view, as_json=as_json, render=lambda view: view.id)


def _change(
    client: Client,
    run_ids: tuple[str, ...],
    call: Callable[[str], ApiCall[RunView]],
    *,
    as_json: bool,
) -> None:
    change_each(
        client,
        map(call, run_ids),
        page=lambda items: RunPage(items=items),
        render=run_table,
        as_json=as_json,
    )
