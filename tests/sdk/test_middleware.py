"""Middleware around enqueueing and execution, and the headers that travel beside payloads."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import EnqueuedCall, HandlerCall, Invalid, Middleware, Rota, Run, StepExecution
from rota.core import limits
from rota.messages import RunRequest
from rota.sdk.client import calls, run_calls
from rota.testing import perform
from tests.sdk import process_tasks
from tests.sdk.listening import listening, read_request
from tests.sdk.serving import PATIENCE_S, Server, working


class Recorder(Middleware):
    """Notes what its hooks see, and adds a header."""

    def __init__(self, name: str = "recorder", seen: list[str] | None = None) -> None:
        self.name = name
        self.seen: list[str] = [] if seen is None else seen
        self.calls: list[HandlerCall] = []
        self.headers: list[dict[str, str]] = []

    @contextmanager
    def on_enqueue(self, calls: Sequence[EnqueuedCall]) -> Iterator[None]:
        names = ",".join(one.name for one in calls)
        self.seen.append(f"{self.name} enqueues {names}")
        for one in calls:
            one.headers[self.name] = "was here"
        yield
        assert all(one.id for one in calls)
        self.seen.append(f"{self.name} has enqueued {names}")

    @contextmanager
    def on_execute(self, call: HandlerCall) -> Iterator[None]:
        self.calls.append(call)
        self.headers.append(dict(call.context.headers))
        self.seen.append(f"{self.name} executes {call.context.name} #{call.context.attempt}")
        try:
            yield
        except BaseException as error:
            self.seen.append(f"{self.name} saw {type(error).__name__}")
            raise
        self.seen.append(f"{self.name} has executed {call.context.name}")


class Hooked(Middleware):
    """A middleware whose execution hook is a function."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def on_execute(self, call: HandlerCall) -> AbstractContextManager[Any] | None:
        hook: AbstractContextManager[Any] | None = self._hook(call)
        return hook


# --- order and errors -----------------------------------------------------------------------------


def test_the_middleware_that_is_installed_first_is_the_outermost(app: Rota) -> None:
    seen: list[str] = []
    app.use_middleware(Recorder("outer", seen))
    app.use_middleware(Recorder("inner", seen))

    @app.task
    def greet(name: str) -> str:
        seen.append("handler")
        return name

    with working(app):
        assert greet.enqueue("you").result(PATIENCE_S) == "you"

    executed = [one for one in seen if "execut" in one or one == "handler"]
    assert executed == [
        "outer executes greet #1",
        "inner executes greet #1",
        "handler",
        "inner has executed greet",
        "outer has executed greet",
    ]
    enqueued = [one for one in seen if "enqueue" in one]
    assert enqueued == [
        "outer enqueues greet",
        "inner enqueues greet",
        "inner has enqueued greet",
        "outer has enqueued greet",
    ]


async def test_async_handlers_pass_the_same_hooks_on_their_own_task(app: Rota) -> None:
    recorder = Recorder()
    app.use_middleware(recorder)

    @app.task
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name} from {asyncio.current_task() is not None}"

    with working(app):
        handle = await greet.aenqueue("you")
        assert await handle.aresult(PATIENCE_S) == "hello you from True"

    assert recorder.seen[-1] == "recorder has executed greet"
    assert recorder.calls[0].result == "hello you from True"


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_headers_reach_every_attempt_and_never_the_payload(
    app: Rota, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setenv("ROTA_TRANSPORT", transport)
    recorder = Recorder()
    app.use_middleware(recorder)

    @app.task(max_attempts=2, backoff={"kind": "none"})
    def flaky(number: int) -> dict[str, str]:
        if rota.current().attempt == 1:
            raise ValueError("not yet")
        return dict(rota.current().headers)

    with working(app):
        handle = flaky.using(headers={"tenant": "7"}).enqueue(1)
        assert handle.result(PATIENCE_S) == {"tenant": "7", "recorder": "was here"}

    assert recorder.headers == [{"tenant": "7", "recorder": "was here"}] * 2
    assert "recorder saw ValueError" in recorder.seen
    task = app.client.run(calls.get_task(handle.id))
    assert task.headers == {"tenant": "7", "recorder": "was here"}
    assert bytes(task.payload) == b'{"number":1}'


def test_an_error_of_an_execution_hook_counts_as_the_handlers(app: Rota) -> None:
    def refuse(_: HandlerCall) -> None:
        raise PermissionError("not on a sunday")

    app.use_middleware(Hooked(refuse))

    @app.task(max_attempts=1)
    def greet() -> str:
        return "never called"

    with working(app), pytest.raises(rota.TaskFailed, match="not on a sunday"):
        greet.enqueue().result(PATIENCE_S)


def test_an_error_of_an_enqueue_hook_refuses_the_submission(app: Rota) -> None:
    class Refusing(Middleware):
        def on_enqueue(self, calls: Sequence[EnqueuedCall]) -> None:
            raise PermissionError(calls[0].name)

    @app.task
    def greet() -> None: ...

    app.use_middleware(Refusing())
    with pytest.raises(PermissionError, match="greet"):
        greet.enqueue()

    assert app.client.run(calls.list_tasks()).items == []


def test_an_enqueue_hook_sees_the_refusal_of_the_coordinator_and_cannot_suppress_it(
    app: Rota,
) -> None:
    seen: list[BaseException] = []

    class Suppressing(Middleware):
        @contextmanager
        def on_enqueue(self, _: Sequence[EnqueuedCall]) -> Iterator[None]:
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - suppressed on purpose
                seen.append(error)

    app.use_middleware(Suppressing())
    with pytest.raises(Invalid):
        app.enqueue("any", delay_ms=5, run_at_ms=5)

    assert [type(one) for one in seen] == [Invalid]


async def test_an_enqueue_hook_sees_the_cancellation_of_its_caller() -> None:
    seen: list[type[BaseException]] = []
    connected = threading.Event()
    released = threading.Event()

    class Watching(Middleware):
        @contextmanager
        def on_enqueue(self, _: Sequence[EnqueuedCall]) -> Iterator[None]:
            try:
                yield
            except BaseException as error:
                seen.append(type(error))
                raise

    def never_answer(connection: socket.socket) -> None:
        read_request(connection)
        connected.set()
        released.wait(PATIENCE_S)

    with listening(never_answer) as url, Rota(url, middleware=[Watching()]) as app:
        enqueueing = asyncio.create_task(app.aenqueue("any"))
        await asyncio.to_thread(connected.wait, PATIENCE_S)
        enqueueing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueueing
        released.set()

    assert seen == [asyncio.CancelledError]


def test_a_hook_may_replace_the_result_or_suppress_the_error(app: Rota) -> None:
    @contextmanager
    def soften(call: HandlerCall) -> Iterator[None]:
        try:
            yield
        except ValueError:
            call.result = "softened"
        else:
            call.result = f"<{call.result}>"

    app.use_middleware(Hooked(soften))

    @app.task
    def greet(name: str) -> str:
        if name == "nobody":
            raise ValueError(name)
        return name

    assert perform(greet, "you").result == "<you>"
    assert perform(greet, "nobody").result == "softened"


def test_a_generator_that_is_no_context_manager_is_refused_with_a_hint(app: Rota) -> None:
    def plain(_: HandlerCall) -> Iterator[None]:
        yield

    app.use_middleware(Hooked(plain))

    @app.task
    def greet() -> None: ...

    error = perform(greet).error
    assert error is not None
    assert "decorate it with @contextlib.contextmanager" in error.message


def test_what_is_not_derived_from_middleware_is_refused(app: Rota) -> None:
    not_one: Any = object()

    with pytest.raises(Invalid, match=r"derive it from rota\.Middleware"):
        app.use_middleware(not_one)


def test_removed_middleware_is_called_no_more_and_leaves_no_chain() -> None:
    recorder = Recorder()
    app = Rota("http://127.0.0.1:1", middleware=[recorder])

    app.remove_middleware(recorder)

    assert app.middleware is None


# --- places ---------------------------------------------------------------------------------------


def test_a_batch_is_one_call_with_the_context_of_each_task(app: Rota) -> None:
    recorder = Recorder()
    app.use_middleware(recorder)

    @app.task(batch=rota.Batch(size=3, wait_ms=5_000))
    def add(items: list[int]) -> list[int]:
        return [one + 1 for one in items]

    with working(app):
        handles = app.enqueue_many([add.bind(one) for one in (1, 2, 3)])
        assert [one.result(PATIENCE_S) for one in handles] == [2, 3, 4]

    assert recorder.seen[0] == "recorder enqueues add,add,add"
    (call,) = recorder.calls
    assert [one.task_id for one in call.contexts] == [one.id for one in handles]
    assert all(one.headers == {"recorder": "was here"} for one in call.contexts)


def test_hooks_run_in_the_process_of_the_handler(server: Server) -> None:
    with Rota(server.url) as app:
        process_tasks.app.use(app.client)
        try:
            with working(process_tasks.app):
                handle = process_tasks.headers_in_process.using(headers={"from": "test"}).enqueue()
                found = handle.result(PATIENCE_S)
        finally:
            process_tasks.app.reset()

    assert found["headers"] == {"from": "test"}
    assert found["hooked_in"] == found["pid"]


def test_hooks_run_in_the_embedded_mode(tmp_path: Path) -> None:
    recorder = Recorder()
    threads: list[str] = []
    app = Rota(f"sqlite:///{tmp_path}/rota.db", middleware=[recorder])

    @app.task
    def greet() -> str:
        threads.append(threading.current_thread().name)
        return "hello"

    with app:
        assert greet.enqueue().result(PATIENCE_S) == "hello"

    assert recorder.headers == [{"recorder": "was here"}]


# --- runs -----------------------------------------------------------------------------------------

FLOW = """
name: flow
initial_node: one
nodes:
  one: {task: echo}
  two: {task: echo}
transitions: [{from: one, to: two}]
"""


def test_the_tasks_of_a_run_get_its_headers(app: Rota) -> None:
    recorder = Recorder()
    app.use_middleware(recorder)

    @app.task
    def echo() -> dict[str, str]:
        return dict(rota.current().headers)

    with working(app):
        app.workflow(FLOW).start({}).result(PATIENCE_S)

    assert recorder.seen[0] == "recorder enqueues flow"
    assert recorder.headers == [{"recorder": "was here"}] * 2


def test_a_run_keeps_its_headers_when_its_coordinator_starts_again(server: Server) -> None:
    recorder = Recorder()
    with Rota(server.url, middleware=[recorder]) as app:

        @app.task
        def echo() -> None: ...

        run = app.workflow(FLOW).start({})
        server.stop()
        server.start()
        with working(app):
            run.result(PATIENCE_S)

    assert recorder.headers == [{"recorder": "was here"}] * 2


def test_a_functions_steps_tasks_and_children_have_the_headers_of_its_run(app: Rota) -> None:
    steps: list[tuple[str, str, int, dict[str, str]]] = []

    class Steps(Recorder):
        @contextmanager
        def on_step(self, step: StepExecution) -> Iterator[None]:
            steps.append((step.name, step.path, step.attempt, dict(step.context.headers)))
            yield
            step.result *= 2

    recorder = Steps()
    app.use_middleware(recorder)

    @app.task
    def double(number: int) -> int:
        return number * 2

    def plain(number: int) -> int:
        return number + 1

    async def flaky(number: int) -> int:
        if len(steps) < 3:
            raise ValueError("not yet")
        return number + 1

    @app.workflow
    async def child(_: Run, number: int) -> int:
        return number + 100

    @app.workflow
    async def order(ctx: Run, number: int) -> int:
        number = await ctx.step(plain, number)
        number = await ctx.using(backoff={"kind": "none"}).step(flaky, number)
        number = await ctx.call(double, number)
        return await ctx.run(child, number)

    with working(app):
        assert order.start(1).result(PATIENCE_S) == ((1 + 1) * 2 + 1) * 2 * 2 + 100

    header = {"recorder": "was here"}
    assert [one[:3] for one in steps] == [
        ("plain", "plain#1", 1),
        ("flaky", "flaky#1", 1),
        ("flaky", "flaky#1", 2),
    ]
    assert all(one[3] == header for one in steps)
    names = {one.context.name for one in recorder.calls}
    assert names == {"workflow:order", "workflow:child", "double"}
    assert all(one == header for one in recorder.headers)


def test_a_group_is_one_enqueued_run(app: Rota) -> None:
    recorder = Recorder()
    app.use_middleware(recorder)

    @app.task
    def add(number: int) -> int:
        return number + 1

    with working(app):
        assert app.group([add.bind(1), add.bind(2)]).result(PATIENCE_S) == [2, 3]

    assert len([one for one in recorder.seen if "has enqueued" in one]) == 1
    assert recorder.headers == [{"recorder": "was here"}] * 2


# --- limits ---------------------------------------------------------------------------------------

FITS = {f"h{number:02}": "x" * 100 for number in range(limits.MAX_HEADERS)}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({f"h{number}": "" for number in range(limits.MAX_HEADERS + 1)}, "length <= 16"),
        ({"n" * 65: ""}, "length <= 64"),
        ({"": "unnamed"}, "length >= 1"),
        ({"n": "v" * 513}, "length <= 512"),
        ({"n": 7}, "Expected `str`"),
        ({f"h{number}": "é" * 250 for number in range(5)}, "2510 bytes of names and values"),
    ],
)
def test_headers_over_a_limit_are_refused_everywhere(
    app: Rota, headers: dict[str, Any], reason: str
) -> None:
    class Adding(Middleware):
        def on_enqueue(self, calls: Sequence[EnqueuedCall]) -> None:
            for one in calls:
                one.headers.update(headers)

    with pytest.raises(Invalid, match=reason):
        app.enqueue("any", headers=headers)
    app.use_middleware(Adding())
    with pytest.raises(Invalid, match=reason):
        app.enqueue("any")
    with pytest.raises(Invalid, match=reason):
        app.workflow("any").start({})


def test_headers_at_the_limit_are_accepted(app: Rota) -> None:
    handle = app.enqueue("any", headers=FITS)

    assert app.client.run(calls.get_task(handle.id)).headers == FITS


def test_the_coordinator_refuses_a_run_whose_headers_are_too_large(app: Rota) -> None:
    headers = {f"h{number}": "v" * 512 for number in range(5)}

    with pytest.raises(Invalid, match="send larger values in the payload"):
        app.client.run(run_calls.start_run(RunRequest(workflow="any", headers=headers)))
