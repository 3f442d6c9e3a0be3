"""What the outside is told of workflows and runs, and of services."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core.ids import to_text
from rota.core.tasks.model import TaskError
from tests.engine.flows import Flows
from tests.engine.recording import told, types_told
from tests.engine.running import Engine, done, running
from tests.engine.sharding import SERVICE, Peer

ONE = """
name: one
initial_node: a
nodes:
  a: {task: work, retry: {max_attempts: 1}}
transitions: []
"""
PARENT = """
name: parent
initial_node: a
nodes:
  a: {workflow: one}
transitions: []
"""


ASKS = """
name: asks
initial_node: sign
nodes:
  sign: {approval: {title: "may it?"}}
  hold: {wait_for: {event: go}}
transitions:
  - {from: sign, to: hold}
"""


@pytest.fixture
async def flows(tmp_path: Path) -> AsyncIterator[Flows]:
    async with running(tmp_path / "rota.db") as engine:
        yield Flows(engine)


async def test_a_run_is_told_of_from_its_start_to_its_end(flows: Flows) -> None:
    run_id = await flows.start(ONE)
    worker = await flows.engine.register()
    (task,) = await flows.engine.lease(worker)
    await flows.engine.report(worker, done(task))

    notices = await told(flows.engine)

    assert [one.type for one in notices] == [
        "workflow-put",
        "run-started",
        "task-submitted",
        "worker-registered",
        "task-started",
        "task-succeeded",
        "run-completed",
    ]
    of_run = {"workflow": "one", "version": 1}
    assert [one.data for one in notices if one.subject == to_text(run_id)] == [of_run, of_run]
    assert notices[4].data["run_id"] == to_text(run_id)


async def test_the_same_definition_again_is_no_news(flows: Flows) -> None:
    await flows.put(ONE)
    await flows.put(ONE)

    assert await types_told(flows.engine) == ["workflow-put"]


async def test_steering_a_run_is_told(flows: Flows) -> None:
    run_id = await flows.start(ONE)
    await flows.steer(run_id, "pause")
    await flows.steer(run_id, "resume")
    await flows.steer(run_id, "cancel")

    notices = await told(flows.engine, "run-*")

    assert [one.type for one in notices] == [
        "run-started",
        "run-paused",
        "run-resumed",
        "run-cancelled",
    ]
    assert notices[2].data["was"] == "paused"
    assert notices[3].data["error"]["type"] == "cancelled"


async def test_a_run_that_fails_and_is_retried_is_told(flows: Flows) -> None:
    run_id = await flows.start(ONE)
    worker = await flows.engine.register()
    (task,) = await flows.engine.lease(worker)
    await flows.engine.report(worker, done(task, ok=False, error=TaskError(message="no")))
    await flows.steer(run_id, "retry")

    failed, resumed = (await told(flows.engine, "run-*"))[1:]

    assert (failed.type, failed.data["error"]["message"]) == ("run-failed", "no")
    assert (resumed.type, resumed.data["was"]) == ("run-resumed", "failed")


async def test_a_run_that_takes_too_long_is_told(flows: Flows) -> None:
    await flows.start(ONE, timeout_ms=1_000)
    await flows.engine.turn(1_001)

    assert (await types_told(flows.engine))[-1] == "run-timed-out"


async def test_a_run_inside_another_names_it(flows: Flows) -> None:
    await flows.put(ONE)
    run_id = await flows.start(PARENT)

    parent, child = await told(flows.engine, "run-started")

    assert parent.subject == to_text(run_id)
    assert child.data == {"workflow": "one", "version": 1, "parent_run_id": to_text(run_id)}


# --- services -----------------------------------------------------------------------------------


async def test_members_and_rebalances_are_told(engine: Engine) -> None:
    first, second = Peer(engine, "a"), Peer(engine, "b", incarnation="7")
    await first.register()
    await first.beat()
    await second.register()
    await engine.turn(1_000)
    await first.leave()
    await engine.turn(1_000)

    notices = await told(engine, "shards-*", "member-*")

    assert {one.subject for one in notices} == {SERVICE}
    assert [(one.type, one.data) for one in notices] == [
        ("member-joined", {"worker_id": "a", "incarnation": "1"}),
        ("shards-rebalanced", {"moved": 0, "placed": 10}),
        ("member-joined", {"worker_id": "b", "incarnation": "7"}),
        ("shards-rebalanced", {"moved": 5, "placed": 0}),
        ("member-left", {"worker_id": "a", "incarnation": "1", "reason": "left"}),
        ("shards-rebalanced", {"moved": 0, "placed": 5}),
    ]


async def test_beats_tell_nothing(engine: Engine) -> None:
    peer = Peer(engine, "a")
    await peer.register()
    before = engine.coordinator.last_seq
    for _ in range(3):
        await peer.beat()
        await engine.turn(100)

    assert engine.coordinator.last_seq == before


async def test_a_run_that_waits_for_a_person_is_told_of_and_one_that_waits_for_a_signal_is_not(
    flows: Flows,
) -> None:
    run_id = await flows.start(ASKS)
    await flows.signal(run_id, "sign", {"approved": True})

    (asked,) = await told(flows.engine, "run-approval-asked")
    assert asked.subject == to_text(run_id)
    assert (asked.data["workflow"], asked.data["approval"]) == ("asks", "sign")
    assert asked.data["title"] == "may it?"
