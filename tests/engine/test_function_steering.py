"""What callers do with functions: cancel, pause, retry, fork them, and answer what they ask."""

from typing import Any

import msgspec
import pytest

from rota.core import limits
from rota.core.ids import to_text
from rota.core.tasks.model import TaskError
from rota.core.workflow.commands import LookAtReply, LookAtStream, SignalRun
from rota.core.workflow.functions.model import (
    ApprovalRequest,
    ChildRequest,
    Divergence,
    EventRequest,
    Operation,
)
from rota.engine.runs.counter_history import TOKENS
from rota.engine.runs.projections import RunProjection
from rota.errors import IllegalState, Invalid, NodeNotFound, NothingToApprove
from tests.engine.functions import (
    Functions,
    asked,
    call,
    delivered,
    failed,
    mapped,
    nap,
    resumption_of,
    step,
)
from tests.engine.recording import told
from tests.engine.running import Engine, done

CANCELLED = {"type": "cancelled", "message": "the function"}
UNDOING = """
name: undoing
initial_node: order
nodes:
  order: {workflow: order, compensate: give_back}
  last: {task: last, retry: {max_attempts: 1}}
transitions: [{from: order, to: last}]
"""
PARENT = """
name: parent
initial_node: sub
nodes:
  sub: {workflow: order, input: {x: input.x}, output: {output.got: result}}
"""


@pytest.fixture
def functions(engine: Engine) -> Functions:
    return Functions(engine)


def forever(engine: Engine) -> Operation:
    return nap("long#1", engine.clock.now_ms() + 10**9)


# --- cancelling -----------------------------------------------------------------------------------


async def test_a_waiting_function_is_resumed_to_undo_what_it_did(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    charge = step("charge#1", can_undo=True)
    waiting = forever(functions.engine)
    await functions.stop(worker, task, charge, waiting, waits=[["long#1"]])

    await functions.cancel(run_id, reason="no money")

    woken = await functions.resumed(worker)
    assert resumption_of(woken).cancelled == "no money"
    await functions.stop(worker, woken, step("undo/charge#1"), error=CANCELLED)
    record = await functions.record(run_id)
    assert record.state == "cancelled"
    assert record.error == {"type": "cancelled", "message": "no money"}
    assert await functions.replays(run_id)


async def test_a_running_function_that_stops_to_wait_is_resumed_at_once(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await functions.cancel(run_id)

    await functions.stop(worker, task, forever(functions.engine), waits=[["long#1"]])
    woken = await functions.resumed(worker)
    await functions.stop(worker, woken, call("undo/call#1"), waits=[["undo/call#1"]])

    (undoing,) = await functions.engine.lease(worker)
    assert undoing.lane.name == "work"  # told of the cancellation, it is left to wait


async def test_a_run_past_its_time_is_timed_out(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code(timeout_ms=1_000)
    task = await functions.resumed(worker)
    await functions.stop(worker, task, forever(functions.engine), waits=[["long#1"]])

    await functions.engine.turn(1_001)
    woken = await functions.resumed(worker)
    await functions.stop(worker, woken, error=CANCELLED)

    record = await functions.record(run_id)
    assert record.state == "timed_out"
    assert record.error is not None
    assert record.error["type"] == "timeout"


async def test_force_ends_at_once_and_lists_what_was_not_undone(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    asking = [step("charge#1", can_undo=True), call("a#1"), mapped("b#1", [1, 2])]
    await functions.tell(worker, task, 0, *asking)

    await functions.cancel(run_id, force=True)

    record = await functions.record(run_id)
    assert record.error is not None
    assert (record.state, record.error["not_undone"]) == ("cancelled", [{"path": "charge#1"}])
    assert await engine.lease(worker) == []
    beat = await engine.beat(worker, [task.id])
    assert beat.cancel == (task.id,)


async def test_what_an_ended_run_asked_for_is_cancelled(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.deploy("child")
    await functions.start_code()
    task = await functions.resumed(worker)
    child = asked("child#1", "run", ChildRequest(workflow="child"))
    await functions.tell(worker, task, 0, child, call("a#1"))

    await functions.stop(worker, task, after=2, output=1)

    (resumed,) = await engine.lease(worker)  # the called task is gone
    noted = await functions.tell(worker, resumed, 0, step("a#1"))
    assert "no longer needs it" in noted.cancelled[0]
    await functions.stop(worker, resumed, after=1, error=CANCELLED)
    _, inner = await functions.runs()
    assert inner.state == "cancelled"


# --- pausing, restarting, retrying ----------------------------------------------------------------


async def test_a_paused_run_resumes_its_function_only_after_the_pause(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    waiting = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, task, waiting, waits=[["paid#1"]])
    await functions.steer(run_id, "pause")

    await functions.signal(run_id, "paid", 1)
    assert await engine.lease(worker) == []
    await functions.steer(run_id, "resume")

    woken = await functions.resumed(worker)
    await functions.steer(run_id, "pause")
    await functions.stop(worker, woken, delivered("paid#1", "event"), output="ended in a pause")
    assert await functions.output(run_id) == "ended in a pause"


async def test_a_restart_begins_a_new_log_and_keeps_signals_and_published_values(
    functions: Functions,
) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code({"round": 1})
    task = await functions.resumed(worker)
    published = Operation(
        path="publish#1", kind="publish", state="done", result={"key": "status", "value": "on"}
    )
    await functions.tell(worker, task, 0, published, call("a#1"))
    await functions.signal(run_id, "paid", 7)

    await functions.stop(worker, task, after=2, restart={"round": 2})

    again = await functions.resumed(worker)
    resumption = resumption_of(again)
    assert (resumption.input, resumption.restarts) == ({"round": 2}, 1)
    assert (resumption.log, resumption.reported) == ([], 0)
    assert (await functions.look(run_id)).context["state"] == {"status": "on"}
    waiting = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, again, waiting, waits=[["paid#1"]])
    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == 7
    assert await functions.replays(run_id)


async def test_a_retry_forgets_the_failure_at_which_the_function_stopped(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    done_before = [step("a#1"), failed("caught#1"), step("b#1"), failed("x/c#1")]
    await functions.stop(worker, task, *done_before, error={"type": "E", "message": "c"})

    await functions.steer(run_id, "retry")

    again = await functions.resumed(worker)
    resumption = resumption_of(again)
    assert [one.path for one in resumption.log or []] == ["a#1", "caught#1", "b#1"]
    assert resumption.reported == 4
    await functions.stop(worker, again, step("x/c#1"), output=1)
    assert await functions.output(run_id) == 1
    assert await functions.replays(run_id)


async def test_the_graph_of_a_retried_function_does_not_count_the_failure_that_is_forgotten(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    done_before = [failed("caught#1"), step("b#1"), failed("charge#1")]
    await functions.stop(worker, task, *done_before, error={"type": "E", "message": "c"})

    def counted(trace: RunProjection) -> dict[str, dict[str, int]]:
        names = ("caught", "b", "charge")
        return {name: dict(trace.moment().counts(TOKENS, name)) for name in names}

    project = functions.engine.coordinator.queries.runs.project
    assert await project(run_id, counted) == {
        "caught": {"failed": 1},
        "b": {"completed": 1},
        "charge": {"failed": 1},
    }

    await functions.steer(run_id, "retry")

    again = await functions.resumed(worker)
    await functions.stop(worker, again, step("charge#1"), output=1)
    assert await project(run_id, counted) == {
        "caught": {"failed": 1},
        "b": {"completed": 1},
        "charge": {"completed": 1},
    }


async def test_a_retry_does_again_what_was_undone(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    history = [
        step("a#1"),
        step("charge#1", can_undo=True),
        failed("ship#1"),
        step("undo/charge#1"),
    ]
    await functions.stop(worker, task, *history, error={"type": "E", "message": "ship"})

    await functions.steer(run_id, "retry")

    again = await functions.resumed(worker)
    assert [one.path for one in resumption_of(again).log or []] == ["a#1"]


async def test_a_retried_child_goes_on_where_it_failed(functions: Functions) -> None:
    worker = await functions.engine.register()
    await functions.deploy("child")
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    child = asked("child#1", "run", ChildRequest(workflow="child"))
    await functions.stop(worker, task, child, waits=[["child#1"]])
    inner = await functions.resumed(worker)
    await functions.stop(worker, inner, step("a#1"), error={"type": "E", "message": "no"})
    woken = await functions.resumed(worker)
    seen = delivered("child#1", "run")
    await functions.stop(worker, woken, seen, error={"type": "E", "message": "child"})

    await functions.steer(run_id, "retry")
    outer = await functions.resumed(worker)
    await functions.stop(worker, outer, child, waits=[["child#1"]])

    again = await functions.resumed(worker)
    assert [one.path for one in resumption_of(again).log or []] == ["a#1"]
    assert len(await functions.runs()) == 2


# --- divergence and forks -------------------------------------------------------------------------


async def diverged(functions: Functions, worker: Any) -> int:
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    history = [step("a#1"), step("b#1"), forever(functions.engine)]
    await functions.stop(worker, task, *history, waits=[["long#1"]])
    await functions.cancel(run_id)
    woken = await functions.resumed(worker)
    divergence = Divergence(
        message="the function asks for c#1",
        path="c#1",
        recorded=["step b#1", "sleep long#1"],
        attempted="step c#1",
    )
    await functions.stop(worker, woken, divergence=divergence)
    return run_id


async def test_a_divergence_pauses_the_run_and_says_what_differs(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await diverged(functions, worker)

    record = await functions.record(run_id)
    assert record.error is not None
    assert (record.state, record.error["type"]) == ("paused", "diverged")
    assert record.error["attempted"] == "step c#1"
    assert await functions.engine.lease(worker) == []
    await functions.steer(run_id, "resume")
    again = await functions.resumed(worker)
    assert len(resumption_of(again).log or []) == 3
    assert (await functions.record(run_id)).error is None


async def test_accepting_a_divergence_drops_what_the_new_code_does_not_do(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await diverged(functions, worker)

    await functions.accept(run_id)

    again = await functions.resumed(worker)
    resumption = resumption_of(again)
    assert [one.path for one in resumption.log or []] == ["a#1"]
    assert resumption.reported == 3
    await functions.stop(worker, again, step("c#1"), output=1)
    assert await functions.output(run_id) == 1
    assert await functions.replays(run_id)


async def test_a_fork_begins_with_what_came_before_an_operation(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code({"cart": 1})
    task = await functions.resumed(worker)
    await functions.stop(worker, task, step("a#1"), call("b#1"), waits=[["b#1"]])
    (called,) = await engine.lease(worker)
    await engine.report(worker, done(called, result=b"5"))
    woken = await functions.resumed(worker)
    await functions.stop(worker, woken, delivered("b#1"), step("c#1"), step("d#1"), output=1)

    forked = await functions.fork(run_id, "d#1")

    task = await functions.resumed(worker)
    resumption = resumption_of(task)
    entries = [(one.path, one.state) for one in resumption.log or []]
    assert entries == [
        ("a#1", "done"),
        ("b#1", "pending"),
        ("b#1", "done"),
        ("b#1", "delivered"),
        ("c#1", "done"),
    ]
    assert (resumption.reported, resumption.input) == (4, {"cart": 1})
    await functions.stop(worker, task, step("d#1"), output=2)
    assert await functions.output(forked.id) == 2
    assert await functions.replays(forked.id)
    with pytest.raises(NodeNotFound):
        await functions.fork(run_id, "z#1")


# --- people, streams, replies ---------------------------------------------------------------------


async def test_an_approval_answers_one_question(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    form = {"type": "object", "required": ["carrier"]}
    asking = asked("x/ship#1", "approval", ApprovalRequest(title="Ship?", form=form))
    await functions.stop(worker, task, asking, waits=[["x/ship#1"]])

    (told_of,) = await told(functions.engine, "run-approval-asked")
    assert (told_of.subject, told_of.data["approval"]) == (to_text(run_id), "ship")
    assert told_of.data["title"] == "Ship?"
    with pytest.raises(Invalid):
        await functions.answer(run_id, "ship", {"approved": True})
    with pytest.raises(NothingToApprove):
        await functions.answer(run_id, "ship", {"approved": True}, token=99)
    await functions.answer(run_id, "ship", {"approved": True, "carrier": "dhl"}, token=1)
    with pytest.raises(NothingToApprove):
        await functions.answer(run_id, "ship", {"approved": True})

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == {"approved": True, "carrier": "dhl"}


async def test_a_refused_approval_fails_the_operation(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    asking = asked("ship#1", "approval", ApprovalRequest())
    await functions.stop(worker, task, asking, waits=[["ship#1"]])

    await functions.answer(run_id, "ship", {"approved": False})

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.error is not None
    assert ended.error["type"] == "rejected"


async def test_a_received_signal_is_answered_under_its_key(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    asking = asked("add#1", "receive", EventRequest(name="add", is_answered=True))
    await functions.stop(worker, task, asking, waits=[["add#1"]])
    await functions.command(SignalRun(run_id=run_id, name="add", payload=2, key="k1"))
    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == {"number": 1, "payload": 2}

    before = await functions.command(LookAtReply(run_id=run_id, key="k1"))
    answer = Operation(path="reply#1", kind="reply", state="done", result={"number": 1, "value": 4})
    await functions.tell(worker, woken, 1, delivered("add#1", "receive"), answer)
    after = await functions.command(LookAtReply(run_id=run_id, key="k1"))

    assert (before.value, after.value) == (None, b"4")


async def test_streams_are_read_after_what_is_known(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    values = [
        Operation(
            path=f"log#{number}",
            kind="stream",
            state="done",
            result={"stream": "log", "value": number},
        )
        for number in (1, 2, 3)
    ]
    await functions.tell(worker, task, 0, *values)

    shown = await functions.command(LookAtStream(run_id=run_id, name="log", after=1, limit=10))

    assert ([msgspec.json.decode(one) for one in shown.values], shown.next_after) == ([2, 3], 3)


# --- limits, versions, mixed runs -----------------------------------------------------------------


async def test_too_many_operations_fail_the_run_and_name_the_way_out(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OPERATIONS", 5)
    monkeypatch.setattr(limits, "OPERATIONS_WARNING", 3)
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    await functions.tell(worker, task, 0, *(step(f"a#{number}") for number in range(3)))
    await functions.tell(worker, task, 3, *(step(f"b#{number}") for number in range(3)))

    record = await functions.record(run_id)
    assert record.error is not None
    assert (record.state, record.error["type"]) == ("failed", "too_many_operations")
    assert "ctx.restart" in record.error["message"]
    assert (await functions.tell(worker, task, 6, step("c#1"))).outcomes == ["unknown"]


async def test_a_map_that_collects_has_results_and_errors_and_one_that_fails_cancels(
    functions: Functions,
) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.start_code()
    task = await functions.resumed(worker)
    asking = [
        mapped("all#1", [1, 2], on_failure="collect"),
        mapped("any#1", [1, 2, 3], max_parallel=2),
    ]
    await functions.stop(worker, task, *asking, waits=[["all#1", "any#1"]])
    items = await engine.lease(worker)
    assert len(items) == 4

    no_retry = TaskError(type="E", retryable=False)
    await engine.report(
        worker,
        done(items[0], result=b"1"),
        done(items[1], ok=False, error=no_retry),
        done(items[2], ok=False, error=no_retry),
    )

    woken = await functions.resumed(worker)
    ended = {one.path: one for one in resumption_of(woken).ended or []}
    assert ended["any#1"].error is not None
    assert ended["any#1"].error["item"] == 0
    assert [sorted(one) for one in ended["all#1"].result] == [["result"], ["error"]]
    assert (await engine.task(items[3].id)).state == "cancelled"


async def test_a_pinned_run_needs_a_worker_with_its_version(functions: Functions) -> None:
    engine = functions.engine
    old = await engine.register("old", capabilities=("code:order@1",))
    new = await engine.register("new", capabilities=("code:order@2",))
    await functions.start_code(upgrade="pinned")
    await functions.deploy(fingerprint="g" * 16, upgrade="pinned")

    assert await engine.lease(new) == []
    assert len(await engine.lease(old)) == 1


async def test_a_graph_runs_a_function_and_cancels_it(functions: Functions) -> None:
    worker = await functions.engine.register()
    await functions.deploy()
    first = await functions.start(PARENT, {"x": 3})
    task = await functions.resumed(worker)
    assert resumption_of(task).input == {"x": 3}
    await functions.stop(worker, task, output=9)
    assert await functions.output(first) == {"got": 9}

    second = (await functions.begin("parent", {"x": 4})).record.id
    task = await functions.resumed(worker)
    await functions.stop(worker, task, forever(functions.engine), waits=[["long#1"]])
    await functions.cancel(second)
    woken = await functions.resumed(worker)
    assert resumption_of(woken).cancelled is not None
    await functions.stop(worker, woken, error=CANCELLED)
    assert await functions.state(second) == "cancelled"
    assert await functions.replays(second)


async def test_a_graph_undoes_a_completed_function_by_the_task_of_its_node(
    functions: Functions,
) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.deploy()
    run_id = await functions.start(UNDOING)
    task = await functions.resumed(worker)
    await functions.stop(worker, task, step("a#1", 1, can_undo=True), output={"paid": 9})

    (last,) = await engine.lease(worker)
    await engine.report(worker, done(last, ok=False))

    (undoing,) = await engine.lease(worker)
    assert undoing.lane.name == "give_back"
    assert b'"paid":9' in bytes(undoing.payload)
    await engine.report(worker, done(undoing))
    assert await functions.state(run_id) == "failed"
    assert await functions.replays(run_id)


async def test_an_ended_run_cannot_be_signalled(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await functions.stop(worker, task, output=1)

    with pytest.raises(IllegalState):
        await functions.signal(run_id, "paid")


async def test_a_run_that_is_not_in_memory_is_replayed(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    waiting = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, task, step("a#1", {"x": 1}), waiting, waits=[["paid#1"]])
    functions.cache.runs.clear()

    await functions.signal(run_id, "paid", 2)

    woken = await functions.resumed(worker)
    resumption = resumption_of(woken)
    assert [one.path for one in resumption.log or []] == ["a#1", "paid#1", "paid#1"]


async def test_a_long_log_is_read_instead_of_sent(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    big = [step(f"a#{number}", "x" * 1_000) for number in range(40)]
    waiting = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, task, *big, waiting, waits=[["paid#1"]])
    await functions.signal(run_id, "paid", 1)

    woken = await functions.resumed(worker)

    resumption = resumption_of(woken)
    assert resumption.log is None
    assert [one.path for one in resumption.ended or []] == ["paid#1"]
    assert len((await functions.operations(run_id)).entries) == 42
