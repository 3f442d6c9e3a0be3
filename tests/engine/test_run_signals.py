"""Runs that signal each other, inside one transaction."""

import pytest

from rota.core.ids import to_text
from rota.core.workflow.events import Signalled, SignalSent
from rota.core.workflow.functions.model import EventRequest
from rota.engine.runs.advancing.run_agenda import DECISIONS_PER_STEP
from rota.errors import Unavailable
from tests.engine.flows import Flows
from tests.engine.functions import Functions, asked, resumption_of
from tests.engine.running import Engine

WAIT = """
name: wait
initial_node: wait
nodes: {wait: {wait_for: {event: go}, output: {output.got: result}}}
"""
TELL = """
name: tell
initial_node: tell
nodes:
  tell:
    signal: {run: input.run, name: go, payload: {by: run.id}}
    on_error: [{to: refused, match: error.type == "signal_refused"}]
  refused: {input: {code: nodes.tell.error.code}, output: {output.code: result.code}}
"""
# A child that tells its parent who it is; the parent then lets it go on.
CHILD = """
name: child
initial_node: here
nodes:
  here: {signal: {run: run.parent_id, name: here, payload: run.id}}
  wait: {wait_for: {event: go}, output: {output.got: result}}
transitions: [{from: here, to: wait}]
"""
PARENT = """
name: parent
initial_node: start
nodes:
  start: {}
  sub: {workflow: child, output: {output.child: result.got}}
  hear: {wait_for: {event: here}}
  tell: {signal: {run: nodes.hear.result, name: go, payload: 7}}
transitions: [{from: start, to: sub}, {from: start, to: hear}, {from: hear, to: tell}]
"""
ROUNDS = 300
PING = """
name: ping
initial_node: hear
nodes:
  hear: {wait_for: {event: ball}}
  hit: {signal: {run: nodes.hear.result, name: ball, payload: run.id}}
transitions:
  - {from: hear, to: hit}
  - {from: hit, to: hear, max_iterations: ROUNDS}
""".replace("ROUNDS", str(ROUNDS))


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


async def test_a_node_signals_another_run_in_the_transaction_of_its_own_step(flows: Flows) -> None:
    waiting = await flows.start(WAIT)
    before = flows.engine.database.commits

    telling = await flows.start(TELL, {"run": to_text(waiting)})

    assert flows.engine.database.commits - before == 2  # the definition, and the run
    assert await flows.output(waiting) == {"got": {"by": to_text(telling)}}
    assert await flows.output(telling) == {}
    (event,) = [
        one.event for one in await flows.journal(waiting) if isinstance(one.event, Signalled)
    ]
    assert event.sender == to_text(telling)
    assert await flows.replays(waiting)
    assert await flows.replays(telling)


async def test_neither_run_knows_of_a_signal_that_was_not_committed(flows: Flows) -> None:
    waiting = await flows.start(WAIT)
    await flows.put(TELL)
    flows.engine.database.commit_problem = OSError("the disk is full")

    with pytest.raises(Unavailable):
        await flows.begin("tell", {"run": to_text(waiting)})

    flows.engine.database.commit_problem = None
    assert await flows.state(waiting) == "running"
    assert len(await flows.journal(waiting)) == 1
    await flows.begin("tell", {"run": to_text(waiting)})
    assert await flows.state(waiting) == "completed"


@pytest.mark.parametrize("which", ["unknown", "no id", "ended"])
async def test_a_signal_to_a_run_that_is_not_there_or_has_ended_fails_the_node(
    flows: Flows, which: str
) -> None:
    other = await flows.start("{name: done, initial_node: n, nodes: {n: {}}}")
    run = {"unknown": to_text(other + 10**9), "no id": "x" * 5_000, "ended": to_text(other)}[which]

    telling = await flows.start(TELL, {"run": run})

    code = "illegal_state" if which == "ended" else "run_not_found"
    assert await flows.output(telling) == {"code": code}
    (sent,) = [
        one.event for one in await flows.journal(telling) if isinstance(one.event, SignalSent)
    ]
    assert sent.error is not None
    assert len(sent.error["message"]) < 2_000
    assert await flows.replays(telling)


async def test_a_signal_cannot_approve_what_nobody_asks_for(flows: Flows) -> None:
    asking = await flows.start(
        "{name: ask, initial_node: n, nodes: {n: {task: t}, go: {approval: true}}, "
        "transitions: [{from: n, to: go}]}"
    )

    telling = await flows.start(TELL, {"run": to_text(asking)})

    assert await flows.output(telling) == {"code": "nothing_to_approve"}


async def test_a_node_signals_the_run_of_a_function(engine: Engine) -> None:
    functions = Functions(engine)
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    waiting = asked("go#1", "event", EventRequest(name="go"))
    await functions.stop(worker, task, waiting, waits=[["go#1"]])

    telling = await functions.start(TELL, {"run": to_text(run_id)})

    (ended,) = resumption_of(await functions.resumed(worker)).ended or []
    assert ended.result == {"by": to_text(telling)}
    assert await functions.output(telling) == {}


async def test_a_child_and_its_parent_signal_each_other(flows: Flows) -> None:
    await flows.put(CHILD)

    run_id = await flows.start(PARENT)
    await flows.take_slices()

    assert await flows.output(run_id) == {"child": 7}
    assert all([await flows.replays(one.id) for one in await flows.runs()])


async def test_runs_that_signal_each_other_in_a_circle_do_so_in_bounded_transactions(
    flows: Flows,
) -> None:
    first = await flows.start(PING)
    second = (await flows.begin("ping")).record.id

    await flows.signal(first, "ball", to_text(second))
    transactions = 1 + await flows.take_slices()

    decided = [len(one.decisions) for run in (first, second) for one in await flows.journal(run)]
    assert DECISIONS_PER_STEP < sum(decided) < transactions * (DECISIONS_PER_STEP + 100)
    assert transactions > sum(decided) // (2 * DECISIONS_PER_STEP)
    states = {await flows.state(first), await flows.state(second)}
    assert states == {"completed", "failed"}  # one has hit its last ball, the other misses it
    assert await flows.replays(first)
    assert await flows.replays(second)


async def test_a_loop_of_sub_workflows_that_cannot_start_takes_bounded_transactions(
    flows: Flows,
) -> None:
    run_id = await flows.start(
        "{name: retry, initial_node: sub, nodes: {"
        "sub: {workflow: nowhere, on_error: [{to: again}]}, again: {}}, "
        f"transitions: [{{from: again, to: sub, max_iterations: {ROUNDS}}}]}}"
    )

    assert await flows.state(run_id) == "running"
    assert await flows.take_slices() > 0
    assert await flows.state(run_id) == "completed"
    assert await flows.replays(run_id)
