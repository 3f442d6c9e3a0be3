"""Groups and chains: many calls at once, one callback, and calls one after the other."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rota import GroupFailed, MemberOutcome, Rota, RunCancelled, RunFailed
from rota.errors import Invalid
from rota.sdk.groups import generated
from rota.sdk.task import Submission
from rota.testing import TestCoordinator
from tests.sdk.serving import PATIENCE_S, Server, working

app = Rota("http://127.0.0.1:1")
called: list[Any] = []


class Point(msgspec.Struct):
    x: int


@app.task(max_attempts=1)
def double(number: int, plus: int = 0) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number + plus


@app.task(queue="points")
def point(x: int) -> Point:
    return Point(x)


@app.task
def total(results: list[int], start: int = 0) -> int:
    called.append(("total", results))
    return sum(results) + start


@app.task(max_attempts=1)
def broken(_results: list[int]) -> None:
    called.append("broken")
    raise RuntimeError("no")


@app.task
def report(outcomes: list[MemberOutcome]) -> int:
    called.append(("report", [one["index"] for one in outcomes if not one["ok"]]))
    return len(outcomes)


@app.task
def finish(outcomes: list[MemberOutcome]) -> None:
    called.append(("finish", [one["ok"] for one in outcomes]))


@app.task
def unusual(namespace: Any, package: int) -> list[Any]:
    return [namespace, package]


@app.task
def nothing() -> None: ...


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    called.clear()
    with TestCoordinator() as one:
        one.attach(app)
        yield one


def calls(*numbers: int) -> list[Submission[int]]:
    return [double.bind(number) for number in numbers]


# --- groups -------------------------------------------------------------------------------------


def test_the_callback_gets_all_results_in_the_order_of_the_group(
    coordinator: TestCoordinator,
) -> None:
    group = app.group(calls(3, 1, 2), on_success=total.partial(start=100))

    coordinator.drain()

    assert group.result() == [6, 2, 4]
    assert group.callback_result() == 112
    assert called == [("total", [6, 2, 4])]


def test_members_of_several_kinds_keep_their_order_and_their_types(
    coordinator: TestCoordinator,
) -> None:
    members: list[Submission[Any]] = [point.bind(1), double.bind(1), double.bind(1, plus=5)]
    group = app.group([*members, point.bind(2)])

    coordinator.drain()

    assert group.result() == [Point(1), 2, 7, Point(2)]


def test_an_argument_may_have_any_name_that_python_allows(coordinator: TestCoordinator) -> None:
    group = app.group([unusual.bind(1, package=2)], on_success=unusual.partial(package=3))
    chain = app.chain(unusual.bind(1, package=2), unusual.partial(package=3))

    coordinator.drain()

    assert group.result() == [[1, 2]]
    assert group.callback_result() == [[[1, 2]], 3]
    assert chain.result() == [[1, 2], 3]


def test_a_call_with_all_its_arguments_ignores_the_result_before_it(
    coordinator: TestCoordinator,
) -> None:
    chain = app.chain(double.bind(1), point.bind(7))
    group = app.group(calls(1, 2), on_success=double.bind(5))

    coordinator.drain()

    assert chain.result() == Point(7)
    assert group.callback_result() == 10


def test_an_empty_group_succeeds_at_once(coordinator: TestCoordinator) -> None:
    group = app.group(calls(), on_success=total)

    coordinator.drain()

    assert group.result() == []
    assert called == [("total", [])]


def test_a_failed_member_leads_to_the_other_callback(coordinator: TestCoordinator) -> None:
    group = app.group(calls(1, -1, 2, -2), on_success=total, on_failure=report)

    coordinator.drain()

    assert called == [("report", [1, 3])]
    assert group.callback_result() == 2
    assert [one["ok"] for one in group.outcomes()] == [True, False, True, False]
    with pytest.raises(GroupFailed, match=r"2 of 4 members .* -1 is negative") as failure:
        group.result()
    assert failure.value.outcomes[1].get("error", {})["type"] == "ValueError"
    assert 'raise ValueError(f"{number} is negative")' in str(failure.value.__cause__)


def test_failed_members_without_a_callback_fail_the_run(coordinator: TestCoordinator) -> None:
    group = app.group(calls(1, -1), on_success=total)

    coordinator.drain()

    assert group.run.status() == "failed"
    assert called == []
    with pytest.raises(GroupFailed):
        group.result()
    assert [one["ok"] for one in group.outcomes()] == [True, False]


@pytest.mark.parametrize(("numbers", "outcomes"), [((1,), [True]), ((1, -1), [True, False])])
def test_the_last_callback_comes_after_either_outcome(
    coordinator: TestCoordinator, numbers: tuple[int, ...], outcomes: list[bool]
) -> None:
    app.group(calls(*numbers), on_complete=finish)
    app.group(calls(*numbers), on_success=total, on_failure=report, on_complete=finish)
    app.group(calls(*numbers), on_success=total, on_complete=finish)

    coordinator.drain()

    assert called.count(("finish", outcomes)) == 3
    assert len(called) == (5 if all(outcomes) else 4)


def test_the_last_callback_comes_also_after_one_that_failed(coordinator: TestCoordinator) -> None:
    group = app.group(calls(1), on_success=broken, on_complete=finish)

    coordinator.drain()

    assert called == ["broken", ("finish", [True])]
    with pytest.raises(RunFailed):
        group.result()


def test_groups_of_one_shape_are_runs_of_one_workflow(coordinator: TestCoordinator) -> None:
    first, second = app.group(calls(1, 2)), app.group(calls(3))
    other = app.group(calls(1, 2), on_success=total)

    views = [one.run.view() for one in (first, second, other)]

    assert views[0].workflow == views[1].workflow != views[2].workflow
    assert {view.version for view in views} == {1}


def test_the_same_key_is_the_same_group(coordinator: TestCoordinator) -> None:
    first, again = app.group(calls(1), key="k"), app.group(calls(1), key="k")

    assert again.id == first.id
    assert again.run.is_duplicate


def test_a_cancelled_group_has_no_results(coordinator: TestCoordinator) -> None:
    group = app.group(calls(1), on_success=total)
    group.run.cancel()
    coordinator.drain()

    with pytest.raises(RunCancelled):
        group.result()
    assert called == []


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (double.using(delay_ms=5), "delay_ms"),
        (double.using(key="k"), "key"),
        (double.using(labels=["a"]), "labels"),
    ],
)
def test_options_that_a_member_cannot_have_are_refused(task: Any, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        app.group([task.bind(1)])


def test_a_callback_that_cannot_take_the_results_is_refused() -> None:
    with pytest.raises(Invalid, match="takes no argument"):
        app.group(calls(1), on_success=nothing)
    with pytest.raises(Invalid, match="'results' is the result"):
        app.group(calls(1), on_success=total.partial(results=[]))
    with pytest.raises(Invalid, match="no argument 'color'"):
        total.partial(color=1)


def test_every_generated_definition_is_valid() -> None:
    callbacks = (None, total)
    for members in (calls(), calls(1), [*calls(1), double.bind(1, plus=2)]):
        for success in callbacks:
            for failure in callbacks:
                for complete in callbacks:
                    group = generated.group_of(
                        members, on_success=success, on_failure=failure, on_complete=complete
                    )
                    app.workflow(str(msgspec.json.encode(group.document), "utf-8")).validate()


# --- chains -------------------------------------------------------------------------------------


def test_each_task_of_a_chain_gets_the_result_before_it(coordinator: TestCoordinator) -> None:
    chain = app.chain(double.bind(1), double.partial(plus=1), double, point)
    alone = app.chain(double.bind(4))

    coordinator.drain()

    assert chain.result() == Point(10)
    assert alone.result() == 8


def test_a_chain_ends_with_the_first_failure(coordinator: TestCoordinator) -> None:
    chain = app.chain(double.bind(-1), total)

    coordinator.drain()

    with pytest.raises(RunFailed, match="-1 is negative"):
        chain.result()
    assert called == []


# --- with a real coordinator and a worker -------------------------------------------------------


def test_a_group_and_a_chain_run_on_a_real_coordinator(server: Server, transport: str) -> None:
    with Rota(server.url) as real:
        ended: list[str] = []

        @real.task
        def triple(number: int) -> int:
            return 3 * number

        @real.task
        def add(numbers: list[int]) -> int:
            ended.append("add")
            return sum(numbers)

        @real.task
        async def close(outcomes: list[MemberOutcome]) -> None:
            ended.append(f"close {len(outcomes)}")

        async def chained() -> tuple[int, list[int]]:
            chain = await real.achain(triple.bind(1), triple)
            group = await real.agroup([triple.bind(7)])
            return await chain.aresult(PATIENCE_S), await group.aresult(PATIENCE_S)

        with working(real, concurrency=4):
            members = [triple.bind(number) for number in range(50)]
            group = real.group(members, on_success=add, on_complete=close)

            assert group.result(PATIENCE_S) == [3 * number for number in range(50)]
            assert group.callback_result(PATIENCE_S) == 3 * 50 * 49 // 2
            assert asyncio.run(chained()) == (9, [21])
        assert ended == ["add", "close 50"]
    assert transport
