"""Functions in users' tests: the turned clock, fakes, and the replay that finds nondeterminism."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from rota import Rota, Run, RunFailed
from rota.sdk.client import function_calls
from rota.testing import TestCoordinator


@pytest.fixture
def rota() -> Iterator[TestCoordinator]:
    with TestCoordinator() as coordinator:
        yield coordinator


app = Rota("http://127.0.0.1:1")


async def price(cart: list[str]) -> int:
    return len(cart) * 10


async def charge(amount: int) -> str:
    raise AssertionError(f"a test must not charge {amount}")


@app.task
def resize(photo: str) -> str:
    return f"small {photo}"


@app.workflow
async def order(ctx: Run, cart: list[str]) -> dict[str, Any]:
    total = await ctx.step(price, cart)
    receipt = await ctx.step(charge, total)
    photos = await ctx.map(resize, cart)
    which, paid = await ctx.first(paid=ctx.event("paid"), late=ctx.sleep(days=3))
    ctx.publish("status", which)
    return {"total": total, "receipt": receipt, "photos": photos, "paid": paid}


def test_a_function_runs_with_fakes_and_signals(rota: TestCoordinator) -> None:
    rota.attach(app)
    rota.fake(charge, lambda amount: f"receipt of {amount}")
    rota.fake("resize", lambda photo: f"tiny {photo}")
    handle = order.start(["a", "b"])
    rota.drain()
    handle.signal("paid", {"by": "ada"})

    assert handle.result() == {
        "total": 20,
        "receipt": "receipt of 20",
        "photos": ["tiny a", "tiny b"],
        "paid": {"by": "ada"},
    }
    assert handle.published == {"status": "paid"}


def test_the_clock_of_a_test_ends_a_sleep_of_days(rota: TestCoordinator) -> None:
    rota.attach(app)
    rota.fake(charge, lambda amount: f"receipt of {amount}")
    handle = order.start([])

    rota.drain(until_finished=True)

    assert handle.result()["paid"] is None
    assert handle.published == {"status": "late"}


shaky = Rota("http://127.0.0.1:1")
counter = itertools.count()


@shaky.workflow
async def counted(ctx: Run) -> int:
    return next(counter)


@shaky.workflow
async def named_by_chance(ctx: Run) -> None:
    await ctx.using(name=f"step-{next(counter)}").step(price, [])
    await ctx.event("go")


@shaky.workflow
async def shared(ctx: Run) -> list[int]:
    order: list[int] = []

    async def branch(number: int) -> None:
        order.append(number)

    await ctx.gather(*[branch(number) for number in range(8)])
    return order


@pytest.mark.parametrize("workflow", [counted, named_by_chance, shared])
def test_a_function_that_is_not_deterministic_fails_its_test(
    rota: TestCoordinator, workflow: Any
) -> None:
    rota.attach(shaky)
    workflow.start()

    with pytest.raises(AssertionError, match="does something else when it is replayed"):
        rota.drain()


failing = Rota("http://127.0.0.1:1")
undone: list[str] = []


@failing.workflow
async def compensated(ctx: Run) -> None:
    await ctx.using(undo=lambda total: undone.append(f"refund {total}")).step(price, ["a"])
    raise ValueError("out of stock")


def test_a_failed_function_undoes_its_steps_and_raises(rota: TestCoordinator) -> None:
    undone.clear()
    rota.attach(failing)
    handle = compensated.start()

    with pytest.raises(RunFailed, match="out of stock"):
        handle.result()
    assert undone == ["refund 10"]


racing = Rota("http://127.0.0.1:1")


@racing.workflow
async def ticking(ctx: Run) -> list[Any]:
    first = await ctx.first(command=ctx.event("command"), tick=ctx.sleep(minutes=1))
    return [*first, await ctx.event("command")]


def test_a_signal_goes_past_an_operation_that_the_function_has_given_up(
    rota: TestCoordinator,
) -> None:
    rota.attach(racing)
    handle = ticking.start()
    rota.drain()
    rota.clock.advance(minutes=1)
    rota.drain()
    handle.signal("command", "stop")

    assert handle.result() == ["tick", None, "stop"]


def test_a_signal_that_lost_the_race_is_kept_for_the_next_operation(rota: TestCoordinator) -> None:
    rota.attach(racing)
    handle = ticking.start()
    rota.drain()
    rota.clock.advance(minutes=1)
    handle.signal("command", "stop")

    assert handle.result() == ["tick", None, "stop"]


shipping = Rota("http://127.0.0.1:1")


@shipping.workflow(upgrade="pinned", version=2, queue="orders")
async def shipped(ctx: Run) -> Any:
    message = await ctx.receive("rename")
    message.reply(f"was {message.payload}")
    return [await ctx.run(child, 4), await ctx.run("child", {"number": 5})]


@shipping.workflow
def child(ctx: Any, number: int) -> int:
    ctx.sleep(hours=1)
    return int(ctx.step(abs, -number))


def test_a_pinned_function_and_its_plain_children_run_to_their_end(rota: TestCoordinator) -> None:
    rota.attach(shipping)
    handle = shipped.start()
    handle.signal("rename", "old", key="k1")

    rota.drain(until_finished=True)

    assert handle.result() == [4, 5]


large = Rota("http://127.0.0.1:1")


async def text_of(size: int) -> str:
    return "x" * size


@large.workflow
async def reads(ctx: Run) -> int:
    text = await ctx.step(text_of, 2_000_000)
    await ctx.event("go")
    return len(text)


def test_a_large_result_is_an_artifact_that_the_run_has_before_the_function_goes_on(
    rota: TestCoordinator,
) -> None:
    rota.attach(large)
    handle = reads.start()
    rota.drain()
    log, _ = rota.client.run(function_calls.whole_log(handle.id))
    kept = [one.name for one in handle.artifacts()]
    handle.signal("go")

    assert [(one.path, one.state) for one in log] == [
        ("text_of#1", "done"),
        ("go#1", "pending"),
    ]
    assert kept == ["result-0-text_of%231"]
    assert handle.result() == 2_000_000
