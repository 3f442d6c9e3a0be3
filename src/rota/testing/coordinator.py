"""A real coordinator for tests: in memory, without threads or sockets.

Nothing happens by itself. Tasks run when the test drains them, and time passes when the test turns
the clock, so a test never waits. It works in sync and in async tests.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from rota.core import limits
from rota.core.tasks.model import FINISHED, TaskState
from rota.core.workflow.commands import AdvanceRuns
from rota.core.workflow.states import RUN_ENDED
from rota.embedded import exchange
from rota.errors import IllegalState, Invalid
from rota.messages import ResultItem, TaskView
from rota.messages.kv import LockAcquire, LockView
from rota.node import Node
from rota.sdk.app.app import Rota
from rota.sdk.client import calls, run_calls
from rota.sdk.client.client import Client
from rota.sdk.task import Task
from rota.sdk.transport.transport import Response, TransportRequest
from rota.settings import Settings
from rota.testing.drain import Drain, Drained
from rota.testing.functions import TestedFunctions
from rota.testing.handlers import (
    Performed,
    TrialAttempt,
    aperform,
    arun_here,
    call_apart,
    perform,
    run_here,
)

P = ParamSpec("P")
R = TypeVar("R")

ENDED = frozenset({*FINISHED, *RUN_ENDED})
ENQUEUED = (TaskState.QUEUED, TaskState.SCHEDULED)
MAX_STOPS = 10_000  # of the clock at times of schedules, in one turn
MAX_TURNS = 1_000  # of the clock in one drain; more means a task that never ends


class TurnedClock:
    """A clock that moves only when it is turned. It starts at the real time."""

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self.on_turn: Callable[[], None] | None = None
        self.next_stop_ms: Callable[[], int | None] | None = None  # the next time of a schedule

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, *, ms: int = 0, seconds: float = 0, minutes: float = 0) -> None:
        """Let time pass: due tasks are queued, schedules fire, leases and timers expire."""
        self.turn_to(self._now_ms + ms + round(seconds * 1_000) + round(minutes * 60_000))

    def turn_to(self, moment_ms: int) -> None:
        """Turn the clock. It stops on the way at each time of a schedule, as a real one does."""
        if moment_ms < self._now_ms:
            raise ValueError("the clock of a test cannot go back")
        for _ in range(MAX_STOPS):
            stop_ms = None if self.next_stop_ms is None else self.next_stop_ms()
            if stop_ms is None or not self._now_ms < stop_ms < moment_ms:
                break
            self._turn(stop_ms)
        else:
            raise ValueError(
                f"schedules fire more than {MAX_STOPS} times on the way; turn the clock less far"
            )
        self._turn(moment_ms)

    def _turn(self, moment_ms: int) -> None:
        self._now_ms = moment_ms
        if self.on_turn is not None:
            self.on_turn()


class TestCoordinator:
    """A coordinator for one test: a context manager, or closed by `close`."""

    __test__ = False  # pytest does not collect it

    def __init__(self, *, clock: TurnedClock | None = None, dice: float = 0.0) -> None:
        """Create a coordinator in memory; `dice` (0 to 1) shortens the backoff of retries."""
        self.clock = clock or TurnedClock()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()
        self._apps: list[Rota] = []
        settings = Settings(store="sqlite://")
        self._node = Node(settings, clock=self.clock, dice=lambda: dice, inline=True)
        self.client = Client(_InlineTransport(self))
        self._functions = TestedFunctions(self.client, self.clock.now_ms)
        self._run(self._node.start())
        self.clock.on_turn = self._keep_up
        self.clock.next_stop_ms = self._next_firing_ms

    # --- apps ---------------------------------------------------------------------------------

    def attach(self, *apps: Rota) -> None:
        """Let these apps enqueue here, `drain` run their tasks, and their schedules fire."""
        for app in apps:
            app.use(self.client)
            self._apps.append(app)
            self._functions.capabilities |= set(app.deploy_functions())
            app.deploy_schedules()

    def close(self) -> None:
        """Detach the apps, which connect by themselves again, and discard all state."""
        for app in self._apps:
            app.reset()
        self._apps = []
        if not self._loop.is_closed():
            self._run(self._node.stop())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- work ---------------------------------------------------------------------------------

    def drain(self, *, until_finished: bool = False) -> Drained:
        """Run queued tasks until none is left; with `until_finished` also those due later.

        Tasks that handlers enqueue run as well. `until_finished` turns the clock to each next due
        time, so that delays, snoozes and retries come to their end.
        """
        drained = Drained()
        attempts = self._attempts(drained, until_finished=until_finished)
        trial = next(attempts, None)
        while trial is not None:
            trial = _sent(attempts, run_here(trial))
        return drained

    async def adrain(self, *, until_finished: bool = False) -> Drained:
        """As `drain`, with async handlers on the loop of the test."""
        drained = Drained()
        attempts = self._attempts(drained, until_finished=until_finished)
        trial = next(attempts, None)
        while trial is not None:
            trial = _sent(attempts, await arun_here(trial))
        return drained

    def perform(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
        """Run one handler with these arguments, without enqueuing it."""
        return perform(task, *args, **kwargs)

    async def aperform(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Performed[R]:
        return await aperform(task, *args, **kwargs)

    def _attempts(
        self, drained: Drained, *, until_finished: bool
    ) -> Generator[TrialAttempt, ResultItem, None]:
        for _ in range(MAX_TURNS):
            yield from self._queued_attempts(drained)
            if self._take_slices():
                continue
            if not until_finished or not self._turn_to_next():
                return
        raise AssertionError(f"not finished after {MAX_TURNS} turns of the clock")

    def _queued_attempts(self, drained: Drained) -> Generator[TrialAttempt, ResultItem, None]:
        """Run queued tasks until none is left, also those that schedules fire meanwhile."""
        for _ in range(MAX_TURNS):
            before = len(drained)
            yield from Drain(self.client, self._tasks(), drained, self._functions).steps()
            if self._has_firings():
                self._keep_up()
            elif len(drained) == before:
                return
            # Otherwise a duty of the coordinator may have fired by itself after the last lease.
        raise AssertionError(f"schedules still fire after {MAX_TURNS} rounds")

    def _take_slices(self) -> bool:
        """Let runs take the steps that were too many for one event; False when there are none."""
        is_any = False
        while self._run(self._advance_runs()):
            is_any = True
        return is_any

    async def _advance_runs(self) -> int:
        return (await self._node.coordinator.execute(AdvanceRuns())).count

    def _turn_to_next(self) -> bool:
        """Turn the clock to the next due task, open rate or timer; False when there is none."""
        opening_ms = self._node.coordinator.leading.pipeline.next_opening_ms
        is_more = self.tasks(state=TaskState.SCHEDULED) or self._has_runs()
        if not is_more and opening_ms is None:
            return False
        due_ms = self._run(self._node.coordinator.queries.tasks.next_moment_ms())
        moments = [one for one in (opening_ms, due_ms) if one is not None]
        if not moments:
            return False
        next_ms = min(moments)
        self.clock.turn_to(max(next_ms, self.clock.now_ms() + 1))
        return True

    def _next_firing_ms(self) -> int | None:
        return self._node.coordinator.queries.schedules.next_firing_ms

    def _has_firings(self) -> bool:
        """Whether a schedule waits for nothing any more, because what it fired has ended."""
        next_ms = self._next_firing_ms()
        return next_ms is not None and next_ms <= self.clock.now_ms()

    def _has_runs(self) -> bool:
        return bool(self.client.run(run_calls.list_runs(state="running", limit=1)).items)

    def _tasks(self) -> dict[str, Task[..., Any]]:
        if not self._apps:
            raise Invalid("no app is attached; attach one with `rota.attach(app)`")
        return {name: task for app in self._apps for name, task in app.tasks.items()}

    def fake(self, original: Callable[..., Any] | str, replacement: Callable[..., Any]) -> None:
        """Run another function in place of a step's or a task's, known by function or name."""
        self._functions.fake(original, replacement)

    # --- inspection ----------------------------------------------------------------------------

    def tasks(
        self, task: Task[..., Any] | str | None = None, *, state: TaskState | str | None = None
    ) -> list[TaskView]:
        """All tasks, oldest first."""
        name = task.name if isinstance(task, Task) else task
        found: list[TaskView] = []
        cursor = None
        while True:
            call = calls.list_tasks(name=name, state=state, limit=limits.MAX_PAGE, cursor=cursor)
            page = self.client.run(call)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found[::-1]

    def enqueued(self, task: Task[..., Any] | str | None = None) -> list[TaskView]:
        """The tasks that wait to run, now or later."""
        return [view for view in self.tasks(task) if view.state in ENQUEUED]

    def assert_enqueued(
        self,
        task: Task[..., Any] | str,
        *,
        args: Mapping[str, Any] | None = None,
        count: int | None = None,
        **expected: Any,
    ) -> TaskView | None:
        """Assert that calls of a task wait to run: any number, or exactly `count`.

        `args` are named arguments that the call must have, besides others; `expected` are fields
        of the task: `queue="mail"`, `priority=9`. Returns the newest one.
        """
        found = self._matching(task, args, expected)
        is_right = bool(found) if count is None else len(found) == count
        if not is_right:
            wanted = "at least one" if count is None else str(count)
            raise AssertionError(
                f"{wanted} enqueued {_described(task, args, expected)} expected, "
                f"{len(found)} found. {self._overview()}"
            )
        return found[-1] if found else None

    def refute_enqueued(
        self,
        task: Task[..., Any] | str,
        *,
        args: Mapping[str, Any] | None = None,
        **expected: Any,
    ) -> None:
        """Assert that no such call waits to run."""
        self.assert_enqueued(task, args=args, count=0, **expected)

    def _matching(
        self,
        task: Task[..., Any] | str,
        args: Mapping[str, Any] | None,
        expected: Mapping[str, Any],
    ) -> list[TaskView]:
        wanted = msgspec.to_builtins(dict(args or {}))
        return [
            view
            for view in self.enqueued(task)
            if _has(msgspec.json.decode(view.payload), wanted)
            and all(getattr(view, field) == value for field, value in expected.items())
        ]

    def _overview(self) -> str:
        views = self.enqueued()
        if not views:
            return "Nothing is enqueued."
        lines = [f"  {view.name} {bytes(view.payload).decode()}" for view in views]
        return "Enqueued are:\n" + "\n".join(lines)

    # --- the transport ---------------------------------------------------------------------------

    def _run(self, coroutine: Any) -> Any:
        with self._lock:
            return call_apart(lambda: self._loop.run_until_complete(coroutine))

    def _keep_up(self) -> None:
        self._run(self._node.coordinator.tick())

    def exchange(self, request: TransportRequest) -> Response:
        return self._run(exchange(self._node.app, request))  # type: ignore[no-any-return]  # of exchange

    def acquire(self, request: TransportRequest, body: bytes) -> Response:
        """Answer a call for a lock at once: in a test no other caller releases it meanwhile."""
        asked = msgspec.json.decode(body, type=LockAcquire)
        at_once = msgspec.json.encode(msgspec.structs.replace(asked, wait_ms=0))
        answer = self.exchange(msgspec.structs.replace(request, body=at_once))
        if asked.wait_ms and answer.status == 200:
            lock = msgspec.json.decode(answer.body, type=LockView)
            if not lock.acquired:
                raise IllegalState(
                    f"lock {lock.name!r} is held by {lock.holder!r}, and a test cannot wait for "
                    "it: release it first, turn the clock, or ask with wait_s=0"
                )
        return answer

    def finish(self, path: str) -> None:
        """Bring a task or run that the caller waits for to its end, or say what is missing."""
        noun, thing_id = path.split("/")[-2:]
        state = self._state(noun, thing_id)
        if state not in ENDED and self._apps:
            self.drain()
            state = self._state(noun, thing_id)
        if state not in ENDED:
            raise IllegalState(
                f"{noun.removesuffix('s')} {thing_id!r} is {state}, and a test cannot wait for "
                "it: turn the clock, attach the app that has its task, send the signal it waits "
                "for, or drain(until_finished=True)"
            )

    def _state(self, noun: str, thing_id: str) -> str:
        if noun == "runs":
            return self.client.run(run_calls.get_run(thing_id)).state
        return self.client.run(calls.get_task(thing_id)).state


def _sent(steps: Any, item: Any) -> Any:
    try:
        return steps.send(item)
    except StopIteration:
        return None


def _has(payload: Any, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    return isinstance(payload, dict) and all(
        name in payload and payload[name] == value for name, value in wanted.items()
    )


def _described(
    task: Task[..., Any] | str, args: Mapping[str, Any] | None, expected: Mapping[str, Any]
) -> str:
    name = task.name if isinstance(task, Task) else task
    parts = [repr(name)]
    if args:
        parts.append(f"with {dict(args)!r}")
    if expected:
        parts.append(f"({', '.join(f'{field}={value!r}' for field, value in expected.items())})")
    return " ".join(parts)


class _InlineTransport:
    """Calls the coordinator of the test directly."""

    is_embedded = True
    address = "the coordinator of this test"

    def __init__(self, coordinator: TestCoordinator) -> None:
        self._coordinator = coordinator

    def send(self, request: TransportRequest) -> Response:
        parts = urlsplit(request.path)
        if parts.path.endswith("/acquire") and request.body:
            return self._coordinator.acquire(request, request.body)
        if "wait_ms" in dict(parse_qsl(parts.query)):
            self._coordinator.finish(parts.path)
            request = msgspec.structs.replace(request, path=parts.path)
        return self._coordinator.exchange(request)

    async def asend(self, request: TransportRequest) -> Response:
        return self.send(request)

    def close(self) -> None:
        """Closed with its coordinator."""
