"""`rota workflows`: list, show, put and compare workflows."""

import difflib

import click
import msgspec

from rota.cli.commands.workflow.validate import valid_definition
from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.options import page_options
from rota.cli.render.formatting import absolute, relative
from rota.cli.render.output import ExitCode, Facts, Refusal, Table, show, show_page, visible
from rota.core.workflow.definition.model import Definition, as_stored
from rota.core.workflow.functions.model import CodeDefinition
from rota.messages import WorkflowDetail, WorkflowPage
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.definitions import nodes_in_order, yaml_of

HASH_SHOWN = 12


@click.group(cls=CommandGroup)
def workflows() -> None:
    """List, show and put workflows."""


@workflows.command("ls")
@page_options
@connected
def ls(client: Client, *, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the workflows, each with its current version."""
    page = client.run(run_calls.list_workflows(limit=limit, cursor=cursor))
    show_page(page, as_json=as_json, render=_table)


@workflows.command("show")
@click.argument("name")
@click.option(
    "--version", type=click.IntRange(min=1), help="The version.  [default: the current one]"
)
@click.option("--yaml", "as_yaml", is_flag=True, help="Print only the definition, as YAML.")
@connected
def show_one(
    client: Client, name: str, *, version: int | None, as_yaml: bool, as_json: bool
) -> None:
    """Show a workflow: its nodes and their transitions; with --yaml, its definition."""
    view = client.run(run_calls.get_workflow(name, version))
    if as_yaml:
        if view.definition is None:
            text = f"workflow {name!r} is a function, and has no YAML; leave --yaml out"
            raise Refusal(text, code="no_graph")
        click.echo(yaml_of(view.definition), nl=False)
        return
    show(view, as_json=as_json, render=_facts)


@workflows.command()
@click.argument("file")
@connected
def put(client: Client, file: str, *, as_json: bool) -> None:
    """Deploy a workflow from FILE, and make it the current version.

    The same content is the same version: putting an older text makes that version current again.
    """
    view = client.run(run_calls.put_workflow(valid_definition(file)))
    show(view, as_json=as_json, render=lambda one: f"{one.name} version {one.version} is current")


@workflows.command()
@click.argument("name")
@click.argument("version", type=click.IntRange(min=1))
@connected
def use(client: Client, name: str, version: int, *, as_json: bool) -> None:
    """Make a version of a workflow the current one.

    New runs that are started by the workflow's name use it from now on.
    """
    definition = client.run(run_calls.get_workflow(name, version)).definition
    if definition is None:
        raise Refusal(f"{name!r} is a function; its workers publish it", code="function")
    view = client.run(run_calls.put_workflow(definition))
    show(view, as_json=as_json, render=lambda one: f"{one.name} version {one.version} is current")


@workflows.command()
@click.argument("name")
@connected
def versions(client: Client, name: str, *, as_json: bool) -> None:
    """List the versions of a workflow, newest first."""
    known = client.run(run_calls.get_workflow(name)).versions
    show(WorkflowPage(items=known), as_json=as_json, render=_table)


@workflows.command()
@click.argument("name")
@click.argument("old", required=False)
@click.argument("new", required=False)
@connected
def diff(client: Client, name: str, old: str | None, new: str | None, *, as_json: bool) -> None:
    """Show what changed between two versions of a workflow, or a version and a file.

    OLD and NEW are version numbers or files. Without them, the last two versions are compared; with
    only OLD, that one and the newest version. The exit code is 1 when they differ, as with diff.
    """
    newest = max(one.version for one in client.run(run_calls.get_workflow(name)).versions)
    if old is None:
        old = str(max(1, newest - 1))
    if new is None:
        new = str(newest)
        if not old.isdigit():
            old, new = new, old  # a file is a proposal, newer than every version
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
    if which.isdigit():
        view = client.run(run_calls.get_workflow(name, int(which)))
        if view.code is not None:
            return view.code.source
        assert view.definition is not None
        definition = view.definition
    else:
        definition = valid_definition(which)
        if definition.name != name:
            text = f"{which} is a definition of {definition.name!r}, not of {name!r}"
            raise Refusal(text, code="other_workflow")
    # In the form of the store, so that the order of names in a file makes no difference.
    return yaml_of(as_stored(definition))


def _joined(lines: list[str]) -> str:
    return visible("\n".join(lines)) if lines else "no difference"


def _table(page: WorkflowPage) -> Table:
    return Table(
        ("workflow", "version", "current", "hash", "created"),
        [
            (
                one.name,
                one.version,
                "yes" if one.is_current else None,
                one.hash[:HASH_SHOWN],
                relative(one.created_at_ms),
            )
            for one in page.items
        ],
        empty="no workflows",
    )


def _facts(view: WorkflowDetail) -> Facts:
    if view.code is not None:
        return _code_facts(view, view.code)
    definition = view.definition
    assert definition is not None
    nodes = [
        (f"  {node_id}", _node_line(definition, node_id)) for node_id in nodes_in_order(definition)
    ]
    return Facts(
        [
            ("name", view.name),
            ("version", f"{view.version} ({'current' if view.is_current else 'not current'})"),
            ("hash", view.hash),
            ("created", absolute(view.created_at_ms)),
            ("description", definition.description or None),
            ("input", _schema(definition.input)),
            ("begins at", definition.initial_node),
            ("nodes", len(definition.nodes)),
            *nodes,
        ]
    )


def _code_facts(view: WorkflowDetail, code: CodeDefinition) -> Facts:
    return Facts(
        [
            ("name", view.name),
            ("version", view.version),
            ("label", code.label),
            ("hash", view.hash),
            ("created", absolute(view.created_at_ms)),
            ("description", code.description or None),
            ("module", code.module or None),
            ("queue", code.queue),
            ("upgrade", code.upgrade),
            *(
                (f"  {number}", line)
                for number, line in enumerate(code.source.splitlines(), code.first_line)
            ),
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
