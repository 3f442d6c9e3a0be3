"""Which workflows are there? List and show them, put new versions, see what changed."""

import difflib

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.options import json_flag, page_options
from rota.cli.output import ExitCode, Facts, Refusal, Table, note_more, show, visible
from rota.cli.times import absolute, relative
from rota.cli.validate import valid_definition
from rota.core.workflow.definition import Definition, canonical
from rota.messages import WorkflowDetail, WorkflowPage
from rota.sdk import run_calls
from rota.sdk.client import Client
from rota.sdk.definitions import nodes_in_order, yaml_of

HASH_SHOWN = 12


@click.group()
def workflows() -> None:
    """List, show and put workflows."""


@workflows.command("ls")
@page_options
@connected
@json_flag
def ls(client: Client, *, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the workflows, each with its newest version."""
    page = client.run(run_calls.list_workflows(limit=limit, cursor=cursor))
    show(page, as_json=as_json, render=_table)
    if not as_json:
        note_more(page.next_cursor)


@workflows.command("show")
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), help="Which one.  [default: the newest]")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the definition as YAML, and only it.")
@connected
@json_flag
def show_one(
    client: Client, name: str, *, version: int | None, as_yaml: bool, as_json: bool
) -> None:
    """Show a workflow: its nodes and what follows each; with --yaml, its definition."""
    view = client.run(run_calls.get_workflow(name, version))
    if as_yaml:
        click.echo(yaml_of(view.definition), nl=False)
        return
    show(view, as_json=as_json, render=_facts)


@workflows.command()
@click.argument("file")
@connected
@json_flag
def put(client: Client, file: str, *, as_json: bool) -> None:
    """Hand a workflow's FILE to the coordinator; the same content again is the same version."""
    view = client.run(run_calls.put_workflow(valid_definition(file)))
    show(view, as_json=as_json, render=lambda one: f"{one.name} version {one.version}")


@workflows.command()
@click.argument("name")
@connected
@json_flag
def versions(client: Client, name: str, *, as_json: bool) -> None:
    """List the versions of a workflow, newest first."""
    known = client.run(run_calls.get_workflow(name)).versions
    show(WorkflowPage(items=known), as_json=as_json, render=_table)


@workflows.command()
@click.argument("name")
@click.argument("old", required=False)
@click.argument("new", required=False)
@connected
@json_flag
def diff(client: Client, name: str, old: str | None, new: str | None, *, as_json: bool) -> None:
    """Show what changed between two versions of a workflow, or a version and a file.

    OLD and NEW are version numbers or files; without them the last two versions, with one of them
    that one and the newest version. Exit code 1 when they differ, as of diff.
    """
    newest = client.run(run_calls.get_workflow(name))
    if old is None:
        old = str(max(1, newest.version - 1))
    if new is None:
        new = str(newest.version)
        if not old.isdigit():
            old, new = new, old  # a file is a proposal: newer than what is there
    before, after = (_text(client, name, one) for one in (old, new))
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"{name} {old}", f"{name} {new}", lineterm=""
        )
    )
    show({"old": old, "new": new, "diff": lines}, as_json=as_json, render=lambda _: _joined(lines))
    if lines:
        click.get_current_context().exit(ExitCode.FAILED)


def _text(client: Client, name: str, which: str) -> str:
    definition: Definition
    if which.isdigit():
        definition = client.run(run_calls.get_workflow(name, int(which))).definition
    else:
        definition = valid_definition(which)
        if definition.name != name:
            text = f"{which} is a definition of {definition.name!r}, not of {name!r}"
            raise Refusal(text, code="other_workflow")
    # As the coordinator keeps it, so that the order of names in a file makes no difference.
    return yaml_of(msgspec.json.decode(canonical(definition), type=Definition))


def _joined(lines: list[str]) -> str:
    return visible("\n".join(lines)) if lines else "no difference"


def _table(page: WorkflowPage) -> Table:
    return Table(
        ("workflow", "version", "hash", "created"),
        [
            (one.name, one.version, one.hash[:HASH_SHOWN], relative(one.created_at_ms))
            for one in page.items
        ],
        empty="no workflows",
    )


def _facts(view: WorkflowDetail) -> Facts:
    definition = view.definition
    nodes = [
        (f"  {node_id}", _node_line(definition, node_id)) for node_id in nodes_in_order(definition)
    ]
    return Facts(
        [
            ("name", view.name),
            ("version", view.version),
            ("hash", view.hash),
            ("created", absolute(view.created_at_ms)),
            ("description", definition.description or None),
            ("input", _schema(definition.input)),
            ("begins at", definition.initial_node),
            ("nodes", len(definition.nodes)),
            *nodes,
        ]
    )


def _node_line(definition: Definition, node_id: str) -> str:
    node = definition.nodes[node_id]
    what = node.task or node.workflow or node.end or ""
    follows = [one.to for one in definition.transitions if one.from_ == node_id]
    follows += [f"{route.to} (on error)" for route in node.on_error]
    arrow = f" → {', '.join(follows)}" if follows else ""
    return f"{node.kind} {what}".rstrip() + arrow


def _schema(schema: object) -> str | None:
    return None if schema is None else msgspec.json.encode(schema).decode()
