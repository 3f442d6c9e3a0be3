"""The page on definitions of workflows: every field, merge strategy, problem and error there is.

The descriptions of fields are here, beside the page. A field, a strategy or a code without a
description, or a description of something that no longer exists, stops the build of the page.
"""

import ast
import inspect
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from reference_pages.markdown import code, codes, document, sentence, table
from rota.core import workflow as package
from rota.core.workflow.definition.expressions import NAMES
from rota.core.workflow.definition.model import (
    Approval,
    Definition,
    ErrorRoute,
    Merge,
    NodeDefinition,
    OutgoingSignal,
    RetryPolicy,
    Synchronization,
    Transition,
    WaitFor,
)
from rota.engine import runs

DEFINITION = {
    "name": "of the workflow",
    "description": "for people",
    "input": "JSON Schema of what a run is started with; an input that breaks it starts nothing",
    "state": "JSON Schema of the state at the end of a run; mappings that break it for certain "
    "are refused",
    "initial_node": "where a run begins",
    "nodes": "by id: letters, digits and `_`",
    "transitions": "what follows what",
    "output": "what a completed run gives, each value an expression; absent: the `output` document",
    "output_schema": "JSON Schema of what a completed run gives",
    "on_no_route": "a token that no transition fits: it ends, or the run fails with `no_route`",
    "timeout_ms": "most time a run may take; beyond it, it is `timed_out`",
    "max_depth": "most sub-workflows inside each other",
}
NODE = {
    "task": "the task to run, on the ordinary queue by ordinary workers",
    "workflow": "the workflow to run: `name`, the newest, or `name@version`",
    "wait_for": "wait for a signal; its payload is the result",
    "approval": "wait for the yes or no of a person: a signal named like the node",
    "sleep_ms": "wait that long",
    "signal": "send a signal, to another run or to its own; see below",
    "end": "end the run at once, as completed, failed or cancelled, whatever else is under way",
    "input": "what the task or sub-workflow gets: each value an expression",
    "output": "what is kept: `state.a.b` or `output.x` to an expression over `result`",
    "output_schema": "JSON Schema of the result; one that breaks it fails the run",
    "requires": "capabilities a worker must have",
    "queue": "of the task",
    "priority": "of the task; higher first",
    "retry": "attempts of the task, and the wait between them",
    "timeout_ms": "of an attempt, of a sub-workflow, or of a wait",
    "on_error": "where a failure leads; the first route that matches is taken",
    "compensate": "the task that undoes this node if the run fails later",
    "concurrency": "limits on how many tasks of a key run at once, as those of a task",
    "rate": "limits on how many tasks of a key start in a period, as those of a task",
    "fair_key": "the tenant of the task, between which its queue is fair",
}
TRANSITION = {
    "from": "the node it leaves",
    "to": "the node it leads to",
    "id": "what a join and the journal call it",
    "priority": "tiers: of the lowest number with a match, all that match are taken",
    "condition": "an expression that must be true",
    "spawn_count": "fan out: that many branches; a number or an expression",
    "foreach": "fan out: a branch for each item of the list an expression gives",
    "sibling_group": "fan out: the transitions of one node in a group are branches of one scope",
    "max_parallel": "most branches under way at once",
    "open": "of a `foreach`: its scope takes more branches `until_done`, while one is under way, "
    "or `until_closed`, until the last ones are added, or the scope is completed or cancelled",
    "synchronization": "a join; see below",
    "max_iterations": "most times it is taken in a run, or in a branch; each cycle needs one",
}
SYNCHRONIZATION = {
    "wait_for": "`all`, `any`, or `{m_of_n: K}` branches; K is a number, or an expression that is "
    "evaluated when the fan-out opens its scope: `size(input.judges) / 2 + 1`",
    "joins_transition": "the id or the `sibling_group` of the fan-out whose branches are joined",
    "merge": "what of the branches goes where; one or a list",
    "timeout_ms": "most time from the fan-out to the join",
    "on_timeout": "fail the run, or go on with what has arrived",
    "late": "what becomes of the others when a join fires early: cancelled, or left to finish and "
    "ignored",
    "on_branch_failure": "fail the run, or go on without that branch",
    "complete_on": "`{signal: name}`: a signal of this name fires the join with what has arrived; "
    "one that comes while no scope is open is refused",
}
MERGE = {
    "source": "an expression in the branch; `branch.output` is the result of the node that "
    "arrived, `branch.error` that of a branch that failed",
    "target": "a place in `state` or `output`",
    "strategy": "see below",
    "key": "an expression in the branch, for `keyed`",
}
SMALL: dict[str, tuple[type[Struct], dict[str, str]]] = {
    "retry": (
        RetryPolicy,
        {
            "max_attempts": "in all",
            "backoff": "as for [a task](../how-to/retries-and-backoff.md)",
        },
    ),
    "wait_for": (
        WaitFor,
        {
            "event": "name of the signal",
            "timeout_ms": "then the node fails with `timeout`; counted from when it began to wait",
            "repeat": "wait again after each signal: true, or for how many of them",
            "until": "of a repeated wait, `{event: NAME}`: the signal that ends it",
            "transient": "take only signals that come while it waits; earlier ones are lost",
        },
    ),
    "approval": (
        Approval,
        {"title": "for the person who decides", "timeout_ms": "then the node fails with `timeout`"},
    ),
    "signal": (
        OutgoingSignal,
        {
            "run": "an expression that gives the id of a run; absent: the node's own run",
            "name": "name of the signal, as it is written",
            "payload": "an expression, or an object with an expression for each field",
        },
    ),
    "on_error": (
        ErrorRoute,
        {"to": "the node that follows", "match": "an expression over `error`; absent: any error"},
    ),
}
STRATEGIES = {
    "append": "a list of the values; when each of them is a list, of their items",
    "collect": "a list of the values, as they are",
    "merge": "one object of all fields; of two the branch with the higher index wins",
    "keyed": "an object: from `key`, or else the branch index, to the value",
    "last_wins": "the value of the branch with the highest index",
}
NAME_MEANINGS = {
    "input": "what the run was started with; never changes",
    "state": "what nodes have written, as this branch sees it",
    "output": "as `state`; what the run gives unless the definition maps it",
    "nodes": "`nodes.<id>.result` of each node that is through, or `.error`",
    "run": "`run.id`, and `run.parent_id` in a sub-workflow (else null)",
    "result": "of the node; in its `output` mapping",
    "branch": "`index`, `total`, `item`, and `parent` for the branch outside; in a branch. In a "
    "merge also `output` or `error`",
    "error": "`type`, `message` and more; in `on_error`",
}
PROBLEMS = {
    "unreadable": "neither YAML nor JSON",
    "too_long": "the text is longer than a definition may be",
    "too_slow": "to check the definition took longer than it may",
    "too_expensive": "to check the definition took more memory than it may",
    "too_many_nodes": "more nodes than a workflow may have",
    "too_many_transitions": "more transitions than a workflow may have",
    "bad_shape": "a value of the wrong type, out of its range, or missing",
    "unknown_field": "a field that there is not",
    "duplicate_id": "an id or a name that stands there twice",
    "unknown_node": "a node that there is not",
    "several_kinds": "a node with the fields of two kinds, such as `task` and `workflow`",
    "bad_limit": "a node names a key twice, or a rate that can let no task start",
    "limit_without_task": "a node that runs no task has limits or a tenant",
    "leaves_the_end": "a transition out of an `end`",
    "bad_wait": "an `until` without `repeat`, or with the signal that is waited for",
    "quoted_name": "the name of a signal in quotes, as if it were an expression",
    "bad_target": "an output or merge target outside `state` and `output`",
    "unknown_state_path": "a path that the schema of the state excludes is written or read",
    "state_type": "a value is written whose type the schema of the state excludes there",
    "bad_schema": "a schema that is none, or a pattern with look-around or back-references",
    "remote_reference": "a `$ref` or `$schema` that leads out of the schema; nothing is fetched",
    "expensive_schema": "a schema that has too many parts, or makes too many checks of one value",
    "split_group": "a `sibling_group` of several nodes",
    "open_without_foreach": "`open` on a transition that is no `foreach`, or is in a group",
    "two_fan_outs": "`foreach` and `spawn_count` on one transition",
    "join_and_fan_out": "a transition that joins and fans out",
    "needless_key": "a `key` that its strategy does not use",
    "unreachable_node": "no way leads to the node",
    "endless_cycle": "a cycle without `max_iterations`",
    "fan_out_in_itself": "a fan-out inside its own branches, which would never all be in",
    "unknown_fan_out": "a join of something that is no fan-out",
    "join_out_of_reach": "a join where no branch of its fan-out can come",
    "different_joins": "transitions of one join whose rules differ",
    "quorum_too_high": "more branches wanted than there are",
    "bad_expression": "CEL that cannot be read",
    "expression_budget": "comprehensions inside each other, more than there may be",
    "unknown_name": "a name that no expression knows",
    "name_out_of_scope": "a name that is not there at this place",
}
WARNINGS = {
    "unwritten_state": "an expression reads a part of the state that no output mapping and no "
    "merge writes, and that the schema of the state does not name",
    "unknown_input": "an expression reads a field that the schema of the input does not have: a "
    "closed schema, or a field with nearly the same name",
    "unknown_result": "an expression reads `nodes.<id>` of a node that there is not",
}
ERRORS = {
    "diverged": "a function does not do what its log says; the run is paused",
    "report_gap": "a function reported without what came before",
    "report_invalid": "a worker reported what no function can have done",
    "too_many_items": "a `map` of a function has too many items",
    "too_many_operations": "a function has done too much without `ctx.restart`",
    "too_many_stream_values": "a function has streamed too many values",
    "expression_budget": "an expression would take more steps than it may, or gives more bytes",
    "condition_failed": "a condition failed, or gave neither true nor false",
    "mapping_failed": "an input or output mapping failed",
    "fan_out_failed": "`foreach` gave no list, `spawn_count` no number, or too many branches",
    "quorum_failed": "the expression of a quorum failed, or gave no count that a join may have",
    "merge_failed": "a merge failed",
    "output_failed": "the output mapping of the run failed",
    "output_invalid": "a result or an output breaks its schema",
    "state_invalid": "the state breaks its schema at the end",
    "quorum_unreachable": "too few branches are left for a join",
    "join_timeout": "a join's time is over",
    "no_route": "no transition fits, and `on_no_route` is `fail`",
    "ended_failed": "the run came to a node with `end: failed`",
    "rejected": "an approval was refused",
    "signal_refused": "the signal of a node could not be delivered; `code` says why",
    "timeout": "an attempt, a wait or the run took too long",
    "cancelled": "the task or the run was cancelled",
    "sub_workflow": "a sub-workflow could not begin",
    "result_unreadable": "a result that no machine can read, such as 1e999",
    "unknown_node": "a fork from a node that there is not",
    "too_many_steps": "the run went on and on without anything happening outside it",
    "error": "a failure that said nothing else",
}
COMPUTED = {
    "unknown_field",
    "bad_shape",
    "unknown_name",
    "bad_expression",
    "state_invalid",
    "too_many_nodes",
    "too_many_transitions",
    "expression_budget",
    "too_slow",  # these two are the gateway's
    "too_expensive",
}


def page() -> str:
    return document(
        "# Definition of a workflow",
        "YAML or JSON, or built in Python; one immutable value in each case, known by the hash of "
        "its content. How the parts play together is told in "
        "[Workflows](../explanation/workflows.md).",
        "A field that ends in `_ms` may be written without that ending, as a text with its unit: "
        "`timeout: 30s`, `sleep: 1h30m`. The units are `ms`, `s`, `m`, `h`, `d` and `w`.",
        _fields(Definition, DEFINITION),
        "## Nodes",
        f"A node is one of {codes(_kinds())}, or none of them: then it passes through, and its "
        "`input` is its result.",
        _fields(NodeDefinition, NODE),
        'An `approval` may be just `true`. Yes is a payload of `true` or `{"approved": true}`; '
        "anything else is no, and fails the node with `rejected`.",
        *(
            block
            for name, (kind, meanings) in SMALL.items()
            for block in (f"### `{name}`", _fields(kind, meanings))
        ),
        "## Transitions",
        _fields(Transition, TRANSITION),
        "### `synchronization`",
        "All transitions that join one scope at one node are one join, whatever nodes they come "
        "from; they must say the same.",
        _fields(Synchronization, SYNCHRONIZATION),
        "### `merge`",
        _fields(Merge, MERGE),
        "Always in the order of the branches, never in that of their arrival.",
        table(("strategy", "gives"), _told(STRATEGIES, _strategies(), "strategies")),
        "## Expressions",
        "[CEL](https://cel.dev). Texts in `input`, `output`, `condition`, `foreach`, "
        "`spawn_count`, `match`, `source` and `key` are expressions; other values stand for "
        "themselves. A text is written with quotes inside: `\"'draft'\"`.",
        table(("name", "is"), _told(NAME_MEANINGS, NAMES, "names")),
        "## Problems",
        "`rota validate`, `POST /api/workflows/validate` and a refused `PUT` tell all at once, "
        "each with its path, and its line where the definition was a text.",
        table(("code", "meaning"), _told(PROBLEMS, _problem_codes() - set(WARNINGS), "codes")),
        "### Warnings",
        "`rota validate`, `POST /api/workflows/validate` and `flow.warnings()` also list "
        "expressions that probably fail. A definition with warnings can be stored and run: a fork "
        "may give a run what its definition does not write. A place that the expression tests for "
        "with `has` is no warning.",
        table(("code", "meaning"), _told(WARNINGS, _problem_codes() & set(WARNINGS), "warnings")),
        "## Errors of runs",
        "`error.type` of a run that failed. An error of a task keeps the type its handler gave "
        "it, and `node` says where it happened; one of the workflow itself has a `place` in the "
        "definition.",
        table(("type", "meaning"), _told(ERRORS, _error_types(), "types of errors")),
    )


def _told(
    meanings: Mapping[str, str], there: Collection[str], what: str
) -> Iterator[tuple[str, str]]:
    """A row for each, in the order of the meanings; both must name the same."""
    if differing := set(meanings) ^ set(there):
        raise SystemExit(f"{__file__}: {what} told and there differ in {sorted(differing)}")
    return ((code(name), sentence(meaning)) for name, meaning in meanings.items())


def _fields(kind: type[Struct], meanings: Mapping[str, str]) -> str:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    told = _told(meanings, fields, f"fields of {kind.__name__}")
    rows = [
        (name, _values(fields[name.strip("`")].type), _default(fields[name.strip("`")]), meaning)
        for name, meaning in told
    ]
    return table(("field", "values", "default", "meaning"), rows)


def _default(field: Any) -> str:
    if field.required:
        return "needed"
    value = field.default if field.default is not NODEFAULT else None
    if value in (None, "", ()):
        return ""
    return code(str(value).lower() if isinstance(value, bool) else value)


def _values(kind: Any) -> str:
    """The type of a field as people say it, from its JSON Schema."""
    schema, parts = msgspec.json.schema_components([kind])
    one = schema[0]
    found = [_value(each, parts) for each in one.get("anyOf", [one])]
    return " or ".join(word for word in dict.fromkeys(found) if word)


WORDS = {
    "integer": "a whole number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def _value(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        part = parts[schema["$ref"].rpartition("/")[2]]
        return "an object" if part.get("title") not in {"Node", "Transition"} else part["title"]
    if "enum" in schema:
        return codes(one for one in schema["enum"] if one is not None)
    return WORDS.get(schema.get("type", ""), "")


def _kinds() -> list[str]:
    """What a node can be: the fields before those that every node has."""
    names = [field.encode_name for field in msgspec.structs.fields(NodeDefinition)]
    return names[: names.index("input")]


def _strategies() -> tuple[str, ...]:
    return get_args(get_type_hints(Merge)["strategy"])


# --- what the code can say ----------------------------------------------------------------------


def _problem_codes() -> set[str]:
    found = set()
    for call in _calls("problem", "DefinitionProblem"):
        words = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "code")]
        found |= {str(one.value) for one in words if isinstance(one, ast.Constant)}
    for call in _calls("SchemaProblem"):
        found |= {str(one.value) for one in call.args[:1] if isinstance(one, ast.Constant)}
    return found | (COMPUTED & PROBLEMS.keys())


def _error_types() -> set[str]:
    found = {
        str(call.args[0].value)
        for call in _calls("RunError", "failing_as")
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    for tree in _trees():
        found |= {
            str(value.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "type"
            if isinstance(value, ast.Constant)
        }
    return found | (COMPUTED & ERRORS.keys())


def _calls(*names: str) -> Iterator[ast.Call]:
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names:
                yield node


def _trees() -> Iterator[ast.Module]:
    """The code that says what is wrong with definitions and runs."""
    for root in (package, runs):
        for one in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            yield ast.parse(inspect.getsource(import_module(one.name)))
