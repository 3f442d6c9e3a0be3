"""What a function leaves at the coordinator: large results, forks, limits, and early answers."""

from typing import Any

import pytest

from rota.core import limits
from rota.core.tasks.model import TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.commands import StageArtifact
from rota.core.workflow.decisions import WarnOperations
from rota.core.workflow.functions.model import (
    ApprovalRequest,
    CallRequest,
    EventRequest,
    MapRequest,
    Operation,
)
from rota.errors import NothingToApprove
from tests.engine.functions import Functions, asked, call, delivered, resumption_of, step
from tests.engine.running import Engine, done

NAME = "result-0-large"
PAUSED = Operation(path="go#1", kind="event", state="pending", request=EventRequest(name="go"))


@pytest.fixture
def functions(engine: Engine) -> Functions:
    return Functions(engine)


# --- large results --------------------------------------------------------------------------------


async def attach(functions: Functions, run_id: int, task: TaskRecord) -> None:
    """Attach a large result to the run, as a worker does before it reports the step."""
    await functions.command(
        StageArtifact(
            run_id=run_id,
            task_id=task.id,
            fence=task.fence,
            name=NAME,
            media_type="application/json",
            size=3,
            content=b'"x"',
        )
    )


async def artifacts(functions: Functions, run_id: int) -> list[str]:
    runs = functions.engine.coordinator.queries.runs
    return [one.name for one in await runs.artifacts(run_id, before=None, limit=100)]


async def crash(functions: Functions, worker: WorkerRecord, task: TaskRecord) -> TaskRecord:
    """End the attempt that runs a function, and lease the next one."""
    await functions.engine.report(worker, done(task, ok=False, retry_in_ms=0))
    return await functions.resumed(worker)


async def test_a_reported_result_that_is_an_artifact_outlives_its_worker(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await attach(functions, run_id, task)
    await functions.tell(worker, task, 0, step("large#1", {"$artifact": NAME}))

    again = await crash(functions, worker, task)

    assert await artifacts(functions, run_id) == [NAME]
    assert await functions.log(run_id) == [("large#1", "done")]
    await functions.stop(worker, again, after=1, output=1)
    assert await artifacts(functions, run_id) == [NAME]


async def test_an_artifact_of_a_step_that_was_not_reported_goes_with_its_worker(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await functions.tell(worker, task, 0, step("small#1"))
    await attach(functions, run_id, task)

    again = await crash(functions, worker, task)

    assert await artifacts(functions, run_id) == []
    await attach(functions, run_id, again)
    await functions.stop(worker, again, step("large#1", {"$artifact": NAME}), after=1, output=1)
    assert await artifacts(functions, run_id) == [NAME]


# --- forks ----------------------------------------------------------------------------------------


async def test_a_fork_asks_again_for_what_had_not_ended_and_not_for_what_was_given_up(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    given_up = Operation(
        path="go#1", kind="event", state="failed", error={"type": "withdrawn", "message": "late"}
    )
    await functions.tell(worker, task, 0, PAUSED, call("open#1"), given_up, step("a#1"))
    await functions.stop(worker, task, step("b#1"), after=4, waits=[["open#1"]])

    forked = await functions.fork(run_id, "b#1")

    await functions.cancel(run_id, force=True)
    task = await functions.resumed(worker)
    resumption = resumption_of(task)
    assert [(one.path, one.state) for one in resumption.log or []] == [
        ("go#1", "pending"),
        ("go#1", "failed"),
        ("a#1", "done"),
    ]
    assert (resumption.reported, resumption.ended) == (3, [])
    await functions.stop(worker, task, call("open#1"), step("b#1"), waits=[["open#1"]])
    (asked_again,) = await functions.engine.lease(worker)
    await functions.engine.report(worker, done(asked_again, result=b"7"))
    woken = await functions.resumed(worker)
    await functions.stop(worker, woken, delivered("open#1"), output=7)
    assert await functions.output(forked.id) == 7
    assert await functions.replays(forked.id)


# --- early answers --------------------------------------------------------------------------------


async def test_an_approval_that_the_function_has_not_asked_for_is_refused_and_not_kept(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code(approvals=("ship",))
    task = await functions.resumed(worker)

    with pytest.raises(NothingToApprove):
        await functions.answer(run_id, "ship", {"approved": True})
    await functions.signal(run_id, "go", 1)

    asking = asked("ship#1", "approval", ApprovalRequest())
    await functions.stop(worker, task, PAUSED, asking, waits=[["ship#1"]])
    assert await functions.engine.lease(worker) == []  # the early answer did not approve
    await functions.answer(run_id, "ship", {"approved": True})
    woken = await functions.resumed(worker)
    ended = [(one.path, one.result) for one in resumption_of(woken).ended or []]
    assert ended == [("go#1", 1), ("ship#1", {"approved": True})]


async def test_the_names_of_approvals_make_no_version(functions: Functions) -> None:
    first = await functions.deploy()

    again = await functions.deploy(approvals=("ship",))

    assert (again.version.version, again.is_new) == (first.version.version, False)


# --- limits ---------------------------------------------------------------------------------------


async def test_half_of_the_operations_are_a_warning_and_one_too_many_fails_the_run(
    functions: Functions,
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    half = limits.MAX_OPERATIONS // 2
    steps = [step(f"a#{number}") for number in range(1, limits.MAX_OPERATIONS + 2)]

    await functions.tell(worker, task, 0, *steps[: half - 1])
    assert not await warnings(functions, run_id)
    await functions.tell(worker, task, half - 1, steps[half - 1])
    assert await warnings(functions, run_id) == [half]
    await functions.tell(worker, task, half, *steps[half:-1])
    assert await functions.state(run_id) == "running"
    await functions.tell(worker, task, limits.MAX_OPERATIONS, steps[-1])

    assert half == limits.OPERATIONS_WARNING == 5_000
    assert await warnings(functions, run_id) == [half]
    record = await functions.record(run_id)
    assert record.error is not None
    assert (record.state, record.error["type"]) == ("failed", "too_many_operations")
    assert "ctx.restart" in record.error["message"]


async def warnings(functions: Functions, run_id: int) -> list[int]:
    """How many operations the run had when it was warned."""
    decisions: list[Any] = [
        one for entry in await functions.journal(run_id) for one in entry.decisions
    ]
    return [one.count for one in decisions if isinstance(one, WarnOperations)]


async def test_a_run_of_the_most_operations_can_be_cancelled(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    steps = [step(f"a#{number}") for number in range(1, limits.MAX_OPERATIONS)]
    await functions.stop(worker, task, *steps, PAUSED, waits=[["go#1"]])

    await functions.cancel(run_id)

    woken = await functions.resumed(worker)
    assert resumption_of(woken).cancelled == "cancelled"
    cancelled = {"type": "cancelled", "message": "cancelled"}
    await functions.stop(worker, woken, error=cancelled)
    assert await functions.state(run_id) == "cancelled"


@pytest.mark.parametrize(("count", "state"), [(10_000, "pending"), (10_001, "failed")])
async def test_a_map_has_at_most_ten_thousand_items(
    functions: Functions, count: int, state: str
) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    request = MapRequest(call=CallRequest(task="work"), payloads=[0] * count, max_parallel=2)

    await functions.stop(worker, task, asked("all#1", "map", request), waits=[["all#1"]])

    assert (await functions.log(run_id))[-1] == ("all#1", state)
    leased = await functions.engine.lease(worker, 100)
    if state == "pending":
        assert [one.lane.name for one in leased] == ["work", "work"]
    else:
        (ended,) = resumption_of(leased[0]).ended or []
        assert ended.error is not None
        assert ended.error["type"] == "too_many_items"
        assert "10001" in ended.error["message"]


async def test_a_run_appends_at_most_so_many_values_to_its_streams(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_STREAM_VALUES", 3)
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    def value(number: int, stream: str) -> Operation:
        result = {"stream": stream, "value": number}
        return Operation(path=f"{stream}#{number}", kind="stream", state="done", result=result)

    await functions.tell(worker, task, 0, value(1, "log"), value(2, "log"), value(3, "rows"))
    assert await functions.state(run_id) == "running"
    await functions.tell(worker, task, 3, value(4, "rows"))

    record = await functions.record(run_id)
    assert record.error is not None
    assert (record.state, record.error["type"]) == ("failed", "too_many_stream_values")
