"""Type checkers see through a workflow to its function: mypy checks this file as the others."""

from typing import Any, assert_type

from msgspec import Struct

from rota import BlockingRun, CodeWorkflow, FunctionHandle, Rota, Run

app = Rota("http://127.0.0.1:1")


class Cart(Struct):
    items: list[str]


class Receipt(Struct):
    total: int


class Ship(Struct):
    carrier: str


async def price(cart: Cart) -> int:
    return len(cart.items)


def plain_price(cart: Cart) -> int:
    return len(cart.items)


@app.task
def resize(photo: str, width: int = 1) -> bytes:
    return photo.encode() * width


@app.workflow
async def simple(ctx: Run, cart: Cart) -> Receipt:
    return Receipt(await ctx.step(price, cart))


@app.workflow(version=2, upgrade="pinned", queue="orders")
async def order(ctx: Run, cart: Cart, tip: int = 0) -> Receipt:
    assert_type(await ctx.step(price, cart), int)
    assert_type(await ctx.step(plain_price, cart), int)
    assert_type(await ctx.once(price, cart), int)
    assert_type(await ctx.using(max_attempts=5, undo=price).step(price, cart), int)
    assert_type(await ctx.call(resize, "a", width=2), bytes)
    assert_type(await ctx.map(resize, cart.items, max_parallel=20), list[bytes])
    both = await ctx.gather(ctx.step(price, cart), ctx.call(resize, "a"))
    assert_type(both, tuple[int, bytes])
    assert_type(await ctx.first(a=ctx.event("paid"), b=ctx.sleep(days=3)), tuple[str, Any])
    assert_type(await ctx.approval("Ship?", form=Ship), Ship)
    assert_type(await ctx.event("cart", Cart), Cart)
    assert_type(await ctx.run(simple, cart), Receipt)
    return Receipt(tip)


@app.workflow
def blocking(ctx: BlockingRun, cart: Cart) -> Receipt:
    assert_type(ctx.step(price, cart), int)
    assert_type(ctx.step(plain_price, cart), int)
    assert_type(ctx.call(resize, "a"), bytes)
    assert_type(ctx.run(simple, cart), Receipt)
    assert_type(ctx.approval("Ship?", form=Ship), Ship)
    return Receipt(1)


def test_a_workflow_keeps_the_types_of_its_function() -> None:
    def never_called() -> None:
        assert_type(order.start(Cart([]), tip=3), FunctionHandle[Receipt])
        assert_type(order.start(Cart([]), key="order-17").result(timeout=60), Receipt)
        assert_type(order.start(Cart([]), timeout_ms=1_000).result(), Receipt)
        assert_type(blocking.start(Cart([])).result(), Receipt)
        assert_type(order.execute(Cart([]), tip=3), Receipt)
        assert_type(order.execute(Cart([]), key="order-17", timeout=60), Receipt)

    async def never_awaited() -> None:
        assert_type(await (await simple.astart(Cart([]))).aresult(), Receipt)
        assert_type(await simple.aexecute(Cart([])), Receipt)

    assert isinstance(order, CodeWorkflow)
    assert isinstance(blocking, CodeWorkflow)
    assert callable(never_called)
    assert callable(never_awaited)


def test_wrong_arguments_are_type_errors() -> None:
    async def never_awaited(ctx: Run) -> None:
        await ctx.step(price, 1)  # type: ignore[call-overload]  # what this test is about
        await ctx.call(resize)  # type: ignore[call-overload]  # as above
        await ctx.run(simple)  # type: ignore[call-overload]  # as above
        ctx.using(urgency=1)  # type: ignore[call-arg]  # as above
        await simple.astart(1)  # type: ignore[call-overload]  # as above

    def never_called() -> None:
        order.start()  # type: ignore[call-overload]  # as above
        order.start(Cart([]), tip="much")  # type: ignore[call-overload]  # as above
        order.start(Cart([])).result(timeout=b"soon")  # type: ignore[arg-type]  # as above
        total: int = order.start(Cart([])).result()  # type: ignore[assignment]  # as above
        assert total

    assert callable(never_awaited)
    assert callable(never_called)
