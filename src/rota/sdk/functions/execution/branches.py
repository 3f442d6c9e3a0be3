"""Branches: what runs operations of a function side by side, and when all of them are at rest.

A branch is an asyncio task, or the thread of a plain function. It is *settled* while it waits for
an operation, and while it runs a step. A function is at rest when all of its branches are settled:
only then is the next end delivered, so that a function sees one thing at a time, when it runs and
when it is replayed.

Asyncio tasks that the function starts by itself are guests. A branch that waits for guests with the
means of asyncio is not seen to wait. So a function with guests counts as at rest when nothing has
happened for some turns of the loop.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

SETTLE_TURNS = 10  # of the loop without a change, before a function with guests is at rest


class FunctionBranch:
    """One line of execution of a function."""

    __slots__ = ("calls", "is_thread", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.is_thread = False
        self.calls: set[asyncio.Task[Any]] = set()  # operations that its thread waits for

    @property
    def is_live(self) -> bool:
        return self.task is None or not self.task.done()


BRANCH: ContextVar[FunctionBranch] = ContextVar("rota.functions.branch")


class Branches:
    """Counts the branches of a function, and calls `on_rest` when all of them are settled."""

    def __init__(self, on_rest: Callable[[], None]) -> None:
        self.in_steps = 0  # branches that run a step
        self._live = 0
        # What branches wait for: operations, and other branches.
        self._waits: set[asyncio.Future[Any]] = set()
        self._may_be_cancelled = False  # a wait, whose branch has not noticed yet
        self._guests: dict[asyncio.Task[Any], FunctionBranch] = {}
        self._changes = 0
        self._is_scheduled = False
        self._on_rest = on_rest
        self._loop = asyncio.get_running_loop()

    @property
    def unsettled(self) -> int:
        return self._live - len(self._waits) - self.in_steps

    @property
    def changes(self) -> int:
        """How often something has changed; equal numbers mean that nothing has happened."""
        return self._changes

    @property
    def is_at_rest(self) -> bool:
        return self.unsettled == 0 and not self._has_cancelled_wait()

    @property
    def is_alone(self) -> bool:
        """Whether all branches but the one that asks are settled."""
        return self.unsettled == 1 and not self._has_cancelled_wait()

    def _has_cancelled_wait(self) -> bool:
        """Whether a branch was cancelled in its wait, and has not gone on yet."""
        if self._may_be_cancelled:
            self._may_be_cancelled = any(future.done() for future in self._waits)
        return self._may_be_cancelled

    def cancel(self, task: "asyncio.Task[Any]", reason: str | None = None) -> None:
        """Cancel a branch, which is not settled from now on."""
        self._may_be_cancelled = True
        task.cancel(reason)

    def begin(self) -> None:
        self._live += 1

    def end(self) -> None:
        self._live -= 1
        self.note_change()

    def current(self) -> FunctionBranch:
        """The branch that calls; an asyncio task that is new here becomes a guest."""
        branch = BRANCH.get()
        task = None if branch.is_thread else asyncio.current_task()
        if task is branch.task or task is None:
            return branch
        guest = self._guests.get(task)
        if guest is None:
            guest = self._guests[task] = FunctionBranch()
            guest.task = task
            self.begin()
            task.add_done_callback(self._end_guest)
        return guest

    def _end_guest(self, task: asyncio.Task[Any]) -> None:
        if self._guests.pop(task, None) is not None:
            self.end()

    async def wait(self, future: "asyncio.Future[Any]") -> Any:
        """Wait as a settled branch; `wake` or `fail` end the wait."""
        self._waits.add(future)
        self.note_change()
        try:
            return await future
        finally:
            self._waits.discard(future)

    def wake(self, future: "asyncio.Future[Any]", value: Any = None) -> None:
        if not future.done():
            self._waits.discard(future)
            future.set_result(value)

    def fail(self, future: "asyncio.Future[Any]", error: BaseException) -> None:
        if not future.done():
            self._waits.discard(future)
            future.set_exception(error)

    def note_change(self) -> None:
        """Look soon whether the function is at rest."""
        self._changes += 1
        if self._is_scheduled:
            return
        if self.is_at_rest:
            self._is_scheduled = True
            self._loop.call_soon(self._look, 0, self._changes)
        elif self._guests:
            self._is_scheduled = True
            self._loop.call_soon(self._look, SETTLE_TURNS, self._changes)

    def _look(self, turns: int, changes: int) -> None:
        if turns and not self.is_at_rest:
            if changes != self._changes:
                turns, changes = SETTLE_TURNS, self._changes
            self._loop.call_soon(self._look, turns - 1, changes)
            return
        self._is_scheduled = False
        if self.is_at_rest or (self._guests and self._are_guests_settled()):
            self._on_rest()

    def _are_guests_settled(self) -> bool:
        """Whether so few branches are not settled that each of them may wait for guests."""
        return self.unsettled <= self._live - len(self._guests)
