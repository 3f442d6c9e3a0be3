"""Runs a durable function: replays its log, goes on, commits what it does, and suspends it.

Theory of operation. A function sees the ends of its operations one at a time, each when all of its
branches are at rest (see `branches`). While the log has ends, these are delivered in its order, and
operations that the log does not have are held. At rest with nothing left to deliver, the held ones
begin: from here on the function is live. A live function that is at rest with no step running waits
for the coordinator only. Then it is suspended: its task ends with a report of what it waits for,
and its coroutine stays in memory until the run is resumed or the memory is needed.

Before an effect begins (the function of a step), everything that was done before is committed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from rota.core.workflow.functions.model import (
    WITHDRAWN,
    Divergence,
    FunctionReport,
    Operation,
    OperationKind,
    Request,
)
from rota.sdk.context import Execution
from rota.sdk.functions.errors import LeaseLost, Restarted, Suspended, error_of
from rota.sdk.functions.execution import divergence
from rota.sdk.functions.execution.branches import BRANCH, Branches, FunctionBranch
from rota.sdk.functions.execution.log import (
    FunctionLog,
    FunctionResumption,
    LogEntry,
    RecordedOperation,
)
from rota.sdk.functions.execution.scopes import SCOPE, Scopes, scope_of
from rota.sdk.middleware.chain import MiddlewareChain

ARTIFACT = "$artifact"  # the field of a result that is too large for the log
_ARTIFACT_START = b'{"$artifact":'
DELIVERIES_PER_TURN = 100  # of a replay, before other functions of the loop have their turn
GUESTS_GRACE_S = 0.05  # how long tasks of the function's own must be quiet before it is suspended

Body = Callable[[], Awaitable[Raw]]


class Committer(Protocol):
    """The coordinator, as a running function needs it."""

    def commit(self, after: int, operations: Sequence[Operation]) -> Awaitable[str | None]:
        """Commit operations; returns why the run was cancelled. Raises `LeaseLost`."""


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


class FunctionRuntime:
    """One run of a function in this process, on the event loop it is made on."""

    def __init__(
        self,
        resumption: FunctionResumption,
        log: Sequence[LogEntry],
        *,
        clock: Callable[[], int],
        is_strict: bool = False,
        is_dry: bool = False,
        version: int | None = None,
    ) -> None:
        """`is_dry`: the function stops where its log ends, and begins nothing new."""
        self.run_id = resumption.run_id
        self.restarts = resumption.restarts
        self.reported = resumption.reported
        self.now_ms = resumption.started_at_ms  # the time of what the function has seen last
        self.clock = clock
        self.log = FunctionLog(log)
        # Whether an earlier task has run the code that runs now, which logs its lines again.
        self.is_replaying = bool(self.log.recorded)
        self.execution: Execution | None = None  # the task that runs the function now
        self.middleware: MiddlewareChain | None = None  # around its steps
        self.scopes = Scopes()
        self.branches = Branches(self._rest)
        self.cancelled: str | None = None
        self.changed_arguments: list[str] = []  # paths of steps with other arguments than recorded
        self.is_undoing = False
        self.is_closed = False
        self.is_suspended = False
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.on_large: Callable[[str, bytes], Awaitable[Raw]] | None = None
        self.load: Callable[[str], Awaitable[bytes]] | None = None  # a large result
        self.fakes: Mapping[Any, Callable[..., Any]] = {}  # functions in place of those of steps
        self.frontier: list[str] = []  # of a dry run: what it would begin, as `kind path`
        self._is_strict = is_strict
        self._is_dry = is_dry
        self._version = version
        self.loop = asyncio.get_running_loop()
        self._committer: Committer | None = None
        self._main: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[FunctionReport] = self.loop.create_future()
        self._waiters: dict[str, asyncio.Future[LogEntry]] = {}
        self._groups: dict[str, int] = {}  # waits that wake the function together, by path
        self._held: list[HeldOperation] = []
        self._turns: deque[asyncio.Future[None]] = deque()  # ended steps that wait for their turn
        self._outbox: list[Operation] = []
        self._in_flight = 0  # entries that are being committed
        self._due = 0  # entries, of those reported and to report, that an effect must wait for
        self._commit: asyncio.Future[str | None] | None = None
        self._commit_waiters: list[asyncio.Future[None]] = []
        self._direct = 0  # deliveries without a turn of the loop
        self._undos: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._is_cancel_seen = False

    # --- from start to stop -----------------------------------------------------------------------

    async def resume(
        self,
        body: Body,
        committer: Committer,
        *,
        ended: Sequence[LogEntry] = (),
        cancelled: str | None = None,
    ) -> FunctionReport:
        """Start the function, or go on with it, until it stops."""
        self._committer = committer
        self.cancelled = self.cancelled or cancelled
        self.is_suspended = False
        stopped: asyncio.Future[FunctionReport] = self.loop.create_future()
        self._stopped = stopped
        self.log.add_ended(ended)
        if self._main is None:
            branch = FunctionBranch()
            self.branches.begin()
            context = copy_context()
            context.run(BRANCH.set, branch)
            context.run(SCOPE.set, self.scopes.at(""))
            self._main = branch.task = self.loop.create_task(self._run(body), context=context)
        else:
            self.branches.note_change()
        try:
            return await stopped
        except asyncio.CancelledError:
            self.unwind()
            raise

    def unwind(self) -> None:
        """End the function here; it can be replayed elsewhere."""
        if self.is_closed:
            return
        self.is_closed = True
        for future in self._futures():
            self.branches.fail(future, Suspended())
        if self._main is not None and not self._main.done():
            self.loop.call_soon(self._cancel_main)  # if it waits for something else
        if not self._stopped.done():
            self._stopped.set_exception(LeaseLost("the function was ended"))
            self._stopped.exception()  # marks it as retrieved: perhaps no caller waits for it

    def _futures(self) -> "list[asyncio.Future[Any]]":
        held = [one.future for one in self._held]
        return [*self._waiters.values(), *held, *self._turns]

    def _cancel_main(self) -> None:
        if self._main is not None and not self._main.done():
            self._main.cancel()

    async def _run(self, body: Body) -> None:
        try:
            report = await self._outcome(body)
        except (Suspended, LeaseLost, asyncio.CancelledError):
            self.unwind()
            return
        if not self.is_closed:
            self._stop(report)

    async def _outcome(self, body: Body) -> FunctionReport:
        try:
            output = await body()
            await self._end_of_commit()
        except (Suspended, LeaseLost):
            raise
        except Restarted as restart:
            return self._report(restart=restart.run_input)
        except BaseException as error:
            if self.is_closed:
                raise Suspended from None
            is_cancelled = self._is_cancel_seen and isinstance(error, asyncio.CancelledError)
            if isinstance(error, asyncio.CancelledError) and not is_cancelled:
                raise
            failure = self._cancellation() if self._is_cancel_seen else error_of(error)
        else:
            if not self._is_cancel_seen:
                return self._diverged_at_end() or self._report(output=output)
            failure = self._cancellation()
        await self._end_of_commit()
        if not self._is_cancel_seen:
            diverged = self._diverged_at_end()
            if diverged is not None:
                return diverged
        return self._report(error=await self._undone(failure))

    async def _end_of_commit(self) -> None:
        """Wait until nothing is being committed: the last report follows what was."""
        if self._commit is not None:
            # Not the commit itself: a branch that is cancelled must not cancel it.
            ended: asyncio.Future[None] = self.loop.create_future()
            self._commit_waiters.append(ended)
            await ended
        self.check_open()

    def _cancellation(self) -> dict[str, Any]:
        return {"type": "cancelled", "message": self.cancelled or "cancelled"}

    async def _undone(self, failure: dict[str, Any]) -> dict[str, Any]:
        """Undo what the function has done, newest first; failures are added to its error."""
        self.is_undoing = True
        not_undone: list[dict[str, Any]] = []
        for path, undo in reversed(self._undos):
            try:
                await undo()
            except Exception as error:  # noqa: BLE001 - users' code; it is reported
                not_undone.append({"path": path, "error": error_of(error)})
        return {**failure, "not_undone": not_undone} if not_undone else failure

    def add_undo(self, path: str, undo: Callable[[], Awaitable[None]]) -> None:
        """Undo an operation that is done, if the function fails or is cancelled later."""
        if not self.is_undoing:
            self._undos.append((path, undo))

    def _report(self, **how: Any) -> FunctionReport:
        operations, self._outbox = self._outbox, []
        after, self.reported = self.reported, self.reported + len(operations)
        return FunctionReport(after=after, operations=operations, version=self._version, **how)

    def _stop(self, report: FunctionReport) -> None:
        if not self._stopped.done():
            self._stopped.set_result(report)

    def _suspend(self) -> None:
        groups: dict[int, list[str]] = {}
        alone: list[list[str]] = []
        for path in self._waiters:
            number = self._groups.get(path)
            if number is None:
                alone.append([path])
            else:
                groups.setdefault(number, []).append(path)
        self.is_suspended = True
        self._stop(self._report(waits=[*groups.values(), *alone]))

    # --- at rest ----------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Let the function see the next thing, now that all of its branches are settled."""
        if self.is_closed or self.is_suspended or self._stopped.done():
            return
        if self._deliver_next():
            return
        if self._turns:
            self.branches.wake(self._turns.popleft())
        elif self._is_cancel_due:
            if not self.branches.in_steps and self._main is not None:
                self._is_cancel_seen = True
                self.branches.cancel(self._main, self.cancelled)
        elif self._held:
            self._release()
        elif self.branches.in_steps or self._commit is not None:
            self._report_requests()
        elif self.branches.is_at_rest:
            self._suspend()
        else:  # the function waits for tasks of its own
            self.loop.call_later(GUESTS_GRACE_S, self._suspend_if_quiet, self.branches.changes)

    def _suspend_if_quiet(self, changes: int) -> None:
        is_over = self.is_closed or self.is_suspended or self._stopped.done()
        if not is_over and changes == self.branches.changes and self._waiters:
            self._suspend()

    def _deliver_next(self) -> bool:
        """Deliver the next end of the log; False: there is none."""
        log = self.log
        while log.deliveries:
            path = log.deliveries[0]
            waiter = self._waiters.get(path)
            if waiter is not None:
                log.deliveries.popleft()
                del self._waiters[path]
                self.branches.wake(waiter, self._see(path))
                return True
            if log.recorded[path].is_visited:  # it was not awaited, or is not any more
                log.deliveries.popleft()
                continue
            if self._is_cancel_due:
                return False
            held = self._held_in(scope_of(path))
            if held is not None:
                self._diverge(held.path, held.kind, held.line)
                return True
            log.skip()
        return False

    def _see(self, path: str) -> LogEntry:
        """Note that the function sees the end of an operation now."""
        recorded = self.log.recorded[path]
        end = recorded.end
        assert end is not None
        self.is_replaying = recorded.is_seen
        if not recorded.is_seen:
            recorded.is_seen = True
            seen = Operation(path=path, kind=end.kind, state="delivered")
            self._note(seen)
        self._pass_time(end)
        return end

    def _pass_time(self, end: LogEntry) -> None:
        """Let the function's own time be that of what it has seen last."""
        if end.ended_at_ms is not None and end.ended_at_ms > self.now_ms:
            self.now_ms = end.ended_at_ms

    def _held_in(self, scope: str) -> HeldOperation | None:
        return next((one for one in self._held if scope_of(one.path) == scope), None)

    def _release(self) -> None:
        """Begin the operations that the log does not have, unless they differ from it."""
        for one in self._held:
            if self.log.has_unvisited(scope_of(one.path)):
                self._diverge(one.path, one.kind, one.line)
                return
        if self._is_dry and any(not one.future.done() for one in self._held):
            self.frontier = [f"{one.kind} {one.path}" for one in self._held]
            self._suspend()
            return
        self.is_replaying = False
        held, self._held = self._held, []
        for one in held:
            self.branches.wake(one.future)
        self.branches.note_change()  # none of them may have been awaited

    # --- divergence -------------------------------------------------------------------------------

    def _diverge(self, path: str, kind: OperationKind, line: int) -> None:
        """Stop a function that does something else than its log says."""
        self._stop_diverged(divergence.at_call(self.log, path, kind, line, version=self._version))

    def _diverged_at_end(self) -> FunctionReport | None:
        """The report of a function that ended before it did everything its log has."""
        found = divergence.at_end(self.log, version=self._version)
        if found is None:
            return None
        self._outbox = []
        return self._report(divergence=found)

    def _stop_diverged(self, found: Divergence) -> None:
        self._outbox = []  # what a diverged function has seen counts as unseen
        self._stop(self._report(divergence=found))
        self.unwind()

    # --- operations -------------------------------------------------------------------------------

    def enter(self, name: str, key: str | None, line: int) -> str:
        """The path of an operation that the current branch begins."""
        self.check_open()
        return SCOPE.get().path_of(name, key, self.branches.current(), line)

    def check_open(self) -> None:
        if self.is_closed:
            raise Suspended

    async def end_of(
        self, path: str, kind: OperationKind, line: int, arguments: str | None = None
    ) -> LogEntry | None:
        """The recorded end of an operation, in its turn; None: it is to begin now."""
        found = self.log.visit(path)
        if found is None:
            await self.admit(path, kind, line)
            return None
        self._check_same(found, path, kind, line, arguments)
        if found.end is None and not found.is_pending:
            await self.admit(path, kind, line)  # a step that began, and has no outcome
            return None
        return await self._await_end(path)

    def end_now(self, path: str, kind: OperationKind, line: int) -> LogEntry | None:
        """The recorded end of an operation that is not awaited; None: the log does not have it."""
        found = self.log.visit(path)
        if found is None:
            return None
        self._check_same(found, path, kind, line, None)
        if found.end is not None:
            self._pass_time(found.end)
        return found.end

    @staticmethod
    def is_artifact(end: LogEntry) -> bool:
        """Whether the result of an operation is too large for the log."""
        result = end.result
        return isinstance(result, Raw) and bytes(result).startswith(_ARTIFACT_START)

    async def loaded(self, end: LogEntry) -> LogEntry:
        """The end of an operation with its whole result, also if that is an artifact."""
        result = end.result
        if self.load is None or not isinstance(result, Raw) or not self.is_artifact(end):
            return end
        content = await self.load(msgspec.json.decode(result)[ARTIFACT])
        return msgspec.structs.replace(end, result=Raw(content))

    @staticmethod
    def plain_result(end: LogEntry) -> Any:
        """The recorded result of an operation, as JSON has it."""
        result = end.result
        return msgspec.json.decode(result) if isinstance(result, Raw) else result

    def _check_same(
        self,
        found: RecordedOperation,
        path: str,
        kind: OperationKind,
        line: int,
        arguments: str | None,
    ) -> None:
        if found.first.kind != kind:
            self._diverge(path, kind, line)
            raise Suspended
        recorded = found.end.arguments if found.end is not None else None
        recorded = recorded or found.first.arguments
        if arguments is None or recorded is None or arguments == recorded:
            return
        self.changed_arguments.append(path)
        if self._is_strict:
            self._stop_diverged(
                divergence.in_arguments(self.log, found, path, kind, line, version=self._version)
            )
            raise Suspended

    def record_now(self, operation: Operation, line: int) -> None:
        """Note an operation that is done at once, and that the log does not have."""
        if self.log.is_replaying:
            done: asyncio.Future[None] = self.loop.create_future()
            done.set_result(None)
            self._held.append(HeldOperation(operation.path, operation.kind, line, done))
            self.branches.note_change()
        self.record(operation)

    async def admit(self, path: str, kind: OperationKind, line: int) -> None:
        """Wait until a new operation may begin: at once in a live function."""
        is_live = not (self.log.is_replaying or self._is_cancel_due or self.is_suspended)
        if is_live and not self._is_dry:
            return
        held = HeldOperation(path, kind, line, self.loop.create_future())
        self._held.append(held)
        try:
            await self.branches.wait(held.future)
        finally:
            if held in self._held:
                self._held.remove(held)
        self.check_open()

    @property
    def _is_cancel_due(self) -> bool:
        return self.cancelled is not None and not self._is_cancel_seen and not self.is_undoing

    async def _await_end(self, path: str) -> LogEntry:
        if self._is_next(path):
            self._direct += 1
            if self._direct % DELIVERIES_PER_TURN == 0:
                await asyncio.sleep(0)
            self.log.deliveries.popleft()
            return self._see(path)
        waiter: asyncio.Future[LogEntry] = self.loop.create_future()
        self._waiters[path] = waiter
        try:
            end: LogEntry = await self.branches.wait(waiter)
        except asyncio.CancelledError:
            self._withdraw(path)
            raise
        finally:
            if self._waiters.get(path) is waiter:
                del self._waiters[path]
        return end

    def _is_next(self, path: str) -> bool:
        """Whether the end of this path is the next to see, and no other branch is under way."""
        if self._turns or not self.branches.is_alone:
            return False
        log = self.log
        while log.deliveries and log.deliveries[0] != path:
            first = log.deliveries[0]
            if not log.recorded[first].is_visited or first in self._waiters:
                return False
            log.deliveries.popleft()
        return bool(log.deliveries)

    async def begin_effect(self, path: str, kind: OperationKind, line: int) -> None:
        """Commit what was done before, so that an effect may begin; a cancelled one does not."""
        self.branches.in_steps += 1
        self.branches.note_change()
        try:
            await self.commit()
        finally:
            self.branches.in_steps -= 1
        if self._is_cancel_due:
            await self.admit(path, kind, line)

    async def turn(self) -> None:
        """Wait until the function may see the end of a step that has run here."""
        if self._turns or not self.branches.is_alone:
            future: asyncio.Future[None] = self.loop.create_future()
            self._turns.append(future)
            try:
                await self.branches.wait(future)
            finally:
                if future in self._turns:  # the branch was cancelled
                    self._turns.remove(future)
        self.check_open()

    async def pause(self, wait_s: float) -> None:
        """Let a short time pass here, as a step does."""
        self.branches.in_steps += 1
        self.branches.note_change()
        try:
            await self.sleep(wait_s)
        finally:
            self.branches.in_steps -= 1

    async def ask(
        self,
        path: str,
        kind: OperationKind,
        request: Request,
        *,
        line: int,
        arguments: str | None = None,
        can_undo: bool = False,
    ) -> LogEntry:
        """Ask the coordinator for something, and wait for its end."""
        operation = Operation(
            path=path,
            kind=kind,
            state="pending",
            request=request,
            arguments=arguments,
            started_at_ms=self.clock(),
            line=line or None,
            can_undo=can_undo,
        )
        self.log.note_reported(operation)
        self._note(operation)
        return await self._await_end(path)

    def wake_together(self, path: str, group: int) -> None:
        """Wake the function once for all operations of a group, when all of them have ended."""
        self._groups[path] = group

    def record(self, operation: Operation, *, is_due: bool = True) -> None:
        """Note what the function has done; `is_due`: it is committed before the next effect."""
        self._pass_time(operation)
        self._note(operation, is_due=is_due)

    def _note(self, operation: Operation, *, is_due: bool = True) -> None:
        self._outbox.append(operation)
        if is_due:
            self._due = self.reported + self._in_flight + len(self._outbox)

    def _withdraw(self, path: str) -> None:
        """Give up a pending operation, whose branch was cancelled."""
        found = self.log.recorded.get(path)
        if self.is_closed or found is None or not found.is_pending or found.is_withdrawn:
            return
        found.is_withdrawn = True
        self._note(
            Operation(
                path=path,
                kind=found.first.kind,
                state="failed",
                error={"type": WITHDRAWN, "message": "the function does not wait for it any more"},
            )
        )

    # --- commits ----------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit everything that was done so far, so that an effect may begin."""
        due = self._due
        while self.reported < due:
            if self._commit is None:
                self._begin_commit()
            await self._end_of_commit()

    def _report_requests(self) -> None:
        """Report what the coordinator is asked for, while steps still run."""
        if self._commit is None and any(one.state == "pending" for one in self._outbox):
            self._begin_commit()

    def _begin_commit(self) -> None:
        operations, self._outbox = self._outbox, []
        self._in_flight = len(operations)
        assert self._committer is not None
        try:
            commit = asyncio.ensure_future(self._committer.commit(self.reported, operations))
        except Exception as error:  # noqa: BLE001 - what cannot be sent cannot be committed
            self._lose(error)
            return
        self._commit = commit
        commit.add_done_callback(self._end_commit)

    def _end_commit(self, commit: "asyncio.Future[str | None]") -> None:
        self._commit = None
        waiters, self._commit_waiters = self._commit_waiters, []
        error = None if commit.cancelled() else commit.exception()
        if commit.cancelled():
            self.unwind()
        elif error is not None:
            self._lose(error)
        else:
            self.reported += self._in_flight
            self._in_flight = 0
            self.cancelled = self.cancelled or commit.result()
        for one in waiters:
            if not one.done():  # its branch may have been cancelled
                one.set_result(None)
        self.branches.note_change()

    def _lose(self, error: BaseException) -> None:
        """End a function whose operations cannot be committed."""
        if not self._stopped.done():
            self._stopped.set_exception(error)
        self.unwind()
