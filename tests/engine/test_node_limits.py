"""Limits on the nodes of workflows: critical sections over runs."""

import pytest

from rota.core.workflow.definition.parser import read
from rota.core.workflow.definition.validator import problems_of
from tests.engine.flows import Flows
from tests.engine.running import Engine, done

ONE_AT_A_TIME = """
name: pay
initial_node: charge
nodes:
  charge:
    task: charge
    concurrency: {key: ledger, limit: 1}
    rate: {key: bank, limit: 1000}
    fair_key: shop
transitions: []
"""


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


async def test_tasks_of_nodes_with_one_key_run_one_at_a_time_over_all_runs(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(heartbeat_interval_ms=3_600_000)
    runs = [await flows.start(ONE_AT_A_TIME) for _ in range(3)]

    for _ in runs:
        (task,) = await engine.lease(worker)
        assert task.options.fair_key == "shop"
        assert await engine.lease(worker) == []
        await engine.report(worker, done(task))
        engine.clock.turn(10)

    assert [await flows.state(one) for one in runs] == ["completed"] * 3
    assert all([await flows.replays(one) for one in runs])


@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("{task: a, concurrency: [{key: k}, {key: k}]}", "bad_limit"),
        ("{sleep_ms: 5, concurrency: {key: k}}", "limit_without_task"),
        ("{fair_key: x}", "limit_without_task"),
    ],
)
def test_limits_that_make_no_sense_are_problems_of_the_definition(node: str, code: str) -> None:
    text = f"name: bad\ninitial_node: a\nnodes: {{a: {node}}}\n"

    definition, problems = read(text)
    assert definition is not None
    problems += problems_of(definition)

    assert code in {one.code for one in problems}
