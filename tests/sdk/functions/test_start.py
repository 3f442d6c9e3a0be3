"""Starting functions: which code a run has, and what a token may store."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from rota import FunctionHandle, Rota, Run
from rota.core.access import Scope
from rota.errors import Forbidden
from rota.messages import RunView
from rota.sdk.client import run_calls
from rota.sdk.functions.definitions import FunctionSource
from tests.sdk.serving import PATIENCE_S, Server, token_of, working


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("coordinator")) as served:
        yield served


def older(url: str, name: str, token: str | None = None) -> Rota:
    app = Rota(url, token=token)

    @app.workflow(name=name, queue=name, upgrade="pinned")
    async def order(ctx: Run) -> str:
        return f"old {await ctx.event('go')}"

    return app


def newer(url: str, name: str, token: str | None = None) -> Rota:
    app = Rota(url, token=token)

    @app.workflow(name=name, queue=name, upgrade="pinned")
    async def order(ctx: Run) -> str:
        return f"new {await ctx.event('go')}"

    return app


def view_of(app: Rota, handle: FunctionHandle[str]) -> RunView:
    return app.client.run(run_calls.get_run(handle.id))


def test_a_run_starts_with_the_code_of_the_program_that_starts_it(server: Server) -> None:
    name = "started"
    before, after = older(server.url, name), newer(server.url, name)
    before.functions[name].start()

    started = after.functions[name].start()
    rolled_back = before.functions[name].start()

    assert view_of(after, started).version == 2
    assert view_of(after, rolled_back).version == 1
    for handle in (started, rolled_back):
        handle.signal("go", "on")
    with working(after):
        assert started.result(PATIENCE_S) == "new on"
    with working(before):
        assert rolled_back.result(PATIENCE_S) == "old on"
    before.close()
    after.close()


def test_a_token_that_may_not_store_code_starts_what_is_stored_and_says_so_once(
    server: Server,
) -> None:
    name = "submitted"
    before = older(server.url, name)
    after = newer(server.url, name, token_of(server, Scope.SUBMIT))
    before.functions[name].deploy()

    with capture_logs() as lines:
        first = after.functions[name].start()
        second = after.functions[name].start()

    assert [view_of(before, one).version for one in (first, second)] == [1, 1]
    (line,) = [one for one in lines if one["event"] == "workflow_not_deployed"]
    assert (line["workflow"], line["log_level"]) == (name, "warning")
    assert "stored" in line["hint"]
    before.close()
    after.close()


def test_a_token_that_may_not_store_unknown_code_is_told_what_to_do(server: Server) -> None:
    app = newer(server.url, "unknown", token_of(server, Scope.SUBMIT))

    with pytest.raises(Forbidden, match="start a worker that has it first"):
        app.functions["unknown"].start()

    app.close()


def test_a_worker_that_may_not_store_a_function_logs_it_and_serves_on(server: Server) -> None:
    operator = Rota(server.url)
    operator.workflow({"name": "taken", "initial_node": "a", "nodes": {"a": {}}}).deploy()
    app = Rota(server.url, token=token_of(server, Scope.WORKER))

    @app.task(name="ping", queue="pings")
    def ping() -> str:
        return "pong"

    @app.workflow(name="taken", queue="pings")
    async def taken(ctx: Run) -> str:
        return await ctx.event("go", str)

    @operator.task(name="ping", queue="pings")
    def asked() -> str:
        raise NotImplementedError

    with capture_logs() as lines, working(app):
        result = asked.enqueue().result(PATIENCE_S)

    assert result == "pong"
    (line,) = [one for one in lines if one["event"] == "workflow_not_deployed"]
    assert line["workflow"] == "taken"
    assert "admin" in line["reason"]
    operator.close()
    app.close()


# --- the names of approvals -----------------------------------------------------------------------


async def asking(ctx: Run, name: str) -> None:
    await ctx.approval("Go?")
    await ctx.using(name="ship", timeout_ms=1).approval("Ship?")
    await ctx.using(timeout_ms=1).approval("Go again?")
    await ctx.using(name=name).approval("Computed?")
    await ctx.event("paid")


def test_the_source_names_the_approvals_that_it_asks_for() -> None:
    assert FunctionSource(asking).approvals == ("approval", "ship")
    assert FunctionSource(older).approvals == ()
