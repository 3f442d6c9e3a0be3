"""Waiting: suspension, resumption in memory and by replay, first, cancel, restart, markers."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rota import ApprovalRejected, OperationFailed, Run
from rota.sdk.functions.errors import Suspended
from tests.sdk.functions.recording import STARTED_AT_MS, RecordedRun, run


async def noted(names: list[str], name: str) -> str:
    names.append(name)
    return name


def test_a_function_that_waits_is_suspended_and_goes_on_in_memory() -> None:
    entered: list[str] = []

    async def function(ctx: Run) -> Any:
        entered.append("begun")
        return await ctx.event("paid")

    recorded = RecordedRun(function)
    recorded.is_memory_kept = True

    async def main() -> None:
        report = await recorded.run()
        assert report.waits == [["paid#1"]]
        recorded.signals["paid"] = [{"sum": 3}]
        recorded.advance()
        await recorded.run()

    asyncio.run(main())

    assert recorded.output == {"sum": 3}
    assert entered == ["begun"]
    assert [one.state for one in recorded.log] == ["pending", "done", "delivered"]


def test_a_suspension_is_not_an_exception_that_a_function_may_swallow() -> None:
    swallowed: list[BaseException] = []

    async def function(ctx: Run) -> Any:
        try:
            return await ctx.event("paid")
        except Exception as error:  # noqa: BLE001 - what this test is about
            swallowed.append(error)
            return "swallowed"

    recorded = RecordedRun(function)

    async def main() -> None:
        await recorded.run()
        assert recorded.runtime is not None
        recorded.runtime.unwind()
        await asyncio.sleep(0)

    asyncio.run(main())

    assert swallowed == []
    assert not issubclass(Suspended, Exception)
    assert recorded.ended is None


def test_cleaning_up_in_a_suspended_function_runs_no_step() -> None:
    names: list[str] = []

    async def function(ctx: Run) -> Any:
        try:
            return await ctx.event("paid")
        finally:
            await ctx.step(noted, names, "cleaned")

    recorded = RecordedRun(function)

    async def main() -> None:
        await recorded.run()
        assert recorded.runtime is not None
        recorded.runtime.unwind()
        for _ in range(5):
            await asyncio.sleep(0)
        assert names == []
        recorded.signals["paid"] = [1]
        recorded.advance()
        await recorded.run()

    asyncio.run(main())

    assert recorded.output == 1
    assert names == ["cleaned"]


def test_a_hundred_operations_of_one_gather_wake_their_function_once() -> None:
    async def function(ctx: Run) -> int:
        return len(await ctx.gather(*[ctx.call("resize", {"n": n}) for n in range(100)]))

    recorded = RecordedRun(function)
    waits = run(recorded).waits

    assert waits is not None
    assert [len(group) for group in waits] == [100]


def test_branches_that_go_on_by_themselves_wake_their_function_by_themselves() -> None:
    async def branch(ctx: Run, name: str) -> Any:
        return await ctx.event(name)

    async def function(ctx: Run) -> Any:
        return await ctx.gather(branch(ctx, "a"), branch(ctx, "b"))

    assert run(RecordedRun(function)).waits == [["gather#1.0/a#1"], ["gather#1.1/b#1"]]


def test_a_short_sleep_passes_in_the_worker_and_a_long_one_without_it() -> None:
    async def function(ctx: Run) -> Any:
        await ctx.sleep(ms=900)
        await ctx.sleep(until=datetime.fromtimestamp(STARTED_AT_MS / 1_000 + 3_600, UTC))
        return "awake"

    recorded = RecordedRun(function)
    report = run(recorded)

    assert report.waits == [["sleep#2"]]
    assert [(one.path, one.state) for one in recorded.log] == [
        ("sleep#1", "done"),
        ("sleep#2", "pending"),
    ]
    recorded.now_ms += 3_600_000
    recorded.advance()
    run(recorded)
    assert recorded.output == "awake"


def test_the_first_is_recorded_and_the_others_are_given_up() -> None:
    async def function(ctx: Run) -> Any:
        which, value = await ctx.first(paid=ctx.event("paid"), late=ctx.sleep(days=3))
        again = await ctx.event("paid")
        return [which, value, again]

    recorded = RecordedRun(function)
    run(recorded)
    recorded.now_ms += 3 * 86_400_000
    recorded.advance()
    run(recorded)
    assert [one.path for one in recorded.log if one.state == "failed"] == ["first#1.paid/paid#1"]
    recorded.signals["paid"] = [1]
    recorded.advance()
    run(recorded)

    assert recorded.output == ["late", None, 1]


def test_a_failed_operation_raises_in_the_function() -> None:
    async def function(ctx: Run) -> Any:
        try:
            await ctx.call("resize", {})
        except OperationFailed as error:
            return [error.type, error.path]

    recorded = RecordedRun(function)
    recorded.answers["resize#1"] = {"failed": {"type": "Broken", "message": "no"}}
    run(recorded)

    assert recorded.output == ["Broken", "resize#1"]


def test_the_first_error_of_a_gather_cancels_its_other_branches() -> None:
    ended: list[str] = []

    async def slow(ctx: Run) -> None:
        try:
            await ctx.event("never")
        finally:
            ended.append("slow")

    async def broken(ctx: Run) -> None:
        await ctx.using(max_attempts=1).step(fail)

    async def function(ctx: Run) -> Any:
        try:
            await ctx.gather(slow(ctx), broken(ctx))
        except ValueError as error:
            return str(error)

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == "broken"
    assert ended == ["slow"]


async def fail() -> None:
    raise ValueError("broken")


def test_an_approval_returns_its_form_or_is_rejected() -> None:
    import msgspec  # noqa: PLC0415 - only here

    class Ship(msgspec.Struct):
        carrier: str

    async def function(ctx: Run) -> Any:
        ship = await ctx.approval("Ship?", form=Ship)
        try:
            await ctx.approval("Sure?")
        except ApprovalRejected as error:
            return [ship.carrier, error.answer]

    recorded = RecordedRun(function)
    recorded.answers["approval#1"] = {"approved": True, "carrier": "ups"}
    no = {"type": "rejected", "message": "no", "details": {"approved": False}}
    recorded.answers["approval#2"] = {"failed": no}
    run(recorded)

    assert recorded.output == ["ups", {"approved": False}]
    form = msgspec.to_builtins(recorded.log[0].request)["form"]
    assert form["properties"] == {"carrier": {"type": "string"}}


def test_a_message_is_received_and_answered_once() -> None:
    async def function(ctx: Run) -> Any:
        message = await ctx.receive("rename")
        message.reply({"was": message.payload})
        return await ctx.event("go")

    recorded = RecordedRun(function)
    recorded.signals["rename"] = [{"number": 7, "payload": "new"}]
    run(recorded)
    recorded.signals["go"] = [1]
    recorded.advance()
    run(recorded)

    replies = [one for one in recorded.log if one.kind == "reply"]
    assert [(one.path, one.result) for one in replies] == [
        ("reply[7]", {"number": 7, "value": {"was": "new"}})
    ]


def test_what_is_published_and_streamed_is_recorded_once() -> None:
    async def function(ctx: Run) -> Any:
        ctx.publish("status", "begun")
        ctx.stream("lines").write("one")
        ctx.stream("lines").write("two")
        return await ctx.event("go")

    recorded = RecordedRun(function)
    run(recorded)
    recorded.signals["go"] = [1]
    recorded.advance()
    run(recorded)

    assert [(one.path, one.result) for one in recorded.log if one.kind != "event"] == [
        ("status#1", {"key": "status", "value": "begun"}),
        ("lines#1", {"stream": "lines", "value": "one"}),
        ("lines#2", {"stream": "lines", "value": "two"}),
    ]


def test_a_restart_begins_again_under_the_same_run() -> None:
    async def function(ctx: Run, number: int = 0) -> Any:
        await ctx.step(noted, [], "step")
        if number < 3:
            ctx.restart(number + 1)
        return number

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == 3
    assert recorded.restarts == 3
    assert recorded.paths == ["noted#1"]


def test_a_marker_lets_old_runs_go_the_old_way_and_new_ones_the_new_way() -> None:
    async def old(ctx: Run) -> Any:
        await ctx.step(noted, [], "tax-2026")
        return await ctx.event("go")

    async def new(ctx: Run) -> Any:
        is_new = ctx.changed("tax-2027")
        taken = await ctx.step(noted, [], "tax-2027" if is_new else "tax-2026")
        await ctx.event("go")
        return [is_new, ctx.changed("tax-2027"), taken]

    begun_before = RecordedRun(old)
    run(begun_before)
    begun_before.function = new
    begun_after = RecordedRun(new)
    run(begun_after)
    for one in (begun_before, begun_after):
        one.signals["go"] = [1]
        one.advance()
        run(one)

    assert begun_before.output == [False, False, "tax-2026"]
    assert begun_after.output == [True, True, "tax-2027"]


@pytest.mark.parametrize("is_memory_kept", [True, False])
def test_a_cancelled_function_stops_undoes_and_says_so(is_memory_kept: bool) -> None:  # noqa: FBT001 - a parameter
    names: list[str] = []

    async def function(ctx: Run) -> Any:
        await ctx.using(undo=lambda name: names.append(f"-{name}")).step(noted, names, "a")
        try:
            await ctx.gather(ctx.event("never"), ctx.event("nor this"))
        except asyncio.CancelledError:
            await ctx.step(noted, names, f"told: {ctx.cancelled}")
            raise

    recorded = RecordedRun(function)
    recorded.is_memory_kept = is_memory_kept

    async def main() -> None:
        await recorded.run()
        recorded.cancelled = "too late"
        await recorded.run()

    asyncio.run(main())

    assert recorded.ended is not None
    assert recorded.ended.error == {"type": "cancelled", "message": "too late"}
    assert names == ["a", "told: too late", "-a"]


def test_a_cancellation_waits_for_the_step_that_runs() -> None:
    names: list[str] = []
    recorded = RecordedRun(lambda: None)

    async def slow(name: str) -> str:
        recorded.cancelled = "enough"
        return await noted(names, name)

    async def function(ctx: Run) -> Any:
        await ctx.step(noted, names, "a")
        await ctx.step(slow, "b")
        await ctx.step(noted, names, "c")
        await ctx.step(noted, names, "d")

    recorded.function = function
    report = run(recorded)

    assert report.error == {"type": "cancelled", "message": "enough"}
    assert names == ["a", "b"]
    assert recorded.paths == ["noted#1", "slow#1"]


def test_a_cancelled_function_that_returns_is_cancelled_all_the_same() -> None:
    async def function(ctx: Run) -> Any:
        try:
            await ctx.event("never")
        except asyncio.CancelledError:
            return "fine"

    recorded = RecordedRun(function)
    run(recorded)
    recorded.cancelled = "enough"
    report = run(recorded)

    assert report.error == {"type": "cancelled", "message": "enough"}


def test_tasks_of_the_functions_own_are_awaited_before_it_is_suspended() -> None:
    async def branch(ctx: Run, name: str) -> Any:
        await ctx.using(name=name).step(noted, [], name)
        return await ctx.event(name)

    async def function(ctx: Run) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(ctx, name)) for name in ("a", "b")]
        return [one.result() for one in tasks]

    recorded = RecordedRun(function)
    report = run(recorded)
    assert sorted(report.waits or []) == [["a#2"], ["b#2"]]
    recorded.signals = {"a": [1], "b": [2]}
    recorded.advance()
    run(recorded)

    assert recorded.output == [1, 2]


def test_a_plain_function_blocks_is_suspended_and_is_cancelled() -> None:
    names: list[str] = []

    def function(ctx: Any) -> Any:
        first = ctx.using(undo=lambda: names.append("undone")).step(noted, names, "a")
        both = ctx.gather(lambda: ctx.step(noted, names, "b"), lambda: ctx.event("go"))
        which, value = ctx.first(go=lambda: ctx.event("go"), late=lambda: ctx.sleep(days=1))
        return [first, both, which, value, ctx.event("never")]

    recorded = RecordedRun(function)
    for signal in (1, 2):
        run(recorded)
        recorded.signals["go"] = [signal]
        recorded.advance()
    run(recorded)
    recorded.cancelled = "enough"
    report = run(recorded)

    assert report.error == {"type": "cancelled", "message": "enough"}
    assert names == ["a", "b", "undone"]
    choices = [one.result for one in recorded.log if one.kind == "choice"]
    assert choices == ["go"]
