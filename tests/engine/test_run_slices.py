"""Runs that take many steps: in transactions of a bounded size, with other work in between."""

import asyncio
from pathlib import Path

import pytest

from rota.core.limits import STEPS_PER_SLICE
from rota.core.workflow.commands import AdvanceRuns
from rota.engine.runs.advancing.run_agenda import DECISIONS_PER_STEP
from rota.errors import Unavailable
from tests.conftest import TurnedClock
from tests.engine.flows import Flows, flowing
from tests.engine.graphs import FAN, LINE
from tests.engine.running import Engine

ROUNDS = 3 * STEPS_PER_SLICE
LOOP = f"""
name: loop
initial_node: a
nodes: {{a: {{output: {{state.n: '"n" in state ? state.n + 1 : 1'}}}}}}
transitions: [{{from: a, to: a, max_iterations: {ROUNDS}}}]
output: {{n: state.n}}
"""
PASSING = """
name: passing
initial_node: begin
nodes: {begin: {}, work: {}, end: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: input.count}
  - from: work
    to: end
    synchronization: {joins_transition: fan, merge: {source: branch.index, target: output.all}}
"""
MOST_DECISIONS = 6 * STEPS_PER_SLICE  # each round of the loop has five


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


async def test_a_long_loop_is_taken_in_slices_with_other_runs_and_heartbeats_in_between(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(LOOP)
    other = await flows.start(LINE)

    seen = 0
    while await flows.state(run_id) == "running":
        assert await engine.beat(worker) is not None
        await flows.work(worker, {"first": lambda _: 1, "second": lambda _: 2})
        seen += 1
        assert (await flows.command(AdvanceRuns())).count == 1

    assert seen == 3
    assert await flows.output(other) == {"second": 2}
    assert await flows.output(run_id) == {"n": ROUNDS + 1}
    assert max(len(one.decisions) for one in await flows.journal(run_id)) < MOST_DECISIONS
    assert (await flows.command(AdvanceRuns())).count == 0
    assert await engine.coordinator.queries.tasks.next_moment_ms() is None
    assert await flows.replays(run_id)


async def test_a_run_goes_on_with_its_steps_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with flowing(tmp_path / "rota.db", clock) as flows:
        run_id = await flows.start(LOOP)
        await flows.command(AdvanceRuns())
    async with flowing(tmp_path / "rota.db", clock) as flows:
        assert await flows.state(run_id) == "running"
        assert await flows.take_slices() == 2

        assert await flows.output(run_id) == {"n": ROUNDS + 1}
        assert await flows.replays(run_id)


async def test_a_slice_that_is_not_committed_is_taken_again(flows: Flows) -> None:
    run_id = await flows.start(LOOP)
    before = await flows.journal(run_id)
    flows.engine.database.commit_problem = OSError("the disk is full")

    with pytest.raises(Unavailable):
        await flows.command(AdvanceRuns())

    flows.engine.database.commit_problem = None
    assert await flows.journal(run_id) == before
    await flows.take_slices()
    assert await flows.output(run_id) == {"n": ROUNDS + 1}


async def test_commands_of_one_batch_hear_of_the_same_slices(flows: Flows) -> None:
    """A caller that asks until none is left must not stop because another took one."""
    await flows.start(LOOP)

    both = await asyncio.gather(flows.command(AdvanceRuns()), flows.command(AdvanceRuns()))

    assert [one.count for one in both] == [1, 1]


async def test_runs_that_take_many_steps_take_turns(flows: Flows) -> None:
    await flows.put(LOOP)
    shown = await asyncio.gather(*(flows.begin("loop") for _ in range(3)))
    runs = [one.record.id for one in shown]

    for _ in range(3):
        flows.engine.clock.turn(1)
        await flows.command(AdvanceRuns())

    assert [len(await flows.journal(one)) for one in runs] == [2, 2, 2]
    assert DECISIONS_PER_STEP < MOST_DECISIONS
    await flows.engine.coordinator.tick()  # takes all that is left
    assert [await flows.state(one) for one in runs] == ["completed"] * 3


async def test_a_large_fan_out_is_dispatched_in_slices(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=100)
    size = 2 * STEPS_PER_SLICE
    run_id = await flows.start(FAN, {"count": size})
    handlers = {"work": lambda payload: payload["index"]}

    first = await flows.work(worker, handlers, most=100)
    slices = await flows.take_slices()
    while await flows.work(worker, handlers, most=100):
        slices += await flows.take_slices()

    assert not first  # its branches are there, and their tasks follow
    assert slices >= 3
    assert await flows.output(run_id) == {"all": list(range(size))}
    assert await flows.replays(run_id)


async def test_a_run_can_be_cancelled_between_two_slices(flows: Flows) -> None:
    run_id = await flows.start(LOOP)

    assert (await flows.steer(run_id, "cancel")).state == "cancelled"

    assert await flows.take_slices() == 0
    assert await flows.engine.coordinator.queries.tasks.next_moment_ms() is None


async def test_a_large_join_is_merged_in_slices_with_other_commands_in_between(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register()
    size = 2 * STEPS_PER_SLICE
    run_id = await flows.start(PASSING, {"count": size})

    slices = 0
    while await flows.state(run_id) == "running":
        assert await engine.beat(worker) is not None
        slices += (await flows.command(AdvanceRuns())).count

    assert slices >= 7  # two each to start, pass, merge and release, the first in the start itself
    assert await flows.output(run_id) == {"all": list(range(size))}
    assert max(len(one.decisions) for one in await flows.journal(run_id)) < MOST_DECISIONS
    assert await flows.replays(run_id)


async def test_a_join_goes_on_with_its_slices_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    size = 2 * STEPS_PER_SLICE
    async with flowing(tmp_path / "rota.db", clock) as flows:
        run_id = await flows.start(PASSING, {"count": size})
        for _ in range(6):
            await flows.command(AdvanceRuns())
        assert await flows.state(run_id) == "running"
    async with flowing(tmp_path / "rota.db", clock) as flows:
        await flows.take_slices()

        assert await flows.output(run_id) == {"all": list(range(size))}
        assert await flows.replays(run_id)


async def test_a_large_run_is_cancelled_in_slices_and_workers_are_told(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=10)
    size = 2 * STEPS_PER_SLICE
    run_id = await flows.start(FAN, {"count": size})
    await flows.take_slices()

    shown = await flows.steer(run_id, "cancel")
    assert shown.state == "running"
    assert await engine.beat(worker) is not None
    assert await flows.take_slices() >= 2

    assert await flows.state(run_id) == "cancelled"
    assert not await flows.work(worker, {})
    assert await flows.replays(run_id)
