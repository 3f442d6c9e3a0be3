import pytest

from rota.core.workflow.commands import Publishing
from rota.core.workflow.definition.model import Definition, NodeDefinition
from rota.store.workflow.definitions import WorkflowStore
from tests.store.opened import NOW_MS, Opened


@pytest.fixture
def workflows(store: Opened) -> WorkflowStore:
    return WorkflowStore(store.tx)


def put(workflows: WorkflowStore, text: str, publish: Publishing = "always") -> int:
    nodes = {"only": NodeDefinition(task="work")}
    definition = Definition(name="flow", description=text, initial_node="only", nodes=nodes)
    return workflows.put(definition, now_ms=NOW_MS, publish=publish).version.version


def test_the_version_that_was_put_last_is_current(workflows: WorkflowStore) -> None:
    seen = [(put(workflows, text), workflows.current("flow")) for text in "abacb"]

    assert seen == [(1, 1), (2, 2), (1, 1), (3, 3), (2, 2)]
    assert [(one.name, one.version) for one in workflows.all()] == [("flow", 2)]
    assert [one.version for one in workflows.versions("flow")] == [3, 2, 1]


def test_a_try_out_is_a_version_that_is_not_current(workflows: WorkflowStore) -> None:
    tried = put(workflows, "a", "never")
    before = workflows.current("flow")
    first = put(workflows, "b")

    assert (tried, before, first) == (1, None, 2)
    assert put(workflows, "a", "never") == 1
    assert workflows.current("flow") == 2
    assert put(workflows, "a") == workflows.current("flow") == 1


def test_an_implicit_deployment_is_published_only_when_it_is_new(workflows: WorkflowStore) -> None:
    put(workflows, "a", "new")
    put(workflows, "b", "new")
    put(workflows, "a", "new")

    assert workflows.current("flow") == 2
    put(workflows, "c", "never")
    put(workflows, "c", "new")
    assert workflows.current("flow") == 3
