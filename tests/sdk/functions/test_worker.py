"""Functions in real workers: over streams, by polling, embedded, in memory and replayed."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota import FunctionHandle, Rota, Run, RunCancelled, RunFailed
from rota.sdk.client import calls, function_calls
from rota.sdk.functions import workflow
from tests.sdk.relaying import relayed
from tests.sdk.serving import PATIENCE_S, Server, working


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("coordinator")) as served:
        yield served


class Shop:
    """An app with functions that count how often they begin."""

    def __init__(self, url: str, queue: str) -> None:
        self.app = Rota(url)
        self.begun = 0
        self.undone: list[int] = []

        async def price(items: int) -> int:
            return items * 10

        @self.app.task(queue=queue)
        def resize(number: int) -> int:
            return number + 1

        @self.app.workflow(name=f"order-{queue}", queue=queue, upgrade="pinned")
        async def order(ctx: Run, items: int) -> list[Any]:
            self.begun += 1
            total = await ctx.using(undo=self.undone.append).step(price, items)
            sizes = await ctx.map(resize, range(3))
            ctx.publish("status", "waiting")
            return [total, sizes, await ctx.event("paid")]

        self.order = order

    def wait_for_signal(self, handle: FunctionHandle[Any]) -> None:
        wait_for_signal(self.app, handle)


def wait_for_signal(app: Rota, handle: FunctionHandle[Any]) -> None:
    """Wait until a function waits for a signal."""
    kinds: list[str] = []
    while "event" not in kinds:
        log, _ = app.client.run(function_calls.whole_log(handle.id))
        kinds = [one.kind for one in log]


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_suspended_function_goes_on_in_the_memory_of_its_worker(
    server: Server, transport: str
) -> None:
    shop = Shop(server.url, f"memory-{transport}")
    with working(shop.app, transport=transport, concurrency=1) as running:
        handle = shop.order.start(2)
        shop.wait_for_signal(handle)
        assert running.worker.worker_id is not None
        view = shop.app.client.run(calls.get_worker(running.worker.worker_id))
        published = handle.published
        handle.signal("paid", "now")
        result = handle.result(PATIENCE_S)
    shop.app.close()

    assert result == [20, [1, 2, 3], "now"]
    assert published == {"status": "waiting"}
    assert shop.begun == 1
    assert f"code:order-memory-{transport}@1" in view.capabilities


def test_a_function_is_replayed_by_another_worker(server: Server) -> None:
    shop = Shop(server.url, "another")
    with working(shop.app):
        handle = shop.order.start(2, key="once")
        shop.wait_for_signal(handle)
    handle.signal("paid", "later")
    with working(shop.app):
        result = handle.result(PATIENCE_S)
    again = shop.order.start(3, key="once")
    shop.app.close()

    assert result == [20, [1, 2, 3], "later"]
    assert shop.begun == 2
    assert again.is_duplicate


def test_a_report_whose_answer_is_lost_is_sent_again_and_counts_once(server: Server) -> None:
    with relayed(server.url) as relay:
        app, ran = Rota(relay.url), list[str]()

        def charge() -> str:
            ran.append("charge")
            relay.lose_next_answer()  # that to the report of this step
            return "charged"

        def ship() -> str:
            ran.append("ship")
            return "shipped"

        @app.workflow(name="lossy", queue="lossy")
        async def lossy(ctx: Run) -> list[str]:
            first = await ctx.step(charge)
            return [first, await ctx.step(ship)]

        with working(app, transport="websocket"):
            relay.wait_opened()
            handle = lossy.start()
            result = handle.result(PATIENCE_S)
        log, _ = app.client.run(function_calls.whole_log(handle.id))
        app.close()

    assert relay.lost_answer.is_set()
    assert (result, ran) == (["charged", "shipped"], ["charge", "ship"])
    assert [one.path for one in log] == ["charge#1", "ship#1"]


def test_a_report_that_is_refused_ends_its_own_function_alone(server: Server) -> None:
    app = Rota(server.url)
    begun = threading.Barrier(2)

    @app.workflow(name="wrong", queue="refused", max_attempts=1)
    async def wrong(ctx: Run) -> None:
        await ctx.step(begun.wait, PATIENCE_S)
        ctx.publish("too large", "x" * 3 * 1024 * 1024)
        await ctx.step(begun.reset)

    @app.workflow(name="right", queue="refused")
    async def right(ctx: Run) -> str:
        await ctx.step(begun.wait, PATIENCE_S)
        return await ctx.step(lambda: "right")

    with working(app, transport="websocket"):
        refused, accepted = wrong.start(), right.start()
        result = accepted.result(PATIENCE_S)
        with pytest.raises(RunFailed):
            refused.result(PATIENCE_S)
    app.close()

    assert result == "right"


@pytest.fixture(scope="module")
def calculator(server: Server) -> Iterator[Rota]:
    """An app whose function ends at once, fails, or waits for a signal."""
    app = Rota(server.url)

    @app.workflow(name="divide", queue="divide")
    async def divide(ctx: Run, one: int, other: int) -> int:
        return await ctx.step(lambda: one // other)

    @app.workflow(name="patient", queue="divide")
    async def patient(ctx: Run, timeout: str) -> str:  # noqa: ASYNC109 - an argument of its own
        return timeout + str(await ctx.event("go"))

    with working(app):
        yield app
    app.close()


def test_execute_returns_the_result_in_one_call(calculator: Rota) -> None:
    divide = calculator.functions["divide"]

    result = divide.execute(7, 2)
    first = divide.execute(8, other=2, key="eight", timeout=PATIENCE_S)
    again = divide.execute(0, other=2, key="eight")

    assert (result, first, again) == (3, 4, 4)


def test_execute_raises_the_error_of_the_run(calculator: Rota) -> None:
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        calculator.functions["divide"].execute(1, 0)


async def test_execute_is_there_for_async_code(calculator: Rota) -> None:
    assert await calculator.functions["divide"].aexecute(9, 3) == 3


def test_execute_waits_on_for_a_function_that_takes_longer(
    calculator: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = calculator.functions["patient"]
    monkeypatch.setattr(workflow, "EXECUTE_WAIT_MS", 1)

    handle = patient.start("a", key="long")
    handle.signal("go", 1)
    result = patient.execute("a", key="long")

    assert result == "a1"


def test_execute_gives_up_after_its_timeout_and_the_run_goes_on(calculator: Rota) -> None:
    @calculator.workflow(name="endless", queue="nobody")
    async def endless(ctx: Run) -> None:
        await ctx.event("go")

    with pytest.raises(TimeoutError, match="is still running"):
        endless.execute(key="endless", timeout=0.02)

    assert endless.start(key="endless").status() == "running"


def test_a_cancelled_function_undoes_what_it_has_done(server: Server) -> None:
    shop = Shop(server.url, "cancelled")
    with working(shop.app):
        handle = shop.order.start(2)
        shop.wait_for_signal(handle)
        handle.cancel("not wanted")
        with pytest.raises(RunCancelled, match="not wanted"):
            handle.result(PATIENCE_S)
    shop.app.close()

    assert shop.undone == [20]


def test_an_embedded_coordinator_serves_functions(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/rota.db", "embedded")
    handle = shop.order.start(1)
    handle.signal("paid", "embedded")

    assert handle.result(PATIENCE_S) == [10, [1, 2, 3], "embedded"]
    shop.app.close()


def test_accepting_new_code_repeats_no_step_that_it_asked_for(server: Server) -> None:
    ran: list[str] = []

    async def note(name: str) -> str:
        ran.append(name)
        return name

    def app_of(*names: str) -> Rota:
        app = Rota(server.url)

        @app.workflow(name="accepted", queue="accepting")
        async def accepted(ctx: Run) -> list[str]:
            done = [await ctx.using(name=name).step(note, name) for name in names]
            return [*done, await ctx.event("go")]

        return app

    before, after = app_of("reserve", "charge"), app_of("reserve", "check", "charge")
    with working(before):
        handle = before.functions["accepted"].start()
        wait_for_signal(before, handle)
    handle.signal("go", "on")
    with working(after):
        while handle.status() != "paused":
            pass
        after.client.run(function_calls.resume_run(handle.id, accept=True))
        result = after.functions["accepted"].handle(handle.id).result(PATIENCE_S)
    before.close()
    after.close()

    assert result == ["reserve", "check", "charge", "on"]
    assert ran == ["reserve", "charge", "check", "charge"], "only what it did not ask for"
