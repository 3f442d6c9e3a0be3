"""The span after a join links to the spans of the joined tasks: real coordinators and workers."""

from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan

import rota
from rota import Rota, Run
from rota.core import limits
from rota.core.tasks.trace_links import LINKS
from rota.messages import TaskView
from rota.sdk.client import calls, run_calls
from tests.contrib import traced_tasks
from tests.contrib.test_otel import traces
from tests.contrib.tracing import Traces, context_of, id_of, is_child, linked
from tests.sdk.conftest import app, server
from tests.sdk.serving import PATIENCE_S, Server, working

__all__ = ["app", "server", "traces"]  # fixtures

FAN = """
name: fan
initial_node: start
nodes:
  start: {}
  work: {task: work, input: {item: branch.item}}
  gather: {task: gather}
  last: {task: last}
transitions:
  - {id: fan, from: start, to: work, foreach: input.items}
  - {from: work, to: gather, synchronization: {joins_transition: fan}}
  - {from: gather, to: last}
"""


def tasks(app: Rota) -> list[TaskView]:
    return app.client.run(calls.list_tasks()).items


def ids_of(spans: list[ReadableSpan]) -> list[int]:
    return sorted(map(id_of, spans))


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_the_task_after_a_join_links_to_the_joined_tasks(
    app: Rota, traces: Traces, transport: str
) -> None:
    @app.task
    def work(item: int) -> int:
        return item

    @app.task
    def gather() -> str:
        return rota.current().headers[LINKS]

    @app.task
    def last() -> bool:
        return LINKS in rota.current().headers

    with working(app, transport=transport):
        app.workflow(FAN).start({"items": [1, 2, 3]}).result(PATIENCE_S)

    sent, gathered = traces.span("send fan"), traces.span("process gather")
    joined = traces.spans("process work")
    assert len(joined) == 3
    assert all(is_child(one, sent) for one in (*joined, gathered))
    assert sorted(linked(gathered)) == ids_of(joined)
    assert {one.context.trace_id for one in gathered.links} == {context_of(sent).trace_id}
    assert all(one.context.is_remote for one in gathered.links)
    assert all(one.context.trace_flags.sampled for one in gathered.links)
    assert linked(traces.span("process last")) == []
    assert [linked(one) for one in joined] == [[], [], []]


def test_links_lead_to_the_attempt_that_has_succeeded(app: Rota, traces: Traces) -> None:
    @app.task
    def work(item: int) -> None:
        if item == 2 and rota.current().attempt == 1:
            raise ValueError("not yet")

    @app.task
    def gather() -> None: ...

    @app.task
    def last() -> None: ...

    retried = FAN.replace("branch.item}}", "branch.item}, retry: {backoff: {kind: none}}}")
    with working(app):
        app.workflow(retried).start({"items": [1, 2]}).result(PATIENCE_S)

    gathered = traces.span("process gather")
    first, *others = traces.spans("process work")
    succeeded = [one for one in (first, *others) if one.status.is_unset]
    assert len(others) == 2
    assert sorted(linked(gathered)) == ids_of(succeeded)
    assert len({one.context.trace_id for one in gathered.links}) == 2  # a retry has its own


def test_a_retry_after_a_join_links_to_the_sender_and_to_the_joined_tasks(
    app: Rota, traces: Traces
) -> None:
    @app.task
    def work(item: int) -> None: ...

    @app.task
    def gather() -> None:
        if rota.current().attempt == 1:
            raise ValueError("not yet")

    @app.task
    def last() -> None: ...

    retried = FAN.replace("{task: gather}", "{task: gather, retry: {backoff: {kind: none}}}")
    with working(app):
        app.workflow(retried).start({"items": [1, 2]}).result(PATIENCE_S)

    _, second = traces.spans("process gather")
    assert second.parent is None
    wanted = [id_of(traces.span("send fan")), *ids_of(traces.spans("process work"))]
    assert sorted(linked(second)) == sorted(wanted)


def test_a_join_of_many_links_to_some_of_them(app: Rota, traces: Traces) -> None:
    @app.task
    def work(item: int) -> None: ...

    @app.task
    def gather() -> None: ...

    @app.task
    def last() -> None: ...

    with working(app):
        app.workflow(FAN).start({"items": list(range(60))}).result(PATIENCE_S)

    found = linked(traces.span("process gather"))
    assert len(found) == limits.MAX_TRACE_LINKS
    assert set(found) <= set(ids_of(traces.spans("process work")))


def test_nothing_is_reported_or_stored_without_tracing(app: Rota) -> None:
    @app.task
    def work(item: int) -> None: ...

    @app.task
    def gather() -> None: ...

    @app.task
    def last() -> None: ...

    with working(app):
        run = app.workflow(FAN).start({"items": [1, 2]})
        run.result(PATIENCE_S)

    assert all(one.headers is None for one in tasks(app))
    journal = app.client.run(run_calls.list_journal(run.id))
    assert b"traceparent" not in msgspec.json.encode(journal)


def test_a_function_that_goes_on_links_to_the_tasks_it_waited_for(
    app: Rota, traces: Traces
) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    @app.task
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    @app.workflow
    async def order(ctx: Run) -> int:
        first = await ctx.map(double, [1, 2, 3])
        one, other = await ctx.gather(ctx.call(add, first), ctx.call(add, [1]))
        return one + other

    with working(app):
        assert order.start().result(PATIENCE_S) == 13

    begun, mapped, gathered = traces.spans("process workflow:order")
    assert linked(begun) == []
    assert sorted(linked(mapped)) == ids_of(traces.spans("process double"))
    assert sorted(linked(gathered)) == ids_of(traces.spans("process add"))
    assert all(is_child(one, traces.span("send order")) for one in (begun, mapped, gathered))


PARENT = """
name: parent
initial_node: start
nodes:
  start: {}
  part: {workflow: part, input: {number: branch.index}}
  gather: {task: gather}
transitions:
  - {id: fan, from: start, to: part, spawn_count: "2"}
  - {from: part, to: gather, synchronization: {joins_transition: fan}}
"""


def test_a_join_of_sub_workflows_links_to_the_last_task_of_each(app: Rota, traces: Traces) -> None:
    @app.task
    def gather() -> None: ...

    @app.workflow
    async def part(ctx: Run, number: int) -> int:
        del ctx
        return number

    with working(app):
        app.deploy_functions()
        app.workflow(PARENT).start({}).result(PATIENCE_S)

    joined = traces.spans("process workflow:part")
    assert len(joined) == 2
    assert sorted(linked(traces.span("process gather"))) == ids_of(joined)


def test_the_span_of_a_task_in_a_process_is_linked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spans"
    monkeypatch.setenv(traced_tasks.FILE, str(file))
    flow = FAN.replace("task: work", "task: double_in_process").replace(
        "task: gather", "task: links_in_process"
    )
    with Rota(server.url) as connected:
        traced_tasks.app.use(connected.client)
        try:
            with working(traced_tasks.app):
                flow = flow.replace("task: last", "task: process_id")
                traced_tasks.app.workflow(flow).start({"items": [1, 2]}).result(PATIENCE_S)
                (listed,) = [one for one in tasks(connected) if one.name == "links_in_process"]
                task = connected.client.run(calls.get_task(listed.id))
        finally:
            traced_tasks.app.reset()

    lines = [line.split("|") for line in file.read_text().splitlines()]
    ids = sorted(line[1] for line in lines if line[0] == "process double_in_process")
    assert len(ids) == 2
    assert task.result is not None
    assert sorted(msgspec.json.decode(task.result, type=str).split("-")[2:]) == ids
