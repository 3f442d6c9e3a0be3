"""Expensive expressions on the engine: their run fails, and everything else goes on."""

import pytest

from rota.core.workflow.commands import PutWorkflow
from rota.core.workflow.definition.expressions import BUDGET
from rota.core.workflow.definition.model import Definition, NodeDefinition
from rota.errors import Invalid
from tests.engine.flows import Flows
from tests.engine.graphs import LINE
from tests.engine.running import Engine, done

COSTLY = """
name: costly
initial_node: count
nodes:
  count: {task: count, input: {n: "size(input.rows.map(r, input.rows.map(s, s)))"}}
"""
ROWS = list(range(20_000))


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


@pytest.mark.timeout(60)
async def test_a_run_with_an_expensive_expression_fails_while_another_goes_on(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register()
    other = await flows.start(LINE)
    (first,) = await engine.lease(worker)

    costly = await flows.start(COSTLY, {"rows": ROWS})
    beaten = await engine.beat(worker)
    await engine.report(worker, done(first, result=b"1"))
    (second,) = await engine.lease(worker)
    await engine.report(worker, done(second, result=b"2"))

    shown = await flows.look(costly)
    assert shown.record.state == "failed"
    assert shown.record.error is not None
    assert shown.record.error["type"] == BUDGET
    assert shown.record.error["place"] == "nodes.count.input.n"
    assert beaten is not None
    assert await flows.output(other) == {"second": 2}


async def test_the_journal_of_a_run_that_was_too_expensive_replays(flows: Flows) -> None:
    run_id = await flows.start(COSTLY, {"rows": ROWS})

    assert await flows.replays(run_id)


async def test_a_schema_that_was_kept_before_it_was_refused_starts_no_run(flows: Flows) -> None:
    schema = {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    definition = Definition(
        name="old", initial_node="a", nodes={"a": NodeDefinition(task="work")}, input=schema
    )
    await flows.command(PutWorkflow(definition))

    with pytest.raises(Invalid, match="remote_reference"):
        await flows.begin("old", {"a": 1})
