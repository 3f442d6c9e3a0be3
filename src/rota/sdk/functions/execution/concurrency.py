"""Branches that a function starts: `gather` waits for all of them, `first` for one.

Each branch has a scope of its own. When one fails, when another one came first, or when the
function is cancelled, the branches that are left are cancelled and awaited: none outlives its call.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from rota.core.workflow.functions.model import Operation
from rota.sdk.functions.errors import Suspended
from rota.sdk.functions.execution.branches import BRANCH, FunctionBranch
from rota.sdk.functions.execution.log import plain_result
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.scopes import SCOPE

R = TypeVar("R")
_groups = count(1)


class OperationCall(Generic[R]):
    """An operation that begins when it is awaited, in the scope in which it is awaited."""

    __slots__ = ("_begin", "group")

    def __init__(self, begin: "Callable[[OperationCall[R]], Awaitable[R]]") -> None:
        self._begin = begin
        self.group: int | None = None  # of operations that wake the function together

    def __await__(self) -> Generator[Any, Any, R]:
        return self._begin(self).__await__()


def close_unstarted(awaitables: Iterable[Any]) -> None:
    """Close coroutines that will not run, so that Python does not warn about them."""
    for one in awaitables:
        if inspect.iscoroutine(one):
            one.close()


class _Started:
    """A branch, and how it ended."""

    def __init__(self, name: str, awaitable: Awaitable[Any]) -> None:
        self.name = name
        self.awaitable = awaitable
        self.branch = FunctionBranch()
        self.is_ended = False
        self.value: Any = None
        self.error: BaseException | None = None

    async def run(self) -> None:
        try:
            self.value = await self.awaitable
        except BaseException as error:  # noqa: BLE001 - raised again in the branch that waits
            self.error = error


class _Crowd:
    """The branches of one call, started together."""

    def __init__(self, runtime: FunctionRuntime, awaitables: Sequence[tuple[str, Any]]) -> None:
        self.started = [_Started(name, one) for name, one in awaitables]
        self._runtime = runtime
        self._changed: asyncio.Future[None] | None = None

    def start(self, scope: str, dice: random.Random | None) -> None:
        loop = asyncio.get_running_loop()
        order = list(self.started)
        if dice is not None:
            dice.shuffle(order)
        for _ in order:
            self._runtime.branches.begin()
        for one in order:
            context = copy_context()
            context.run(SCOPE.set, self._runtime.scopes.at(f"{scope}.{one.name}"))
            context.run(BRANCH.set, one.branch)
            task = one.branch.task = loop.create_task(one.run(), context=context)
            task.add_done_callback(partial(self._end, one))

    def _end(self, one: _Started, task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # before it began
            one.error = asyncio.CancelledError()
            close_unstarted([one.awaitable])
        one.is_ended = True
        if self._changed is not None:
            self._runtime.branches.wake(self._changed)
        self._runtime.branches.end()

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Wait until enough branches have ended."""
        while not is_enough():
            self._changed = asyncio.get_running_loop().create_future()
            try:
                await self._runtime.branches.wait(self._changed)
            finally:
                self._changed = None

    async def stop(self) -> None:
        """Cancel the branches that are left, and wait for their ends."""
        for one in self.started:
            if not one.is_ended and one.branch.task is not None:
                self._runtime.branches.cancel(one.branch.task)
        await self.until(lambda: all(one.is_ended for one in self.started))


async def gather(
    runtime: FunctionRuntime, scope: str, awaitables: Sequence[Any], dice: random.Random | None
) -> tuple[Any, ...]:
    """Run branches side by side; the first error cancels the others."""
    group = next(_groups)
    for one in awaitables:
        if isinstance(one, OperationCall):
            one.group = group
    crowd = _Crowd(runtime, [(str(number), one) for number, one in enumerate(awaitables)])
    crowd.start(scope, dice)
    failed: list[BaseException] = []

    def is_enough() -> bool:
        failed[:] = [one.error for one in crowd.started if one.is_ended and one.error is not None]
        return bool(failed) or all(one.is_ended for one in crowd.started)

    try:
        await crowd.until(is_enough)
    except BaseException:
        await crowd.stop()
        raise
    if failed:
        first = failed[0]
        await crowd.stop()
        raise first
    return tuple(one.value for one in crowd.started)


async def first(
    runtime: FunctionRuntime,
    path: str,
    awaitables: Sequence[tuple[str, Any]],
    dice: random.Random | None,
    line: int,
) -> tuple[str, Any]:
    """Run branches side by side until one ends, which is recorded; the others are cancelled."""
    end = runtime.end_now(path, "choice", line)
    wanted = None if end is None else plain_result(end)
    crowd = _Crowd(runtime, awaitables)
    crowd.start(path, dice)
    winners: list[_Started] = []

    def is_enough() -> bool:
        winners[:] = [one for one in crowd.started if one.is_ended and wanted in {None, one.name}]
        return bool(winners) or all(one.is_ended for one in crowd.started)

    try:
        await crowd.until(is_enough)
        runtime.check_open()
    except BaseException:
        await crowd.stop()
        raise
    if not winners:
        raise Suspended  # the recorded winner is no branch any more: the function has diverged
    winner = winners[0]
    if wanted is None:
        operation = Operation(
            path=path, kind="choice", state="done", result=winner.name, line=line or None
        )
        runtime.record_now(operation, line)
    await crowd.stop()
    if winner.error is not None:
        raise winner.error
    return winner.name, winner.value
