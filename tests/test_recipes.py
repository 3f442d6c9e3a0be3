"""Lists that must agree, so that a change by a recipe of CONTRIBUTING.md reaches every place.

The type checker finds most places. These are the others: wire, store, SDK, command line and
dashboard name the same things without importing each other.
"""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from rota.cli.commands.tasks.submit import submit
from rota.core.flows.model import Concurrency, Rate
from rota.core.tasks.model import Backoff, NewTask, TaskOptions, options_of
from rota.core.tasks.unique import Debounce, Unique
from rota.core.workflow.definition.model import NODE_KINDS, NodeDefinition
from rota.messages import TaskView
from rota.sdk.task import Options
from rota.sdk.workflow import NodeOptions

SOURCE = Path(__file__).parent.parent / "src" / "rota"

# --- a task option ------------------------------------------------------------------------------

OPTIONS = set(NewTask.__struct_fields__) - {"name", "payload"}
IN_THE_ROW = {"queue", "priority", "requires", "key"}  # columns of their own
GIVEN = {
    "delay_ms": 7,
    "run_at_ms": 7,
    "timeout_ms": 7,
    "start_within_ms": 7,
    "max_attempts": 7,
    "backoff": Backoff(initial_ms=7),
    "labels": ("seven",),
    "on_expiry": "discard",
    "unique": Unique(key="seven"),
    "debounce": Debounce(key="seven", wait_ms=7),
    "concurrency": Concurrency("seven"),
    "rate": [Rate("seven", limit=7)],
    "fair_key": "seven",
    "headers": {"seven": "7"},
}


def test_every_task_option_is_in_the_sdk() -> None:
    assert set(Options.__annotations__) == OPTIONS | written_forms(OPTIONS)


def written_forms(fields: set[str]) -> set[str]:
    """The names under which durations and moments may be given as programs write them."""
    return {name.removesuffix("_ms") for name in fields if name.endswith("_ms")}


def test_every_task_option_is_shown() -> None:
    assert set(TaskView.__struct_fields__) >= OPTIONS


def test_every_task_option_is_stored() -> None:
    assert set(TaskOptions.__struct_fields__) >= OPTIONS - IN_THE_ROW
    assert set(GIVEN) == OPTIONS - IN_THE_ROW


@pytest.mark.parametrize("option", GIVEN)
def test_a_task_option_that_is_given_is_stored(option: str) -> None:
    task = msgspec.structs.replace(NewTask(name="any"), **{option: GIVEN[option]})

    assert getattr(options_of(task), option) == GIVEN[option]


def test_every_task_option_is_on_the_command_line() -> None:
    flags = {flag.strip("-").replace("-", "_") for one in submit.params for flag in one.opts}

    assert {name.removesuffix("s") for name in OPTIONS} <= {
        name.removesuffix("s") for name in flags
    }


# --- a node kind --------------------------------------------------------------------------------


def test_every_field_of_a_node_is_in_the_sdk() -> None:
    fields = set(NodeDefinition.__struct_fields__)

    assert set(NodeOptions.__annotations__) == fields | written_forms(fields)


@pytest.mark.parametrize("kind", NODE_KINDS)
def test_every_node_kind_is_drawn_by_the_dashboard(kind: str) -> None:
    text = (SOURCE / "dashboard" / "static" / "graph_shape.js").read_text()

    assert re.search(rf"\b{kind}\b", text)


# --- an endpoint --------------------------------------------------------------------------------

RESOURCES = sorted((SOURCE / "gateways" / "http" / "resources").rglob("*.py"))


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: path.stem)
def test_an_endpoint_uses_only_parameters_of_its_paths(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r"\{(\w+)\}", " ".join(_routes_in(ast.parse(text)))))
    used = set(re.findall(r"\.path\[\"(\w+)\"\]", text))

    assert used <= named


def _routes_in(tree: ast.Module) -> list[str]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("/")
    ]
