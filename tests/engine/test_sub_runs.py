"""Sub-workflow runs: what happens to a run reaches the runs inside it, and the other way round."""

import pytest

from tests.engine.flows import Flows
from tests.engine.graphs import LINE
from tests.engine.running import Engine

NEST = """
name: nest
initial_node: sub
nodes: {sub: {workflow: line, output: {output.got: result.second}}}
"""
OUTER = "{name: outer, initial_node: sub, nodes: {sub: {workflow: nest}}}"


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


async def states(flows: Flows) -> list[str]:
    return [one.state for one in await flows.runs()]


async def test_pausing_and_resuming_a_run_reach_all_runs_inside_it(flows: Flows) -> None:
    worker = await flows.engine.register()
    await flows.put(LINE)
    await flows.put(NEST)
    run_id = await flows.start(OUTER)

    await flows.steer(run_id, "pause")
    await flows.work(worker, {"first": lambda _: 1})

    assert await states(flows) == ["paused", "paused", "paused"]
    assert not await flows.engine.lease(worker)
    await flows.steer(run_id, "resume")
    assert await states(flows) == ["running", "running", "running"]
    await flows.work_off(worker, {"second": lambda payload: payload["got"] + 1})
    assert await states(flows) == ["completed", "completed", "completed"]
    assert all([await flows.replays(one.id) for one in await flows.runs()])
