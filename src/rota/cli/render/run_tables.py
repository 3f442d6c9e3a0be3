"""Tables of runs, tokens, journal entries, nodes and artifacts."""

from collections.abc import Callable, Mapping
from typing import Any

from rota.cli.render.formatting import absolute, relative
from rota.cli.render.output import Facts, Table, json_text, table
from rota.cli.render.run_model import COLUMNS, describe_error, in_columns, in_order, seconds
from rota.core.workflow.journal_words import JournalNames, describe, event_words
from rota.core.workflow.replay import encoded
from rota.messages import (
    ArtifactPage,
    GraphTransition,
    JournalEntryView,
    JournalPage,
    RunActivity,
    RunGraph,
    RunPage,
    RunTokenPage,
    RunTokenView,
    RunView,
    ScopeJoin,
    ScopePage,
    ScopeView,
    WaitPage,
    WaitView,
)

DECISIONS_SHOWN = 4  # of one entry, besides the reasons


def run_table(page: RunPage, activity: Mapping[str, RunActivity] | None = None) -> Table:
    """The runs; with what the open ones wait for, where it is known."""
    known = activity or {}
    columns: dict[str, Callable[[RunView], object]] = {
        "run": lambda run: run.id,
        "workflow": lambda run: run.workflow,
        "parent": _parent,
        "version": lambda run: run.version,
        "state": lambda run: run.state,
        "created": lambda run: relative(run.created_at_ms),
        "finished": lambda run: relative(run.finished_at_ms),
        "waiting for, or error": lambda run: (
            describe_error(run.error) if run.error else _waiting(known.get(run.id))
        ),
    }
    if not any(run.parent_run_id for run in page.items):
        del columns["parent"]
    return table(page.items, columns, empty="no runs")


def _parent(run: RunView) -> str | None:
    """The run inside which it runs, by its workflow."""
    if run.parent_run_id is None:
        return None
    return f"{run.parent_workflow or 'run'} {run.parent_run_id}"


def _waiting(found: RunActivity | None) -> str | None:
    if found is None or found.text is None:
        return None
    if found.until_ms is None:
        return found.text
    verb = "wakes" if found.text.endswith("sleeping") else "due"
    return f"{found.text}, {verb} {relative(found.until_ms)}"


def wait_table(page: WaitPage) -> Table:
    columns: dict[str, Callable[[WaitView], object]] = {
        "needs you": lambda wait: wait.title,
        "kind": lambda wait: wait.kind,
        "workflow": lambda wait: wait.workflow,
        "run": lambda wait: wait.run_id,
        "since": lambda wait: relative(wait.since_ms),
        "due": lambda wait: relative(wait.due_at_ms),
    }
    return table(page.items, columns, empty="no run waits for an approval or a signal")


def run_facts(run: RunView, activity: RunActivity | None) -> Facts:
    context = run.context
    return Facts(
        [
            ("id", run.id),
            ("workflow", f"{run.workflow} version {run.version}"),
            ("state", run.state),
            ("waiting for", _waiting(activity)),
            ("key", run.key),
            ("parent run", _parent(run)),
            ("forked from", run.forked_from),
            ("created", absolute(run.created_at_ms)),
            ("finished", absolute(run.finished_at_ms)),
            ("took", _took(run)),
            ("input", json_text(context.input) if context else None),
            ("state so far", json_text(context.state) if context else None),
            ("output", json_text(run.output) if run.state == "completed" else None),
            ("error", describe_error(run.error) if run.error else None),
            ("details", _details(run.error)),
            ("traceback", _traceback(run.error)),
        ]
    )


def _took(run: RunView) -> str | None:
    return None if run.finished_at_ms is None else seconds(run.finished_at_ms - run.created_at_ms)


def _details(error: dict[str, Any] | None) -> str | None:
    shown_already = {"type", "message", "node", "retryable"}
    more = {name: value for name, value in (error or {}).items() if name not in shown_already}
    if _traceback(error) is not None:
        more["details"] = {k: v for k, v in more["details"].items() if k != "traceback"}
    more = {name: value for name, value in more.items() if value not in (None, {}, [])}
    return json_text(more) if more else None


def _traceback(error: dict[str, Any] | None) -> str | None:
    details = (error or {}).get("details")
    text = details.get("traceback") if isinstance(details, dict) else None
    return text.rstrip() if isinstance(text, str) else None


def token_table(page: RunTokenPage) -> Table:
    columns: dict[str, Callable[[RunTokenView], object]] = {
        "token": lambda token: token.id,
        "node": lambda token: token.node_id,
        "state": lambda token: token.state,
        "parent": lambda token: token.parent_token_id,
        "path": lambda token: token.path_id,
        "branch": lambda token: (
            None
            if token.branch_index is None
            else f"[{token.branch_index}] of {token.branch_total}"
        ),
        "scope": lambda token: token.scope,
        "task": lambda token: token.task_id,
    }
    return table(page.items, columns, empty="no tokens")


def scope_table(page: ScopePage) -> Table:
    columns: dict[str, Callable[[ScopeView], object]] = {
        "scope": lambda scope: scope.number,
        "of": lambda scope: scope.fan_out_transition_id,
        "node": lambda scope: scope.node_id,
        "branches": lambda scope: ", ".join(
            f"{count} {state}" for state, count in scope.branches.items()
        ),
        "takes more": lambda scope: "yes" if scope.takes_branches else None,
        "joins": lambda scope: ", ".join(map(_scope_join, scope.joins)),
        "opened": lambda scope: relative(scope.opened_at_ms),
        "closed": lambda scope: None if scope.is_open else scope.because or "with its run",
    }
    return table(page.items, columns, empty="no open scopes")


def _scope_join(join: ScopeJoin) -> str:
    needed = "all" if join.needed is None else join.needed
    signal = "" if join.complete_on is None else f", or signal {join.complete_on}"
    return f"{join.node_id}: {join.arrived} of {needed}{signal}"


def journal_table(page: JournalPage) -> Table:
    first_ms = page.items[0].at_ms if page.items else 0
    names = JournalNames()
    rows: list[tuple[object, ...]] = []
    for entry in page.items:
        names.learn(entry.decisions)
        names.tokens.update((int(number), name) for number, name in entry.token_names.items())
        after = seconds(entry.at_ms - first_ms)
        rows.append((entry.number, after, _event(entry, names), _decided(entry, names)))
    return Table(("entry", "at", "event", "decided"), rows, empty="no entries")


def _event(entry: JournalEntryView, names: JournalNames) -> str:
    return entry.text or event_words(entry.event, names)  # a coordinator of before has no text


def _decided(entry: JournalEntryView, names: JournalNames) -> str:
    """All reasons, and the first few of the other decisions."""
    decisions = encoded(entry.decisions)
    reasons = [describe(one, names) for one in decisions if one["type"] == "Considered"]
    others = [one for one in decisions if one["type"] != "Considered"]
    shown = [describe(one, names) for one in others[:DECISIONS_SHOWN]]
    if len(others) > DECISIONS_SHOWN:
        shown.append(f"and {len(others) - DECISIONS_SHOWN} more")
    return "; ".join([*reasons, *shown])


def graph_table(view: RunGraph) -> Table:
    tokens = {node.id: node.tokens for node in view.nodes}
    rows: list[tuple[object, ...]] = []
    for node_id in in_order(view.initial_node, list(tokens), view.transitions):
        counts = in_columns(tokens[node_id])
        rows.append((node_id, *(counts.get(name, "") for name in COLUMNS), ""))
        rows += [
            (f"  → {one.to}", *("" for _ in COLUMNS), _transition(one))
            for one in view.transitions
            if one.from_ == node_id
        ]
    return Table(("node", *COLUMNS, "transitions"), rows, empty="no nodes")


def _transition(one: GraphTransition) -> str:
    words = f"{one.id}: taken {one.taken}"
    if one.not_taken:
        words += f", not taken {one.not_taken}"
    if one.join is not None:
        words += f", {one.join.arrived} of {one.join.needed} arrived, fired {one.join.fired}"
    return words


def artifact_table(page: ArtifactPage) -> Table:
    return Table(
        ("artifact", "media type", "bytes", "task", "created"),
        [
            (one.name, one.media_type, one.size, one.task_id, relative(one.created_at_ms))
            for one in page.items
        ],
        empty="no artifacts",
    )
