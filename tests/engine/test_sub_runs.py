"""Sub-workflow runs: what happens to a run reaches the runs inside it, and the other way round."""

from pathlib import Path
from typing import Any

import pytest

from rota.core.workflow.commands import SteerRun
from tests.conftest import TurnedClock
from tests.engine.flows import Failure, Flows, Handler, flowing, payload_of, perform
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


# --- compensation ---------------------------------------------------------------------------------

ORDER = """
name: order
initial_node: pay
nodes:
  pay: {task: pay, compensate: refund, queue: money}
  ship: {task: ship, retry: {max_attempts: 1}}
transitions: [{from: pay, to: ship}]
"""
BESIDE = """
name: beside
initial_node: book
nodes:
  book: {task: book, compensate: unbook}
  order: {workflow: order}
  other: {task: other, retry: {max_attempts: 1}}
transitions: [{from: book, to: order}, {from: book, to: other}]
"""
AFTER = BESIDE.replace("{from: book, to: other}", "{from: order, to: other}")


class Shop:
    """Handlers that note what was done, in order."""

    def __init__(self, **failing: Any) -> None:
        self.done: list[str] = []
        names = ("book", "unbook", "pay", "refund", "ship", "other")
        self.handlers = {name: self._handler(name) for name in names} | failing

    def _handler(self, name: str) -> Handler:
        def handle(_: Any) -> str:
            self.done.append(name)
            return f"{name} done"

        return handle


async def test_a_failing_run_undoes_its_sub_runs_and_then_itself(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=5)
    shop = Shop()
    await flows.put(ORDER)
    run_id = await flows.start(BESIDE)
    await flows.work(worker, shop.handlers)
    leases = {one.lane.name: one for one in await engine.lease(worker, 5)}
    await engine.report(worker, perform(leases["pay"], shop.handlers))

    await engine.report(worker, perform(leases["other"], {"other": fail}))

    assert await states(flows) == ["running", "running"]
    await flows.work_off(worker, shop.handlers)
    assert shop.done == ["book", "pay", "refund", "unbook"]
    assert await states(flows) == ["failed", "cancelled"]
    error = (await flows.record(run_id)).error
    assert error is not None
    assert (error["type"], error["node"]) == ("Failure", "other")
    assert "not_undone" not in error
    assert all([await flows.replays(one.id) for one in await flows.runs()])


async def test_a_failing_run_undoes_a_sub_run_that_has_completed(
    tmp_path: Path, clock: TurnedClock
) -> None:
    shop = Shop(other=fail)
    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        await flows.put(ORDER)
        run_id = await flows.start(AFTER)
        for _ in range(4):
            await flows.work(worker, shop.handlers)
        assert await states(flows) == ["running", "completed"]
    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        (undoing,) = await flows.engine.lease(worker)
        assert (undoing.lane.name, undoing.lane.queue) == ("refund", "money")
        assert payload_of(undoing)["node"] == "pay"
        assert payload_of(undoing)["result"] == "pay done"
        await flows.engine.report(worker, perform(undoing, shop.handlers))
        await flows.work_off(worker, shop.handlers)

        assert shop.done == ["book", "pay", "ship", "refund", "unbook"]
        assert await flows.state(run_id) == "failed"
        assert await flows.replays(run_id)


RACE = """
name: race
initial_node: start
nodes: {start: {}, order: {workflow: order}, other: {task: other}, end: {}}
transitions:
  - {from: start, to: order, sibling_group: race}
  - {from: start, to: other, sibling_group: race}
  - {from: order, to: end, synchronization: {wait_for: any, joins_transition: race}}
  - {from: other, to: end, synchronization: {wait_for: any, joins_transition: race}}
"""
AROUND = """
name: around
initial_node: race
nodes: {race: {workflow: race}, last: {task: last, retry: {max_attempts: 1}}}
transitions: [{from: race, to: last}]
"""


async def test_a_failing_run_undoes_the_branch_that_its_completed_sub_run_had_cancelled(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=5)
    shop = Shop(last=fail)
    await flows.put(ORDER)
    await flows.put(RACE)
    run_id = await flows.start(AROUND)
    leases = {one.lane.name: one for one in await engine.lease(worker, 5)}
    await engine.report(worker, perform(leases["pay"], shop.handlers))

    await engine.report(worker, perform(leases["other"], shop.handlers))
    await flows.work_off(worker, shop.handlers)

    assert await states(flows) == ["failed", "completed", "cancelled"]
    assert shop.done == ["pay", "other", "refund"]
    error = (await flows.record(run_id)).error
    assert error is not None
    assert "not_undone" not in error
    assert all([await flows.replays(one.id) for one in await flows.runs()])


async def test_cancelling_a_run_undoes_its_sub_runs_and_force_lists_them(flows: Flows) -> None:
    worker = await flows.engine.register()
    shop = Shop()
    await flows.put(ORDER)
    gentle = await flows.start(AFTER)
    await flows.work(worker, shop.handlers)
    await flows.work(worker, shop.handlers)
    assert (await flows.steer(gentle, "cancel")).state == "running"
    await flows.work_off(worker, shop.handlers)
    assert await states(flows) == ["cancelled", "cancelled"]
    assert shop.done == ["book", "pay", "refund", "unbook"]

    forced = (await flows.begin("beside")).record.id
    await flows.work(worker, shop.handlers)
    await flows.work(worker, shop.handlers)
    await flows.command(SteerRun(run_id=forced, action="cancel", reason="now", force=True))

    record = await flows.record(forced)
    assert record.state == "cancelled"
    assert record.error is not None
    assert (record.error["type"], record.error["message"]) == ("cancelled", "now")
    assert [one["node"] for one in record.error["not_undone"]] == ["order.pay", "book"]
    assert not await flows.work_off(worker, shop.handlers)
    assert all([await flows.replays(one.id) for one in await flows.runs()])
