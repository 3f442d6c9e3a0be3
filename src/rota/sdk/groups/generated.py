"""The workflow definitions of groups and chains, generated from the calls.

Theory of operation. A definition has the shape of a group: its tasks, their options, the names of
their arguments, and its callbacks. The arguments themselves are the input of the run. So a program
makes few definitions, however many groups it starts. The name of each has the hash of its content.
A group is one fan-out over `input.members` and one join, so a callback starts exactly once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from rota.core.tasks.model import NewTask
from rota.errors import Invalid
from rota.sdk.encoding import encode
from rota.sdk.task import PartialCall, Submission, Task, node_options_of

R = TypeVar("R")
# A task that gets the result of others as its first argument, or a call that ignores that result.
Link = Task[..., R] | PartialCall[R] | Submission[R]
Callback = Link[Any]
Document = dict[str, Any]

CARRIED = frozenset(  # options of a task that a node has, too
    {"queue", "priority", "requires", "timeout_ms", "max_attempts", "backoff"}
)
HASH_LENGTH = 16
OUTCOME = (
    'has(branch.error) ? {"index": branch.index, "ok": false, "error": branch.error}'
    ' : {"index": branch.index, "ok": true, "result": branch.output}'
)
ALL_OK = "state.outcomes.all(one, one.ok)"
RESULTS = "state.outcomes.map(one, one.result)"
FAILURES = "state.outcomes.filter(one, !one.ok)"
OUTCOMES = "state.outcomes"


class GeneratedRun(Struct, frozen=True):
    """A definition as a document, and the input of one run of it."""

    document: Document
    input: Document


# --- groups -------------------------------------------------------------------------------------


def group_of(
    members: Sequence[Submission[Any]],
    *,
    on_success: Callback | None,
    on_failure: Callback | None,
    on_complete: Callback | None,
) -> GeneratedRun:
    """The run of a group: all members at once, then the callbacks."""
    kinds: dict[bytes, int] = {}
    nodes: Document = {"start": {}}
    items: list[Document] = []
    for member in members:
        node, arguments = _member(member.new_task)
        kind = kinds.setdefault(encode(node), len(kinds))
        nodes[f"member_{kind}"] = node
        items.append({"kind": kind, "arguments": arguments})
    if not members:
        nodes["member_0"] = {}
    nodes["done"] = {}
    count = max(1, len(kinds))
    transitions = _fan_out(nodes, count)
    rule = {
        "joins_transition": "members",
        "on_branch_failure": "continue",
        "merge": {"source": OUTCOME, "target": "state.outcomes", "strategy": "collect"},
    }
    transitions += [
        {"from": f"member_{kind}", "to": "done", "synchronization": rule} for kind in range(count)
    ]
    callbacks = {
        "on_success": (on_success, RESULTS),
        "on_failure": (on_failure, FAILURES),
        "on_complete": (on_complete, OUTCOMES),
    }
    given = {
        name: _add_callback(nodes, name, callback, argument)
        for name, (callback, argument) in callbacks.items()
        if callback is not None
    }
    transitions += _callback_transitions(nodes)
    output = {"outcomes": OUTCOMES, "callback": "has(state.callback) ? state.callback : null"}
    document = {
        "initial_node": "start",
        "nodes": nodes,
        "transitions": transitions,
        "output": output,
    }
    return GeneratedRun(_named("group", document), {"members": items, "given": given})


def _member(task: NewTask) -> tuple[Document, Document]:
    """The node of a member, and its arguments by name."""
    arguments = _arguments(task)
    node = _node(task)
    node["input"] = _fields_of("branch.item.arguments", arguments)
    return node, arguments


def _fan_out(nodes: Document, count: int) -> list[Document]:
    """One branch for each member, in the order of the group; its kind decides on its node."""
    fan_out = {"from": "start", "id": "members", "foreach": "input.members"}
    if count == 1:
        return [{**fan_out, "to": "member_0"}]
    nodes["route"] = {}
    return [{**fan_out, "to": "route"}] + [
        {"from": "route", "to": f"member_{kind}", "condition": f"branch.item.kind == {kind}"}
        for kind in range(count)
    ]


def _add_callback(nodes: Document, name: str, callback: Callback, argument: str) -> Document:
    """Add the node of a callback; returns the arguments that were given with it."""
    node, given = _link(callback, argument, f"input.given.{name}")
    if name != "on_complete":
        node["output"] = {"state.callback": "result"}
    nodes[name] = node
    return given


def _callback_transitions(nodes: Document) -> list[Document]:
    """The outcome decides on the first callback; `on_complete` follows, also if that one failed.

    A run whose failed members are no callback's concern fails.
    """
    last = "on_complete" if "on_complete" in nodes else None
    transitions: list[Document] = []
    for name, condition in (("on_success", ALL_OK), ("on_failure", f"!({ALL_OK})")):
        if name in nodes:
            transitions.append({"from": "done", "to": name, "condition": condition})
            if last is not None:
                nodes[name]["on_error"] = [{"to": last}]
                transitions.append({"from": name, "to": last})
                nodes["callback_failed"] = {"end": "failed"}
                is_failed = f"has(nodes.{name}) && has(nodes.{name}.error)"
                transitions.append({"from": last, "to": "callback_failed", "condition": is_failed})
        elif last is not None:
            transitions.append({"from": "done", "to": last, "condition": condition})
        elif name == "on_failure":
            nodes["members_failed"] = {"end": "failed"}
            transitions.append({"from": "done", "to": "members_failed", "condition": condition})
    return transitions


# --- chains -------------------------------------------------------------------------------------


def chain_of(first: Submission[Any], links: Sequence[Callback]) -> GeneratedRun:
    """The run of a chain: each task gets the result of the one before it."""
    node, arguments = _node(first.new_task), _arguments(first.new_task)
    node["input"] = _fields_of("input.first", arguments)
    nodes: Document = {"step_0": node}
    transitions: list[Document] = []
    given: Document = {}
    for number, link in enumerate(links, start=1):
        before, name = f"step_{number - 1}", f"step_{number}"
        nodes[name], given[name] = _link(link, f"nodes.{before}.result", f"input.given.{name}")
        transitions.append({"from": before, "to": name})
    document = {
        "initial_node": "step_0",
        "nodes": nodes,
        "transitions": transitions,
        "output": {"result": f"nodes.step_{len(links)}.result"},
    }
    return GeneratedRun(_named("chain", document), {"first": arguments, "given": given})


def decoder_of_last(first: Submission[Any], links: Sequence[Callback]) -> msgspec.json.Decoder[Any]:
    """The decoder of the result of a chain."""
    if not links:
        return first.decoder
    last = links[-1]
    if isinstance(last, Submission):
        return last.decoder
    task = last.task if isinstance(last, PartialCall) else last
    return task.arguments.result_decoder


# --- parts --------------------------------------------------------------------------------------


def _link(link: Callback, argument: str, given_at: str) -> tuple[Document, Document]:
    """The node of a task whose first argument is an expression, and its other arguments.

    A call has all of its arguments: its node takes no result of others.
    """
    if isinstance(link, Submission):
        arguments = _arguments(link.new_task)
        return {**_node(link.new_task), "input": _fields_of(given_at, arguments)}, arguments
    task, given = (link.task, link.given) if isinstance(link, PartialCall) else (link, {})
    first = task.arguments.first
    if first is None:
        raise Invalid(
            f"task {task.name!r} takes no argument, but gets the result of the tasks before it",
            task=task.name,
        )
    if first in given:
        raise Invalid(
            f"task {task.name!r}: {first!r} is the result of the tasks before it; give only the "
            "other arguments",
            task=task.name,
        )
    node = _node(task.template)
    node["input"] = {first: argument, **_fields_of(given_at, given)}
    return node, _plain(given)


def _fields_of(place: str, arguments: Mapping[str, Any]) -> Document:
    """Expressions for the fields of an object; a name may be a reserved word of expressions."""
    return {name: f"{place}[{encode(name).decode()}]" for name in sorted(arguments)}


def _node(task: NewTask) -> Document:
    """A node for a task, with the options of the task that a node can have."""
    defaults = NewTask(name=task.name)
    for option in NewTask.__struct_fields__:
        if option in {"name", "payload"} or option in CARRIED:
            continue
        if getattr(task, option) != getattr(defaults, option):
            raise Invalid(
                f"task {task.name!r}: {option} is not an option of a task in a group or chain",
                field=option,
            )
    return dict(node_options_of(task))


def _arguments(task: NewTask) -> Document:
    arguments = msgspec.json.decode(task.payload)
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise Invalid(f"task {task.name!r}: its payload in a group or chain must be an object")
    return arguments


def _plain(given: Mapping[str, Any]) -> Document:
    plain: Document = msgspec.json.decode(encode(dict(given)))
    return plain


def _named(kind: str, document: Document) -> Document:
    digest = hashlib.sha256(
        msgspec.json.encode(document, order="sorted", enc_hook=list)
    ).hexdigest()
    return {"name": f"{kind}-{digest[:HASH_LENGTH]}", **document}
