"""Sub-workflow runs: what happens to a run reaches the runs inside it, and the other way round."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TurnedClock
from tests.engine.flows import Failure, Flows, flowing
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


def fail(_: Any) -> Any:
    raise Failure


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


async def test_a_retry_goes_on_inside_the_sub_run_that_failed(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    await flows.put(LINE.replace("task: second,", "task: second, retry: {max_attempts: 1},"))
    await flows.put(NEST)
    run_id = await flows.start(OUTER)
    paid: list[int] = []
    await flows.work(worker, {"first": lambda _: paid.append(1)})
    await flows.work(worker, {"second": fail})
    assert await states(flows) == ["failed", "failed", "failed"]

    await flows.steer(run_id, "retry")

    assert await states(flows) == ["running", "running", "running"]
    await flows.work_off(worker, {"second": lambda _: 2})
    assert paid == [1]
    assert await states(flows) == ["completed", "completed", "completed"]
    assert [(await flows.record(one.id)).parent_token for one in await flows.runs()] == [None, 2, 2]
    assert all([await flows.replays(one.id) for one in await flows.runs()])


async def test_a_retry_uses_the_result_of_a_sub_run_that_was_retried_on_its_own(
    flows: Flows,
) -> None:
    worker = await flows.engine.register()
    await flows.put(LINE.replace("task: first,", "task: first, retry: {max_attempts: 1},"))
    run_id = await flows.start(NEST)
    await flows.work(worker, {"first": fail})
    _, child = await flows.runs()
    await flows.steer(child.id, "retry")
    await flows.work_off(worker, {"first": lambda _: 1, "second": lambda _: 2})
    assert await states(flows) == ["failed", "completed"]

    await flows.steer(run_id, "retry")

    assert await flows.output(run_id) == {"got": 2}
    assert len(await flows.runs()) == 2


async def test_a_retry_after_a_restart_goes_on_inside_the_sub_run(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        await flows.put(LINE.replace("task: second,", "task: second, retry: {max_attempts: 1},"))
        run_id = await flows.start(NEST)
        await flows.work(worker, {"first": lambda _: 1})
        await flows.work(worker, {"second": fail})
    async with flowing(tmp_path / "rota.db", clock) as flows:
        await flows.steer(run_id, "retry")
    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        await flows.work_off(worker, {"second": lambda _: 2})

        assert await flows.output(run_id) == {"got": 2}
        assert len(await flows.runs()) == 2
