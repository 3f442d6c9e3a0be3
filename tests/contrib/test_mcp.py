"""The MCP server, asked by the official client library: in this process, and over real pipes."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters

from rota import Rota
from rota.contrib.mcp import reading
from rota.contrib.mcp.server import build_server
from rota.core.access import Scope
from rota.messages import TokenRequest
from rota.messages.workflows import JournalPage
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.sdk.serving import PATIENCE_S, Server, working

DRAWING = """
name: drawing
initial_node: draw
nodes: {draw: {task: draw, input: {what: input.what}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture(scope="module")
def app(server: Server) -> Iterator[Rota]:
    """An app with a failed task, a task that cannot start, and a completed run."""
    app = Rota(server.url)

    @app.task(max_attempts=1)
    def charge(card: str) -> None:
        raise ValueError("the card has expired")

    @app.task(queue="pictures")
    def draw(what: str) -> str:
        return f"a picture of {what}"

    with app, working(app):
        failed = charge.enqueue("4111-secret")
        with pytest.raises(Exception, match="expired"):
            failed.result(PATIENCE_S)
        app.enqueue("render", {"password": "hidden"}, requires=["gpu"], queue="films")
        app.workflow(DRAWING).start({"what": "a tree"}).result(PATIENCE_S)
        yield app


@asynccontextmanager
async def asking(
    server: Server, *, token: str | None = None, may_act: bool = False
) -> AsyncIterator[McpClient]:
    with Client.connect(server.url, token) as client:
        async with McpClient(build_server(client, may_act=may_act)) as assistant:
            yield assistant


async def ask(assistant: McpClient, tool: str, **arguments: Any) -> Any:
    answer = await assistant.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


def token_of(app: Rota, scope: Any) -> str:
    answer = app.client.run(calls.create_token(TokenRequest(name="assistant", scopes=[scope])))
    return answer.token


async def test_every_tool_reads_and_says_so(server: Server, app: Rota) -> None:
    async with asking(server) as assistant:
        tools = (await assistant.list_tools()).tools

    assert {"overview", "what_is_stuck", "failures_by_cause", "replay_run"} <= {
        tool.name for tool in tools
    }
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description for tool in tools)


async def test_an_assistant_learns_what_is_stuck_and_why(server: Server, app: Rota) -> None:
    async with asking(server) as assistant:
        overview = await ask(assistant, "overview")
        waiting = await ask(assistant, "what_is_stuck")

    assert overview["stuck"] == 1
    assert overview["health"]["status"] == "healthy"
    (film,) = [one for one in waiting["items"] if one["queue"] == "films"]
    assert film["why"]["is_stuck"]
    assert "knows 'render'" in film["why"]["text"]


async def test_failures_have_their_cause_and_no_users_data(server: Server, app: Rota) -> None:
    async with asking(server) as assistant:
        causes = await ask(assistant, "failures_by_cause")
        (cause,) = causes["items"]
        listed = await ask(assistant, "list_tasks", state="failed")
        shown = await ask(assistant, "show_task", task_id=cause["task_ids"][0])
        whole = await ask(assistant, "show_task", task_id=cause["task_ids"][0], with_data=True)

    assert (cause["name"], cause["count"]) == ("charge", 1)
    assert "expired" in cause["error"]["message"]
    assert "4111-secret" not in str(listed) + str(shown["task"])
    assert whole["task"]["payload"] == {"card": "4111-secret"}


async def test_a_run_is_shown_and_replayed(server: Server, app: Rota) -> None:
    async with asking(server) as assistant:
        (run,) = (await ask(assistant, "list_runs", workflow="drawing"))["items"]
        shown = await ask(assistant, "show_run", run_id=run["id"])
        journal = await ask(assistant, "run_journal", run_id=run["id"], limit=1)
        replayed = await ask(assistant, "replay_run", run_id=run["id"])

    assert shown["run"]["state"] == "completed"
    assert "a tree" not in str(shown)
    assert len(journal["items"]) == 1
    assert replayed["entries"] > 1
    assert replayed["is_whole"] is True
    assert replayed["differences"] == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_journal_that_is_too_long_is_not_said_to_be_whole(*, is_whole: bool) -> None:
    exchange = reading.read_journal("a-run")
    next(exchange)
    for number in range(1, reading.REPLAY_PAGES):
        exchange.send(JournalPage(items=[], next_cursor=str(number)))
    last = None if is_whole else str(reading.REPLAY_PAGES)

    with pytest.raises(StopIteration) as ended:
        exchange.send(JournalPage(items=[], next_cursor=last))

    assert ended.value.value == ([], is_whole)


@pytest.mark.parametrize(
    "tool", ["list_queues", "list_workers", "list_schedules", "list_services", "recent_events"]
)
async def test_every_list_answers(server: Server, app: Rota, tool: str) -> None:
    async with asking(server) as assistant:
        assert "items" in await ask(assistant, tool)


async def test_an_error_says_what_is_wrong(server: Server, app: Rota) -> None:
    async with asking(server) as assistant:
        answer = await assistant.call_tool("show_task", {"task_id": "nothing"})
        limited = await assistant.call_tool("list_tasks", {"limit": 100_000})

    assert answer.is_error
    assert "not found" in str(answer.content)
    assert limited.is_error


async def test_acting_tools_are_offered_only_to_a_token_that_may(server: Server, app: Rota) -> None:
    offered = {}
    for scope in (Scope.READ, Scope.SUBMIT, Scope.ADMIN):
        token = token_of(app, scope)
        async with asking(server, token=token, may_act=True) as assistant:
            tools = (await assistant.list_tools()).tools
        offered[scope] = {
            tool.name
            for tool in tools
            if not (tool.annotations and tool.annotations.read_only_hint)
        }

    assert offered[Scope.READ] == set()
    assert "cancel_tasks" in offered[Scope.SUBMIT]
    assert "pause_queue" not in offered[Scope.SUBMIT]
    assert {"cancel_tasks", "pause_queue", "drain_worker"} <= offered[Scope.ADMIN]


async def test_acting_changes_nothing_until_the_dry_run_is_turned_off(
    server: Server, app: Rota
) -> None:
    async with asking(server, may_act=True) as assistant:
        planned = await ask(assistant, "cancel_tasks", queue="films")
        before = await ask(assistant, "list_tasks", queue="films")
        paused = await ask(assistant, "pause_queue", queue="films")
        nothing = await assistant.call_tool("cancel_tasks", {})
        done = await ask(assistant, "cancel_tasks", queue="films", dry_run=False)
        after = await ask(assistant, "list_tasks", queue="films")
        app.enqueue("render", requires=["gpu"], queue="films")

    assert (planned["count"], planned["dry_run"]) == (1, True)
    assert [one["state"] for one in before["items"]] == ["queued"]
    assert paused["would"] == "pause queue 'films', which is not paused"
    assert nothing.is_error
    assert "say which tasks" in str(nothing.content)
    assert done["count"] == 1
    assert [one["state"] for one in after["items"]] == ["cancelled"]


@pytest.mark.slow
async def test_the_command_serves_over_pipes(server: Server, app: Rota, tmp_path: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rota.cli.main", "mcp", "--url", server.url],
        cwd=tmp_path,
    )
    async with McpClient(command) as assistant:
        overview = await ask(assistant, "overview")

    assert overview["tasks"]["failed"] == 1
