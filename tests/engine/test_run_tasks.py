# ruff: noqa: E501 - a definition reads best with a line for each node
"""What runs have others do: tasks on the ordinary queue, child runs, and the end of both."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from rota.core.commands import CancelTasks, RetryTasks, TaskFilter
from rota.core.decisions import FinishTask
from rota.core.ids import TaskId
from rota.core.replies import Changed
from rota.core.tasks.model import TaskError, TaskState
from rota.core.workflow.decisions import CancelTask, CreateToken, DispatchTask, RunDecision
from rota.core.workflow.definition.parser import read
from rota.core.workflow.events import RunStarted
from rota.core.workflow.records import JournalEntry
from rota.core.workflow.runtime import signals
from rota.engine.runs.advancing.run_tasks import ended_event
from rota.engine.runs.graph_figures import JoinFigures, tokens_by_node, transitions
from rota.engine.runs.projections import RunProjection
from rota.errors import IllegalState, NodeNotFound, RunNotFound, TooMany
from tests.conftest import TurnedClock
from tests.engine.flows import Failure, Flows, ended_tokens, flowing, perform
from tests.engine.graphs import ANY, ANY_PARENT, CHILD, FRAGILE, LINE, PARENT
from tests.engine.running import Engine, done, settle, soon


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


# --- tasks of runs are tasks ----------------------------------------------------------------------


async def test_a_failed_attempt_is_tried_again_before_its_run_hears_of_it(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    text = CHILD.replace(
        "task: work",
        "task: work, retry: {max_attempts: 2, backoff: {kind: linear, initial_ms: 1000, jitter: false}}",
    )
    run_id = await flows.start(text)

    def refuse(_payload: Any) -> None:
        raise Failure("not yet")

    (first,) = await flows.work(worker, {"work": refuse})
    assert await flows.state(run_id) == "running"
    assert ended_tokens(await flows.journal(run_id)) == []
    assert await engine.lease(worker) == []
    await engine.turn(1_000)
    (second,) = await flows.work(worker, {"work": refuse})

    assert (first.id, first.attempt, second.attempt) == (second.id, 1, 2)
    record = await flows.record(run_id)
    assert record.state == "failed"
    assert record.error is not None
    assert (record.error["message"], record.error["node"]) == ("not yet", "work")


async def test_an_attempt_past_its_time_counts_as_failed_for_its_run_too(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(heartbeat_interval_ms=60_000)
    run_id = await flows.start(
        CHILD.replace("task: work", "task: work, timeout_ms: 1000, retry: {max_attempts: 1}")
    )
    (task,) = await engine.lease(worker)

    await engine.turn(1_001)

    record = await flows.record(run_id)
    assert record.state == "failed", record
    assert record.error is not None
    assert record.error["type"] == "timeout"
    assert await engine.report(worker, done(task)) == ["stale"]
    assert len(await flows.journal(run_id)) == 2


async def test_the_work_of_a_lost_worker_moves_on_inside_a_run(flows: Flows) -> None:
    engine = flows.engine
    lost = await engine.register("lost")
    run_id = await flows.start(CHILD)
    await engine.lease(lost)

    heir = await engine.register("heir", heartbeat_interval_ms=600_000)
    for _ in range(30):  # in small steps: after a long one the coordinator blames itself
        await engine.turn(1_000)
    (task,) = await flows.work(heir, {"work": lambda _: "done"})

    assert task.attempt == 2
    assert await flows.output(run_id) == {"done": "done"}


async def test_needs_queue_and_priority_of_a_node_are_those_of_its_task(flows: Flows) -> None:
    engine = flows.engine
    await flows.start(
        CHILD.replace("task: work", "task: work, requires: [gpu], queue: slow, priority: 7")
    )

    plain = await engine.register("plain")
    able = await engine.register("able", capabilities=("gpu",), queues=("slow",))

    assert await engine.lease(plain) == []
    (task,) = await engine.lease(able)
    assert (task.lane.queue, task.priority) == ("slow", 7)


async def test_a_task_that_an_operator_cancels_fails_its_node(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD)
    (task,) = await engine.lease(worker)

    await engine.execute(CancelTasks((task.id,)))

    record = await flows.record(run_id)
    assert record.state == "failed"
    assert record.error is not None
    assert record.error["type"] == "cancelled"
    assert await engine.report(worker, done(task)) == ["stale"]


async def test_a_task_that_an_operator_retries_no_longer_concerns_its_run(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD)
    (task,) = await engine.lease(worker)
    await engine.execute(CancelTasks((task.id,)))
    journal = await flows.journal(run_id)

    reply = await engine.execute(RetryTasks((task.id,)))
    await flows.work(worker, {"work": lambda _: "late"})

    assert isinstance(reply, Changed)
    assert reply.changed == (task.id,)
    assert (await engine.task(task.id)).state is TaskState.SUCCEEDED
    assert await flows.state(run_id) == "failed"
    assert await flows.journal(run_id) == journal


async def test_a_result_that_no_machine_can_read_fails_its_node(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD)
    (task,) = await engine.lease(worker)

    await engine.report(worker, done(task, result=b"1e999"))

    record = await flows.record(run_id)
    assert record.state == "failed"
    assert record.error is not None
    assert record.error["type"] == "result_unreadable"


# --- what nobody wants any more -------------------------------------------------------------------


async def test_losers_of_an_early_join_are_cancelled_and_their_workers_told(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=2)
    run_id = await flows.start(ANY)
    winner, loser = await engine.lease(worker)

    await engine.report(worker, done(winner, result=b'"won"'))

    assert (await engine.beat(worker, [loser.id])).cancel == (loser.id,)
    assert await engine.report(worker, done(loser, result=b'"late"')) == ["stale"]
    cancelled = await engine.coordinator.queries.tasks.page(
        TaskFilter(states=(TaskState.CANCELLED,)), limit=10
    )
    assert len(cancelled) == 2  # the one that ran, and the one that had not begun
    assert await flows.work(worker, {"end": lambda _: None})
    assert (await flows.record(run_id)).output == {"first": ["won"]}


async def test_a_loser_whose_result_comes_in_the_same_batch_is_accepted_and_ignored(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(ANY)
    leases = await engine.lease(worker)

    outcomes = await engine.report(worker, *(done(one, result=b"%d" % one.fence) for one in leases))

    assert outcomes == ["accepted"] * 3
    await flows.work(worker, {"end": lambda _: None})
    assert len((await flows.record(run_id)).output["first"]) == 1
    decided = [one for entry in await flows.journal(run_id) for one in entry.decisions]
    assert sum(isinstance(one, CancelTask) for one in decided) == 2
    assert await flows.replays(run_id)


async def test_a_loser_that_failed_in_the_same_batch_is_not_tried_again(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    await flows.start(ANY)
    leases = await engine.lease(worker)

    def only_the_last(payload: Any) -> int:
        if payload["index"] < 2:
            raise Failure("not me")
        return 2

    await engine.report(worker, *(perform(one, {"work": only_the_last}) for one in leases))

    states = [(await engine.task(one.id)).state for one in leases]
    assert states == [TaskState.CANCELLED, TaskState.CANCELLED, TaskState.SUCCEEDED]
    assert [one.lane.name for one in await engine.lease(worker)] == ["end"]


async def test_cancelling_a_run_reaches_its_sub_runs_their_tasks_and_workers(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=2)
    await flows.put(CHILD)
    parent = await flows.start(PARENT)
    leases = await engine.lease(worker)
    commits = engine.database.commits

    await flows.steer(parent, "cancel")

    assert engine.database.commits == commits + 1
    assert [one.state for one in await flows.runs()] == ["cancelled"] * 4
    beat = await engine.beat(worker, [one.id for one in leases])
    assert set(beat.cancel) == {one.id for one in leases}
    assert (
        await engine.coordinator.queries.tasks.count(TaskFilter(states=(TaskState.CANCELLED,))) == 3
    )
    assert await engine.report(worker, *map(done, leases)) == ["stale", "stale"]


async def test_sub_runs_that_lose_a_join_are_cancelled(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=2)
    await flows.put(CHILD)
    parent = await flows.start(ANY_PARENT)
    winner, loser = await engine.lease(worker)

    await engine.report(worker, done(winner, result=b"1"))

    assert await flows.output(parent) == {"all": [1]}
    states = sorted(one.state for one in await flows.runs() if one.parent_run is not None)
    assert states == ["cancelled", "cancelled", "completed"]
    assert (await engine.beat(worker, [loser.id])).cancel == (loser.id,)


async def test_a_sub_workflow_that_cannot_begin_fails_its_node(flows: Flows) -> None:
    run_id = await flows.start("{name: orphan, initial_node: a, nodes: {a: {workflow: nobody}}}")

    record = await flows.record(run_id)

    assert record.state == "failed"
    assert record.error is not None
    assert record.error["type"] == "sub_workflow"
    assert await flows.replays(run_id)


async def test_a_workflow_may_start_itself_down_to_its_depth(flows: Flows) -> None:
    run_id = await flows.start(
        "{name: self, max_depth: 3, initial_node: a, nodes: {a: {workflow: self}}}"
    )

    found = await flows.runs()

    assert [one.depth for one in found] == [0, 1, 2]
    assert {one.state for one in found} == {"failed"}
    assert found[0].id == run_id


# --- steering -------------------------------------------------------------------------------------


async def test_a_paused_run_begins_nothing_new_and_goes_on_when_resumed(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(LINE)
    (first,) = await engine.lease(worker)

    await flows.steer(run_id, "pause")
    assert await engine.report(worker, done(first, result=b"1")) == ["accepted"]
    assert await engine.lease(worker) == []
    assert (await flows.look(run_id)).context["state"] == {"first": 1}
    await flows.steer(run_id, "resume")

    await flows.work(worker, {"second": lambda payload: payload["got"]})
    assert await flows.output(run_id) == {"second": 1}


async def test_a_failed_run_goes_on_from_where_it_failed(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(
        LINE.replace("task: second", "task: second, retry: {max_attempts: 1}")
    )

    def refuse(_payload: Any) -> None:
        raise Failure("not today")

    await flows.work(worker, {"first": lambda _: 1})
    await flows.work(worker, {"second": refuse})
    assert await flows.state(run_id) == "failed"
    record = await flows.steer(run_id, "retry")
    assert (record.state, record.finished_at_ms, record.error) == ("running", None, None)
    waiting = asyncio.create_task(engine.coordinator.wait_for_end(run_id, wait_ms=600_000))
    await settle()
    await flows.work(worker, {"second": lambda payload: payload["got"] + 1})

    await soon(waiting)
    assert await flows.output(run_id) == {"second": 2}
    assert await flows.replays(run_id)


async def test_a_failed_run_can_be_retried_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    def refuse(_payload: Any) -> None:
        raise Failure("not today")

    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        run_id = await flows.start(FRAGILE)
        await flows.work(worker, {"work": refuse})

    async with flowing(tmp_path / "rota.db", clock) as flows:
        await flows.steer(run_id, "retry")
        await flows.work(worker, {"work": lambda _: "now"})
        assert await flows.output(run_id) == {"done": "now"}


async def test_a_fork_begins_at_its_node_with_the_state_as_it_was_or_as_wished(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register()
    handlers = {"first": lambda _: 1, "second": lambda payload: payload["got"]}
    run_id = await flows.start(LINE)
    await flows.work_off(worker, handlers)

    same = await flows.fork(run_id, "second")
    other = await flows.fork(run_id, "second", {"first": 50})
    done_tasks = await flows.work_off(worker, handlers)

    assert done_tasks == 2
    assert same.forked_from == other.forked_from == run_id
    assert await flows.output(same.id) == {"second": 1}
    assert await flows.output(other.id) == {"second": 50}
    with pytest.raises(NodeNotFound):
        await flows.fork(run_id, "nowhere")


async def test_a_fork_has_the_results_of_the_nodes_that_the_other_run_has_finished(
    flows: Flows,
) -> None:
    worker = await flows.engine.register()
    handlers = {"first": lambda _: 1, "second": lambda payload: payload["got"]}
    run_id = await flows.start(LINE.replace("state.first}", "nodes.first.result}"))
    await flows.work_off(worker, handlers)

    fork = await flows.fork(run_id, "second", {})
    await flows.work_off(worker, handlers)

    assert await flows.output(fork.id) == {"second": 1}
    assert await flows.replays(fork.id)


@pytest.mark.parametrize("wish", ["cancel", "pause", "resume"])
async def test_a_run_that_has_ended_cannot_be_steered(flows: Flows, wish: Any) -> None:
    run_id = await flows.start("{name: nothing, initial_node: a, nodes: {a: {}}}")

    with pytest.raises(IllegalState):
        await flows.steer(run_id, wish)
    with pytest.raises(IllegalState):
        await flows.signal(run_id, "hello")
    assert len(await flows.journal(run_id)) == 1


WAITS = """
name: waits
initial_node: hold
nodes:
  hold: {wait_for: {event: go}}
"""


async def test_a_run_keeps_so_many_signals_and_what_it_waits_for_reaches_it_all_the_same(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "MAX_KEPT_SIGNALS", 3)
    run_id = await flows.start(WAITS)
    for name in ("later", "later", "other"):
        await flows.signal(run_id, name)

    with pytest.raises(TooMany, match="keeps 3 signals"):
        await flows.signal(run_id, "later")
    assert (await flows.signal(run_id, "go")).state == "completed"


async def test_a_run_that_is_not_there_is_not_found(flows: Flows) -> None:
    with pytest.raises(RunNotFound):
        await flows.look(12345)


QUICK = """
name: quick
initial_node: begin
nodes: {begin: {}, work: {task: work}, over: {end: completed}}
transitions: [{from: begin, to: work}, {from: begin, to: over}]
"""
TWO_WAYS = """
name: two_ways
initial_node: begin
nodes: {begin: {}, first: {task: first, priority: 1}, second: {task: second}, work: {task: work}, over: {end: completed}}
transitions:
  - {from: begin, to: first}
  - {from: begin, to: second}
  - {from: first, to: work}
  - {from: second, to: over}
"""


async def tasks_named(flows: Flows, run_id: int) -> list[int | None]:
    queries = flows.engine.coordinator.queries
    return await queries.runs.project(
        run_id, lambda trace: [one.task for one in trace.tokens.values() if one.node == "work"]
    )


async def test_a_token_cancelled_in_the_step_that_made_it_names_no_task(flows: Flows) -> None:
    run_id = await flows.start(QUICK)

    assert await flows.state(run_id) == "completed"
    assert await tasks_named(flows, run_id) == [None]
    assert [entry.links for entry in await flows.journal(run_id)] == [{}]


async def test_a_token_cancelled_in_the_batch_that_made_it_names_no_task(flows: Flows) -> None:
    worker = await flows.engine.register(max_concurrent_tasks=2)
    run_id = await flows.start(TWO_WAYS)
    leases = await flows.engine.lease(worker)

    await flows.engine.report(worker, *(done(one) for one in leases))

    assert await flows.state(run_id) == "completed"
    assert await tasks_named(flows, run_id) == [None]
    assert [entry.links for entry in await flows.journal(run_id)][1:] == [{}, {}]
    assert await flows.replays(run_id)


def test_a_journal_that_names_a_task_that_never_existed_shows_none() -> None:
    decisions: list[RunDecision] = [CreateToken(1, "work"), DispatchTask(1, "work"), CancelTask(1)]
    entry = JournalEntry(
        number=1, at_ms=1, event=RunStarted(1), decisions=decisions, links={"1": 7}
    )

    assert RunProjection([entry]).tokens[1].task is None


QUORUM = """
name: quorum
initial_node: begin
nodes: {begin: {}, work: {task: work, input: {index: branch.index}, retry: {max_attempts: 1}}, end: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 3}
  - {from: work, to: end, synchronization: {wait_for: {m_of_n: 3}, joins_transition: fan, on_branch_failure: continue}}
"""


async def figures_of(flows: Flows, run_id: int) -> tuple[dict[str, int], int, JoinFigures | None]:
    """The tokens at `work` by state, how often it was left for the join, and the join."""
    definition, _ = read(QUORUM)
    assert definition is not None

    def seen(trace: RunProjection) -> tuple[dict[str, int], int, JoinFigures | None]:
        (_, join) = transitions(definition, trace.moment())
        return tokens_by_node(definition, trace.moment())["work"], join.taken, join.join

    return await flows.engine.coordinator.queries.runs.project(run_id, seen)


async def test_a_retry_does_not_count_a_branch_twice(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=3)
    run_id = await flows.start(QUORUM)
    first, second, last = await engine.lease(worker)
    await engine.report(worker, done(first), done(second))

    for _ in range(2):
        error = TaskError(type="Failure", message="broken")
        await engine.report(worker, done(last, ok=False, error=error))
        assert await flows.state(run_id) == "failed"
        tokens, taken, join = await figures_of(flows, run_id)
        assert join is not None
        assert (tokens["completed"], tokens.get("cancelled", 0), taken) == (2, 0, 2)
        assert (join.arrived, join.failed, join.needed) == (2, 1, 3)
        await flows.steer(run_id, "retry")
        (last,) = await engine.lease(worker)
    await engine.report(worker, done(last))

    assert await flows.state(run_id) == "completed"
    tokens, taken, join = await figures_of(flows, run_id)
    assert join is not None
    assert (tokens["completed"], taken, join.arrived, join.failed) == (3, 3, 3, 0)
    assert await flows.replays(run_id)


FAN = """
name: fan
initial_node: begin
nodes: {begin: {}, work: {task: work, input: {index: branch.index}, retry: {max_attempts: 1}}, end: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 3}
  - {from: work, to: end, synchronization: {joins_transition: fan}}
"""


async def counts_of(flows: Flows, run_id: int, text: str) -> tuple[dict[str, int], dict[str, int]]:
    """The tokens at `work` by state, and those that came by the first transition."""
    definition, _ = read(text)
    assert definition is not None

    def seen(trace: RunProjection) -> tuple[dict[str, int], dict[str, int]]:
        first, *_ = transitions(definition, trace.moment())
        work = tokens_by_node(definition, trace.moment())["work"]
        assert first.taken == first.tokens.total()
        return plain(work), plain(first.tokens)

    def plain(counts: dict[str, int]) -> dict[str, int]:
        return {state: count for state, count in counts.items() if count}

    return await flows.engine.coordinator.queries.runs.project(run_id, seen)


@pytest.mark.parametrize("text", [FAN, QUORUM], ids=["cut short", "out of reach"])
async def test_failed_and_cancelled_tokens_of_earlier_tries_are_not_counted(
    flows: Flows, text: str
) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=3)
    run_id = await flows.start(text)
    error = TaskError(type="Failure", message="broken")
    first, *others = await engine.lease(worker)
    await engine.report(worker, done(first))
    is_quorum = text == QUORUM

    for _ in range(3):
        await engine.report(worker, done(others[0], ok=False, error=error))
        if is_quorum:
            await engine.report(worker, done(others[1], ok=False, error=error))
        assert await flows.state(run_id) == "failed"
        failed, came = await counts_of(flows, run_id, text)
        assert failed == came
        assert failed["completed"] == 1
        assert failed["failed"] + failed.get("cancelled", 0) == 2

        await flows.steer(run_id, "retry")

        others = await engine.lease(worker)
        again, came = await counts_of(flows, run_id, text)
        assert again == came == {"waiting_for_siblings": 1, "executing": 2}
    await engine.report(worker, *(done(one) for one in others))

    assert await flows.state(run_id) == "completed"
    assert await counts_of(flows, run_id, text) == ({"completed": 3}, {"completed": 3})
    assert await flows.replays(run_id)


TOLERANT = """
name: tolerant
initial_node: begin
nodes: {begin: {}, work: {task: work, input: {index: branch.index}, retry: {max_attempts: 1}}, end: {task: end, retry: {max_attempts: 1}}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 2}
  - {from: work, to: end, synchronization: {joins_transition: fan, on_branch_failure: continue}}
"""


async def test_a_failed_branch_that_a_retry_does_not_start_again_stays_counted(
    flows: Flows,
) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=2)
    run_id = await flows.start(TOLERANT)
    error = TaskError(type="Failure", message="broken")
    first, second = await engine.lease(worker)
    await engine.report(worker, done(first), done(second, ok=False, error=error))
    (last,) = await engine.lease(worker)
    await engine.report(worker, done(last, ok=False, error=error))
    assert await flows.state(run_id) == "failed"

    await flows.steer(run_id, "retry")

    counts = {"completed": 1, "failed": 1}
    assert await counts_of(flows, run_id, TOLERANT) == (counts, counts)


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        (f"00-{1:032x}-{2:016x}-01", f"00-{1:032x}-{2:016x}-01"),
        (f"00-{1:032x}-{2:016x}-01-later", UNSET),
        ("x" * 100_000, UNSET),
        (None, UNSET),
    ],
)
def test_a_malformed_span_of_a_result_is_ignored(reported: str | None, kept: object) -> None:
    finished = FinishTask(
        TaskId(1),
        TaskState.RUNNING,
        TaskState.SUCCEEDED,
        fence=1,
        attempt=1,
        finished_at_ms=1,
        traceparent=reported,
    )

    ended = ended_event(finished, 1, now_ms=1)

    assert (ended.traceparent, b"traceparent" in msgspec.json.encode(ended)) == (
        kept,
        kept is not UNSET,
    )
