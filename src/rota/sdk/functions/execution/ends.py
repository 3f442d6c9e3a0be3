"""The ends of operations, which a function sees one at a time and in the order of its log.

While the log has ends, these are delivered in its order, each when all branches are at rest.
Operations that the log does not have are held. A held operation in a scope where the log has others
is a divergence: the code does something else than what was recorded.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from rota.core.workflow.functions.model import WITHDRAWN, Divergence, Operation, OperationKind
from rota.sdk.functions.errors import Suspended
from rota.sdk.functions.execution import divergence
from rota.sdk.functions.execution.branches import Branches
from rota.sdk.functions.execution.log import FunctionLog, LogEntry, RecordedOperation
from rota.sdk.functions.execution.outbox import FunctionOutbox
from rota.sdk.functions.execution.scopes import scope_of

DELIVERIES_PER_TURN = 100  # of a replay, before other functions of the loop have their turn


class HeldOperation:
    """An operation that the log does not have, until the replay is at rest."""

    __slots__ = ("future", "kind", "line", "path")

    def __init__(
        self, path: str, kind: OperationKind, line: int, future: "asyncio.Future[Any]"
    ) -> None:
        self.path = path
        self.kind = kind
        self.line = line
        self.future = future


class OperationEnds:
    """What the branches of a function wait for, and what each of them sees next."""

    def __init__(
        self,
        log: FunctionLog,
        branches: Branches,
        outbox: FunctionOutbox,
        *,
        started_at_ms: int,
        on_divergence: Callable[[Divergence], None],
        is_strict: bool = False,
        version: int | None = None,
    ) -> None:
        self.log = log
        self.now_ms = started_at_ms  # the time of what the function has seen last
        # Whether an earlier task has run the code that runs now, which logs its lines again.
        self.is_replaying = bool(log.recorded)
        self.changed_arguments: list[str] = []  # paths of steps with other arguments than recorded
        self.turns: deque[asyncio.Future[None]] = deque()  # ended steps that wait for their turn
        self.held: list[HeldOperation] = []
        self._waiters: dict[str, asyncio.Future[LogEntry]] = {}
        self._groups: dict[str, int] = {}  # waits that wake the function together, by path
        self._direct = 0  # deliveries without a turn of the loop
        self._is_closed = False
        self._is_strict = is_strict
        self._version = version
        self._branches = branches
        self._outbox = outbox
        self._on_divergence = on_divergence
        self._loop = asyncio.get_running_loop()

    # --- waiting ----------------------------------------------------------------------------------

    async def wait(self, path: str) -> LogEntry:
        """The end of an operation that the log has, when it is its turn."""
        if self._is_next(path):
            self._direct += 1
            if self._direct % DELIVERIES_PER_TURN == 0:
                await asyncio.sleep(0)
            self.log.deliveries.popleft()
            return self._see(path)
        waiter: asyncio.Future[LogEntry] = self._loop.create_future()
        self._waiters[path] = waiter
        try:
            end: LogEntry = await self._branches.wait(waiter)
        except asyncio.CancelledError:
            self._withdraw(path)
            raise
        finally:
            if self._waiters.get(path) is waiter:
                del self._waiters[path]
        return end

    def _is_next(self, path: str) -> bool:
        """Whether the end of this path is the next to see, and no other branch is under way."""
        if self.turns or not self._branches.is_alone:
            return False
        log = self.log
        while log.deliveries and log.deliveries[0] != path:
            first = log.deliveries[0]
            if not log.recorded[first].is_visited or first in self._waiters:
                return False
            log.deliveries.popleft()
        return bool(log.deliveries)

    def _withdraw(self, path: str) -> None:
        """Give up a pending operation, whose branch was cancelled."""
        found = self.log.recorded.get(path)
        if self._is_closed or found is None or not found.is_pending or found.is_withdrawn:
            return
        found.is_withdrawn = True
        self._outbox.note(
            Operation(
                path=path,
                kind=found.first.kind,
                state="failed",
                error={"type": WITHDRAWN, "message": "the function does not wait for it any more"},
            )
        )

    async def hold(self, path: str, kind: OperationKind, line: int) -> None:
        """Wait until an operation that the log does not have may begin."""
        held = HeldOperation(path, kind, line, self._loop.create_future())
        self.held.append(held)
        try:
            await self._branches.wait(held.future)
        finally:
            if held in self.held:
                self.held.remove(held)

    def hold_done(self, path: str, kind: OperationKind, line: int) -> None:
        """Compare an operation that was done at once with the log, at the next rest."""
        done: asyncio.Future[None] = self._loop.create_future()
        done.set_result(None)
        self.held.append(HeldOperation(path, kind, line, done))
        self._branches.note_change()

    async def turn(self) -> None:
        """Wait until the function may see the end of a step that has run here."""
        if self.turns or not self._branches.is_alone:
            future: asyncio.Future[None] = self._loop.create_future()
            self.turns.append(future)
            try:
                await self._branches.wait(future)
            finally:
                if future in self.turns:  # the branch was cancelled
                    self.turns.remove(future)

    def wake_together(self, path: str, group: int) -> None:
        """Wake the function once for all operations of a group, when all of them have ended."""
        self._groups[path] = group

    @property
    def is_awaited(self) -> bool:
        """Whether a branch waits for the end of an operation."""
        return bool(self._waiters)

    def waits(self) -> list[list[str]]:
        """The paths that the function waits for, in groups that wake it together."""
        groups: dict[int, list[str]] = {}
        alone: list[list[str]] = []
        for path in self._waiters:
            number = self._groups.get(path)
            if number is None:
                alone.append([path])
            else:
                groups.setdefault(number, []).append(path)
        return [*groups.values(), *alone]

    def close(self) -> None:
        """End every wait: the function ends here."""
        self._is_closed = True
        held = [one.future for one in self.held]
        for future in [*self._waiters.values(), *held, *self.turns]:
            self._branches.fail(future, Suspended())

    # --- delivering -------------------------------------------------------------------------------

    def deliver_next(self, *, is_cancelling: bool) -> bool:
        """Deliver the next end of the log; False: there is none.

        `is_cancelling`: the function does not go on, so that what it has not asked for stays.
        """
        log = self.log
        while log.deliveries:
            path = log.deliveries[0]
            waiter = self._waiters.get(path)
            if waiter is not None:
                log.deliveries.popleft()
                del self._waiters[path]
                self._branches.wake(waiter, self._see(path))
                return True
            if log.recorded[path].is_visited:  # it was not awaited, or is not any more
                log.deliveries.popleft()
                continue
            if is_cancelling:
                return False
            held = self._held_in(scope_of(path))
            if held is not None:
                self._diverge(held.path, held.kind, held.line)
                return True
            log.skip()
        return False

    def _held_in(self, scope: str) -> HeldOperation | None:
        return next((one for one in self.held if scope_of(one.path) == scope), None)

    def _see(self, path: str) -> LogEntry:
        """Note that the function sees the end of an operation now."""
        recorded = self.log.recorded[path]
        end = recorded.end
        assert end is not None
        self.is_replaying = recorded.is_seen
        if not recorded.is_seen:
            recorded.is_seen = True
            self._outbox.note(Operation(path=path, kind=end.kind, state="delivered"))
        self.pass_time(end)
        return end

    def pass_time(self, end: LogEntry) -> None:
        """Let the function's own time be that of what it has seen last."""
        if end.ended_at_ms is not None and end.ended_at_ms > self.now_ms:
            self.now_ms = end.ended_at_ms

    def check_held(self) -> bool:
        """Compare the held operations with the log; False: one of them diverges."""
        for one in self.held:
            if self.log.has_unvisited(scope_of(one.path)):
                self._diverge(one.path, one.kind, one.line)
                return False
        return True

    def release(self) -> None:
        """Begin the held operations: from here on the function is live."""
        self.is_replaying = False
        held, self.held = self.held, []
        for one in held:
            self._branches.wake(one.future)
        self._branches.note_change()  # none of them may have been awaited

    # --- comparing --------------------------------------------------------------------------------

    def find(
        self, path: str, kind: OperationKind, line: int, arguments: str | None = None
    ) -> RecordedOperation | None:
        """What the log has of an operation that the code asks for; None: it is new.

        Raises `Suspended` if the log has another operation there.
        """
        found = self.log.visit(path)
        if found is None:
            return None
        if found.first.kind != kind:
            self._diverge(path, kind, line)
            raise Suspended
        recorded = found.end.arguments if found.end is not None else None
        recorded = recorded or found.first.arguments
        if arguments is None or recorded is None or arguments == recorded:
            return found
        self.changed_arguments.append(path)
        if self._is_strict:
            self._on_divergence(
                divergence.in_arguments(self.log, found, path, kind, line, version=self._version)
            )
            raise Suspended
        return found

    def divergence_at_end(self) -> Divergence | None:
        """What the log has that the function did not do before it ended; None: nothing."""
        return divergence.at_end(self.log, version=self._version)

    def _diverge(self, path: str, kind: OperationKind, line: int) -> None:
        self._on_divergence(divergence.at_call(self.log, path, kind, line, version=self._version))
