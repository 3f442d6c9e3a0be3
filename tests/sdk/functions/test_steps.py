"""Steps: run once, tried again, timed out, at most once, undone."""

import asyncio
from typing import Any

import pytest

from rota import AmbiguousStep, Invalid, OperationFailed, Retry, StepOutcomeUnknown
from rota.core.workflow.functions.model import Operation
from rota.sdk.functions.errors import error_of, raised
from tests.sdk.functions.recording import STARTED_AT_MS, RecordedRun, run


class DeclinedError(Exception):
    """An error of a user's step."""


class Counter:
    """A step that fails a number of times."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.calls = 0
        self.failures = failures
        self.error = error or DeclinedError("no funds")

    async def charge(self, amount: int = 1) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return amount * 10


def test_a_plain_function_is_a_step_too_and_runs_in_a_thread() -> None:
    import threading  # noqa: PLC0415 - only here

    async def function(ctx: Any) -> list[str]:
        return [
            await ctx.step(lambda: threading.current_thread().name),
            threading.current_thread().name,
        ]

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output[0].startswith("rota-step")
    assert recorded.output[1] == threading.current_thread().name
    assert recorded.paths == ["lambda#1"]


def test_the_result_of_a_step_is_committed_before_the_next_effect_begins() -> None:
    seen: list[int] = []
    recorded = RecordedRun(lambda: None)

    async def look() -> None:
        seen.append(len(recorded.log))

    async def function(ctx: Any) -> None:
        await ctx.step(look)
        await ctx.using(checkpoint="with_next").step(look)
        await ctx.step(look)
        await ctx.step(look)

    recorded.function = function
    run(recorded)

    # The second result does not wait for a commit of its own: it goes with the third.
    assert seen == [0, 1, 1, 3]
    assert recorded.reports == 2


def test_the_last_step_and_the_return_are_one_message() -> None:
    async def function(ctx: Any) -> int:
        return await ctx.step(Counter().charge)  # type: ignore[no-any-return]  # of a test

    recorded = RecordedRun(function)
    report = run(recorded)

    assert recorded.reports == 0
    assert [one.path for one in report.operations] == ["charge#1"]


def test_a_failed_step_is_tried_again_in_place_after_a_short_wait() -> None:
    counter = Counter(failures=2)

    async def function(ctx: Any) -> int:
        step = ctx.using(max_attempts=3, backoff={"initial_ms": 100, "jitter": 0})
        return await step.step(counter.charge, 4)  # type: ignore[no-any-return]  # of a test

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == 40
    assert counter.calls == 3
    assert [(one.path, one.attempts) for one in recorded.log] == [("charge#1", 3)]


def test_a_long_wait_between_attempts_needs_no_worker() -> None:
    counter = Counter(failures=2)

    async def function(ctx: Any) -> int:
        step = ctx.using(max_attempts=3, backoff={"initial_ms": 60_000, "jitter": 0})
        return await step.step(counter.charge, 4)  # type: ignore[no-any-return]  # of a test

    recorded = RecordedRun(function)
    reports = []
    for _ in range(3):
        reports.append(run(recorded))
        recorded.now_ms += 200_000
        recorded.advance()

    assert [one.waits for one in reports] == [
        [["charge#1/retry#1"]],
        [["charge#1/retry#2"]],
        None,
    ]
    assert recorded.output == 40
    assert counter.calls == 3


def test_a_step_that_asks_for_a_retry_says_when() -> None:
    counter = Counter(failures=1, error=Retry(in_ms=5_000))

    async def function(ctx: Any) -> Any:
        return await ctx.step(counter.charge)

    recorded = RecordedRun(function)

    assert run(recorded).waits == [["charge#1/retry#1"]]


def test_an_error_is_the_same_when_it_is_replayed() -> None:
    async def function(ctx: Any) -> list[str]:
        try:
            await ctx.using(max_attempts=1).step(Counter(failures=1).charge)
        except DeclinedError as error:
            return [repr(error), await ctx.event("go")]
        return []

    recorded = RecordedRun(function)
    run(recorded)
    recorded.signals["go"] = ["went"]
    recorded.advance()
    run(recorded)

    assert recorded.output == ["DeclinedError('no funds')", "went"]


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_be_rebuilt_is_operation_failed_at_once() -> None:
    async def function(ctx: Any) -> list[str]:
        try:
            await ctx.using(max_attempts=1).step(Counter(failures=1, error=OddError(1, 2)).charge)
        except OperationFailed as error:
            return [error.type, type(error.__cause__).__name__]
        return []

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == [f"{__name__}.OddError", "OddError"]


def test_an_error_is_rebuilt_from_what_is_recorded() -> None:
    rebuilt = raised("a#1", error_of(DeclinedError("x", 3)))

    assert isinstance(rebuilt, DeclinedError)
    assert rebuilt.args == ("x", 3)
    assert isinstance(raised("a#1", {"type": "os.system", "arguments": ["true"]}), OperationFailed)


def test_a_step_that_takes_too_long_times_out() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def function(ctx: Any) -> str:
        try:
            await ctx.using(timeout_ms=1, max_attempts=1).step(forever)
        except TimeoutError as error:
            return str(error)
        return "?"

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == "forever#1 ran past its 1 ms"
    assert recorded.log[0].error is not None
    assert recorded.log[0].error["type"] == "timeout"


def test_once_is_recorded_before_it_begins_and_never_runs_again() -> None:
    counter = Counter()

    async def function(ctx: Any) -> Any:
        try:
            return await ctx.once(counter.charge)
        except StepOutcomeUnknown as error:
            return error.type

    recorded = RecordedRun(function)
    recorded.log = [Operation(path="charge#1", kind="once", state="started")]
    recorded.reported = 1
    run(recorded)

    assert recorded.output == "unknown_outcome"
    assert counter.calls == 0
    assert [one.state for one in recorded.log] == ["started", "failed"]


def test_once_that_ended_is_not_run_again() -> None:
    counter = Counter()

    async def function(ctx: Any) -> list[Any]:
        return [await ctx.once(counter.charge), await ctx.event("go")]

    recorded = RecordedRun(function)
    run(recorded)
    recorded.signals["go"] = [1]
    recorded.advance()
    run(recorded)

    assert recorded.output == [10, 1]
    assert counter.calls == 1


def test_operations_are_not_called_inside_a_step() -> None:
    async def function(ctx: Any) -> str:
        async def inner() -> None:
            await ctx.sleep(days=1)

        try:
            await ctx.using(max_attempts=1).step(inner)
        except Invalid as error:
            return error.detail
        return "?"

    recorded = RecordedRun(function)
    run(recorded)

    assert "inside a step" in str(recorded.output)


def test_two_tasks_with_one_name_in_one_scope_are_ambiguous_and_both_lines_are_named() -> None:
    async def function(ctx: Any) -> None:
        await asyncio.gather(
            ctx.step(Counter().charge, 1),
            ctx.step(Counter().charge, 2),
        )

    recorded = RecordedRun(function)
    error = run(recorded).error

    assert error is not None
    assert error["type"].endswith("AmbiguousStep")
    lines = [int(word.strip(";")) for word in error["message"].split() if word.strip(";").isdigit()]
    assert lines == [function.__code__.co_firstlineno + 2, function.__code__.co_firstlineno + 3]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_keys_and_scopes_tell_equal_names_apart(is_keyed: bool) -> None:  # noqa: FBT001 - a parameter
    async def function(ctx: Any) -> Any:
        if is_keyed:
            return await asyncio.gather(
                ctx.using(key="a").step(Counter().charge, 1),
                ctx.using(key="b/c").step(Counter().charge, 2),
            )
        return await ctx.gather(ctx.step(Counter().charge, 1), ctx.step(Counter().charge, 2))

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == [10, 20]
    expected = ["charge[a]", "charge[b%2Fc]"]
    if not is_keyed:
        expected = ["gather#1.0/charge#1", "gather#1.1/charge#1"]
    assert sorted(recorded.paths) == expected


def test_a_name_is_ambiguous_only_while_both_tasks_live() -> None:
    async def function(ctx: Any) -> list[Any]:
        first = await asyncio.create_task(_awaited(ctx.step(Counter().charge, 1)))
        return [first, await ctx.step(Counter().charge, 2)]

    recorded = RecordedRun(function)
    run(recorded)

    assert recorded.output == [10, 20]
    assert issubclass(AmbiguousStep, Invalid)


async def _awaited(call: Any) -> Any:
    return await call


# --- undoing ------------------------------------------------------------------------------------


class Ledger:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken: set[str] = set()

    def take(self, name: str) -> str:
        self.done.append(name)
        return name

    def give_back(self, name: str) -> None:
        if name in self.broken:
            raise DeclinedError(name)
        self.done.append(f"-{name}")


def test_undos_run_in_reverse_as_recorded_steps_when_a_function_fails() -> None:
    ledger = Ledger()

    async def function(ctx: Any) -> None:
        careful = ctx.using(undo=ledger.give_back)
        await careful.step(ledger.take, "a")
        await ctx.gather(careful.step(ledger.take, "b"))
        raise DeclinedError("at last")

    recorded = RecordedRun(function)
    error = run(recorded).error

    assert ledger.done == ["a", "b", "-b", "-a"]
    assert error is not None
    assert error["message"] == "at last"
    assert "not_undone" not in error
    assert recorded.paths[-2:] == ["undo/gather#1.0/take#1", "undo/take#1"]
    assert [one.can_undo for one in recorded.log[:2]] == [True, True]


def test_a_failed_undo_is_reported_with_the_error_and_not_instead_of_it() -> None:
    ledger = Ledger()
    ledger.broken.add("b")

    async def function(ctx: Any) -> None:
        careful = ctx.using(undo=ledger.give_back, backoff={"initial_ms": 1})
        await careful.step(ledger.take, "a")
        await careful.step(ledger.take, "b")
        raise DeclinedError("at last")

    recorded = RecordedRun(function)
    error = None
    while error is None:
        error = run(recorded).error
        recorded.now_ms += 1_000_000
        recorded.advance()

    assert ledger.done == ["a", "b", "-a"]
    assert error["message"] == "at last"
    assert [one["path"] for one in error["not_undone"]] == ["take#2"]


@pytest.mark.parametrize("crash_at", range(2, 10))
def test_a_worker_may_die_in_an_undo(crash_at: int) -> None:
    ledger = Ledger()

    async def function(ctx: Any) -> None:
        careful = ctx.using(undo=ledger.give_back)
        await careful.step(ledger.take, "a")
        await careful.step(ledger.take, "b")
        raise DeclinedError("at last")

    recorded = RecordedRun(function)
    recorded.crash_at = crash_at
    error = run(recorded).error

    assert error is not None
    assert error["message"] == "at last"
    ends = [one.path for one in recorded.log if one.state == "done"]
    assert ends == ["take#1", "take#2", "undo/take#2", "undo/take#1"]


def test_time_and_chance_follow_from_the_run() -> None:
    async def function(ctx: Any) -> list[Any]:
        begun = ctx.now().timestamp()
        await ctx.step(Counter().charge)
        with ctx.scope("inner"):
            inner = ctx.random()
        return [begun, ctx.now().timestamp() > begun, ctx.random(), inner, str(ctx.uuid())]

    outputs = []
    for _ in range(2):
        recorded = RecordedRun(function)
        run(recorded)
        outputs.append(recorded.output)

    assert outputs[0] == outputs[1]
    begun, is_later, outer, inner, _ = outputs[0]
    assert begun == STARTED_AT_MS / 1_000
    assert is_later
    assert outer != inner
