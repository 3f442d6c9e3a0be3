"""Functions on the engine: resumed by ordinary tasks, and reported in the transaction of these."""

import asyncio
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace

from rota.core.access import Caller, Scope
from rota.core.workflow.commands import PutCode, ReportedOperations
from rota.core.workflow.functions.model import (
    ChildRequest,
    EventRequest,
)
from rota.core.workflow.functions.run import CodeRun
from rota.engine.runs.functions import FunctionCommands
from rota.errors import Forbidden, StaleIncarnation
from tests.engine.functions import (
    Functions,
    asked,
    call,
    code,
    delivered,
    failed,
    mapped,
    nap,
    resumption_of,
    step,
)
from tests.engine.graphs import LINE
from tests.engine.running import Engine, done, settle, soon


@pytest.fixture
def functions(engine: Engine) -> Functions:
    return Functions(engine)


# --- one function ---------------------------------------------------------------------------------


async def test_a_function_runs_as_an_ordinary_task_and_ends_its_run(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code({"cart": 7})
    task = await functions.resumed(worker)
    resumption = resumption_of(task)
    assert (resumption.input, resumption.log, resumption.reported) == ({"cart": 7}, [], 0)

    noted = await functions.tell(worker, task, 0, step("price#1", 12))
    await functions.stop(worker, task, step("charge#1", "ok"), after=1, output={"paid": 12})

    assert noted.outcomes == ["accepted"]
    assert await functions.output(run_id) == {"paid": 12}
    assert await functions.log(run_id) == [("price#1", "done"), ("charge#1", "done")]
    assert await functions.replays(run_id)


async def test_a_report_is_one_journal_entry_and_one_commit(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    commits, entries = functions.engine.database.commits, len(await functions.journal(run_id))

    await functions.tell(worker, task, 0, step("a#1"), step("b#1"))

    assert functions.engine.database.commits == commits + 1
    assert len(await functions.journal(run_id)) == entries + 1


async def test_a_repeated_report_counts_once_and_a_gap_is_refused(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    first = await functions.tell(worker, task, 0, step("a#1"))
    again = await functions.tell(worker, task, 0, step("a#1"))
    longer = await functions.tell(worker, task, 0, step("a#1"), step("b#1"))
    gap = await functions.tell(worker, task, 3, step("d#1"))

    outcomes = [one.outcomes[0] for one in (first, again, longer, gap)]
    assert outcomes == ["accepted", "duplicate", "accepted", "stale"]
    assert await functions.log(run_id) == [("a#1", "done"), ("b#1", "done")]


async def late_report(functions: Functions) -> tuple[list[str], list[str]]:
    """The outcomes of a report under an old fence, and of one under the new fence."""
    engine = functions.engine
    worker = await engine.register()
    await functions.start_code()
    task = await functions.resumed(worker)
    await engine.report(worker, done(task, ok=False, error=None, retry_in_ms=0))
    (again,) = await engine.lease(worker)
    assert again.id == task.id
    stale = await functions.tell(worker, task, 0, step("a#1"))
    fresh = await functions.tell(worker, again, 0, step("a#1"))
    return [*stale.outcomes], [*fresh.outcomes]


async def test_a_report_under_an_old_fence_is_refused(functions: Functions) -> None:
    assert await late_report(functions) == (["stale"], ["accepted"])


async def test_a_coordinator_that_forgets_fences_is_noticed(functions: Functions) -> None:
    whole = FunctionCommands._run_of

    def forgetful(
        self: FunctionCommands, item: ReportedOperations, incarnation: int
    ) -> tuple[int, CodeRun] | None:
        lease = self._leases.by_task[item.task_id]
        return whole(self, replace(item, fence=lease.fence), incarnation)

    with patch.object(FunctionCommands, "_run_of", forgetful):
        outcomes = await late_report(functions)

    assert outcomes == (["accepted"], ["duplicate"])


async def test_another_incarnation_cannot_report(functions: Functions) -> None:
    worker = await functions.engine.register()
    await functions.start_code()
    task = await functions.resumed(worker)
    later = await functions.engine.register()

    with pytest.raises(StaleIncarnation):
        await functions.tell(worker, task, 0, step("a#1"))
    assert (await functions.tell(later, task, 0, step("a#1"))).outcomes in (["stale"], ["unknown"])


async def test_a_report_and_the_end_of_its_task_may_share_a_batch(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    await asyncio.gather(
        functions.tell(worker, task, 0, step("a#1")),
        functions.stop(worker, task, step("b#1"), after=1, output=1),
    )

    assert await functions.output(run_id) == 1
    assert await functions.log(run_id) == [("a#1", "done"), ("b#1", "done")]


# --- waiting --------------------------------------------------------------------------------------


async def test_a_function_that_sleeps_has_no_task_until_its_time_comes(
    functions: Functions,
) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    due_ms = engine.clock.now_ms() + 60_000
    await functions.stop(worker, task, nap("sleep#1", due_ms), waits=[["sleep#1"]])
    assert await engine.lease(worker) == []
    await engine.turn(60_001)

    woken = await functions.resumed(worker)
    resumption = resumption_of(woken)
    assert (resumption.reported, len(resumption.log or [])) == (1, 2)
    assert [one.path for one in resumption.ended or []] == ["sleep#1"]
    await functions.stop(worker, woken, delivered("sleep#1", "sleep"), output="slept")
    assert await functions.output(run_id) == "slept"
    assert await functions.replays(run_id)


async def test_a_called_task_ends_its_operation(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await functions.stop(worker, task, call("work#1", payload={"n": 1}), waits=[["work#1"]])

    (called,) = await engine.lease(worker)
    assert (called.lane.name, msgspec.json.decode(called.payload)) == ("work", {"n": 1})
    await engine.report(worker, done(called, result=b"42"))

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert (ended.state, ended.result) == ("done", 42)
    await functions.stop(worker, woken, delivered("work#1"), output=42)
    assert await functions.output(run_id) == 42


async def test_an_event_is_kept_until_the_function_asks(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    await functions.signal(run_id, "paid", {"by": "card"})

    waiting = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, task, waiting, waits=[["paid#1"]])

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == {"by": "card"}


async def test_a_function_runs_a_graph_as_its_child(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.put(LINE)
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    child = asked("child#1", "run", ChildRequest(workflow="line", input={}))
    await functions.stop(worker, task, child, waits=[["child#1"]])

    for result in (b"1", b"2"):
        (leased,) = await engine.lease(worker)
        await engine.report(worker, done(leased, result=result))

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == {"second": 2}
    await functions.stop(worker, woken, delivered("child#1", "run"), output="ok")
    assert await functions.output(run_id) == "ok"
    assert await functions.replays(run_id)


async def test_a_hundred_children_wake_their_parent_once(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register(max_concurrent_tasks=200)
    await functions.deploy("child")
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    paths = [f"child#{number}" for number in range(1, 101)]
    asking = [asked(path, "run", ChildRequest(workflow="child")) for path in paths]
    await functions.stop(worker, task, *asking, waits=[paths])

    children = await engine.lease(worker, most=200)
    assert len(children) == 100
    for one in children:
        await functions.stop(worker, one, output=1)

    woken = await functions.resumed(worker)
    assert len(resumption_of(woken).ended or []) == 100
    assert await functions.replays(run_id)


async def test_the_first_of_several_groups_resumes_the_function(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    late = nap("late#1", engine.clock.now_ms() + 60_000)
    paid = asked("paid#1", "event", EventRequest(name="paid"))
    await functions.stop(worker, task, late, paid, waits=[["late#1"], ["paid#1"]])

    await functions.signal(run_id, "paid", 1)

    woken = await functions.resumed(worker)
    assert [one.path for one in resumption_of(woken).ended or []] == ["paid#1"]
    await functions.stop(worker, woken, delivered("paid#1", "event"), output=1)
    await engine.turn(60_001)
    assert await functions.output(run_id) == 1
    assert await engine.lease(worker) == []


async def test_a_resumed_function_goes_to_the_worker_that_ran_it_if_that_has_room(
    functions: Functions,
) -> None:
    engine = functions.engine
    workers = [await engine.register(f"w{number}") for number in range(6)]
    home = workers[4]
    run_id = await functions.start_code()
    task = await functions.resumed(home)
    for number in range(1, 6):
        path = f"go#{number}"
        waiting = asked(path, "event", EventRequest(name="go"))
        before = [delivered(f"go#{number - 1}", "event")] if number > 1 else []
        await functions.stop(home, task, *before, waiting, waits=[[path]])
        calls = {one.id: await engine.parked(one, most=1) for one in workers}
        await functions.signal(run_id, "go", number)
        (task,) = (await soon(calls.pop(home.id))).leases
        for one in calls.values():
            one.cancel()

    last = asked("go#6", "event", EventRequest(name="go"))
    await functions.stop(home, task, delivered("go#5", "event"), last, waits=[["go#6"]])
    others = [await engine.parked(one, most=1) for one in workers if one is not home]
    await functions.signal(run_id, "go", 6)
    await settle()
    assert sum(one.done() for one in others) == 1  # its own worker has not asked for work
    for one in others:
        one.cancel()


# --- definitions ----------------------------------------------------------------------------------


async def test_the_same_fingerprint_and_options_are_the_same_version(functions: Functions) -> None:
    first = await functions.deploy()
    again = await functions.deploy()
    changed = await functions.deploy(fingerprint="g" * 16)
    elsewhere = await functions.deploy(fingerprint="g" * 16, queue="slow")

    versions = [one.version.version for one in (first, again, changed, elsewhere)]
    assert versions == [1, 1, 2, 3]
    stored = await functions.engine.coordinator.queries.workflows.definition("order", 2)
    assert stored == code(fingerprint="g" * 16)


async def test_a_worker_puts_functions_of_its_own_queues_only(functions: Functions) -> None:
    async def put(name: str, queue: str, **binding: Any) -> None:
        by = Caller(name="w", scopes=(Scope.WORKER,), **binding)
        await functions.command(PutCode(definition=code(name, queue=queue), by=by))

    await functions.put(LINE)
    await put("own", "a", queues=("a",))
    with pytest.raises(Forbidden):
        await put("other", "b", queues=("a",))
    with pytest.raises(Forbidden):
        await put("own", "b", queues=("b",))
    with pytest.raises(Forbidden):
        await put("line", "a")


# --- crashes --------------------------------------------------------------------------------------


async def test_a_crash_after_progress_resumes_and_one_without_fails(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    run_id = await functions.start_code(max_attempts=1)
    task = await functions.resumed(worker)
    await functions.tell(worker, task, 0, step("a#1"))
    await engine.report(worker, done(task, ok=False))

    again = await functions.resumed(worker)
    assert resumption_of(again).reported == 1
    await engine.report(worker, done(again, ok=False))

    assert await functions.state(run_id) == "failed"
    assert await functions.replays(run_id)


async def test_a_failed_operation_of_a_group_resumes_at_once(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.start_code()
    task = await functions.resumed(worker)
    asking = [call("a#1", max_attempts=1), call("b#1", max_attempts=1)]
    await functions.stop(worker, task, *asking, waits=[["a#1", "b#1"]])
    one, _ = await engine.lease(worker)

    await engine.report(worker, done(one, ok=False))

    woken = await functions.resumed(worker)
    assert [one.state for one in resumption_of(woken).ended or []] == ["failed"]


async def test_a_function_error_fails_the_run(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)

    await functions.stop(worker, task, failed("a#1"), error={"type": "E", "message": "no"})

    record = await functions.record(run_id)
    assert (record.state, record.error) == ("failed", {"type": "E", "message": "no"})


async def test_a_map_runs_its_items_side_by_side_and_ends_once(functions: Functions) -> None:
    engine = functions.engine
    worker = await engine.register()
    await functions.start_code()
    task = await functions.resumed(worker)
    await functions.stop(
        worker, task, mapped("work#1", [1, 2, 3], max_parallel=2), waits=[["work#1"]]
    )

    first, second = await engine.lease(worker)
    await engine.report(worker, done(second, result=b"20"))
    (third,) = await engine.lease(worker)
    await engine.report(worker, done(third, result=b"30"), done(first, result=b"10"))

    woken = await functions.resumed(worker)
    (ended,) = resumption_of(woken).ended or []
    assert ended.result == [10, 20, 30]
