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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from msgspec import Raw

from rota.core.workflow.functions.model import (
    Divergence,
    FunctionReport,
    Operation,
    OperationKind,
    Request,
)
from rota.sdk.context import Execution
from rota.sdk.functions.errors import LeaseLost, Restarted, Suspended, error_of
from rota.sdk.functions.execution.branches import BRANCH, Branches, FunctionBranch
from rota.sdk.functions.execution.ends import OperationEnds
from rota.sdk.functions.execution.log import FunctionLog, FunctionResumption, LogEntry
from rota.sdk.functions.execution.outbox import Committer, FunctionOutbox
from rota.sdk.functions.execution.scopes import SCOPE, Scopes
from rota.sdk.middleware.chain import MiddlewareChain

GUESTS_GRACE_S = 0.05  # how long tasks of the function's own must be quiet before it is suspended

Body = Callable[[], Awaitable[Raw]]


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
        self.clock = clock
        self.log = FunctionLog(log)
        self.execution: Execution | None = None  # the task that runs the function now
        self.middleware: MiddlewareChain | None = None  # around its steps
        self.scopes = Scopes()
        self.branches = Branches(self._rest)
        self.outbox = FunctionOutbox(
            resumption.reported,
            self.branches,
            on_committed=self._note_committed,
            on_lost=self._lose,
        )
        self.ends = OperationEnds(
            self.log,
            self.branches,
            self.outbox,
            started_at_ms=resumption.started_at_ms,
            on_divergence=self._diverge,
            is_strict=is_strict,
            version=version,
        )
        self.cancelled: str | None = None
        self.is_undoing = False
        self.is_closed = False
        self.is_suspended = False
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.on_large: Callable[[str, bytes], Awaitable[Raw]] | None = None
        self.load: Callable[[str], Awaitable[bytes]] | None = None  # a large result
        self.fakes: Mapping[Any, Callable[..., Any]] = {}  # functions in place of those of steps
        self.frontier: list[str] = []  # of a dry run: what it would begin, as `kind path`
        self._is_dry = is_dry
        self._version = version
        self.loop = asyncio.get_running_loop()
        self._main: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[FunctionReport] = self.loop.create_future()
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
        self.outbox.committer = committer
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
        self.ends.close()
        if self._main is not None and not self._main.done():
            self.loop.call_soon(self._cancel_main)  # if it waits for something else
        if not self._stopped.done():
            self._stopped.set_exception(LeaseLost("the function was ended"))
            self._stopped.exception()  # marks it as retrieved: perhaps no caller waits for it

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
        await self.outbox.end_of_commit()
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
        after, operations = self.outbox.take()
        return FunctionReport(after=after, operations=operations, version=self._version, **how)

    def _stop(self, report: FunctionReport) -> None:
        if not self._stopped.done():
            self._stopped.set_result(report)

    def _suspend(self) -> None:
        self.is_suspended = True
        self._stop(self._report(waits=self.ends.waits()))

    # --- at rest ----------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Let the function see the next thing, now that all of its branches are settled."""
        if self.is_closed or self.is_suspended or self._stopped.done():
            return
        if self.ends.deliver_next(is_cancelling=self._is_cancel_due):
            return
        if self.ends.turns:
            self.branches.wake(self.ends.turns.popleft())
        elif self._is_cancel_due:
            if not self.branches.in_steps and self._main is not None:
                self._is_cancel_seen = True
                self.branches.cancel(self._main, self.cancelled)
        elif self.ends.held:
            self._release()
        elif self.branches.in_steps or self.outbox.is_committing:
            self.outbox.commit_requests()
        elif self.branches.is_at_rest:
            self._suspend()
        else:  # the function waits for tasks of its own
            self.loop.call_later(GUESTS_GRACE_S, self._suspend_if_quiet, self.branches.changes)

    def _suspend_if_quiet(self, changes: int) -> None:
        is_over = self.is_closed or self.is_suspended or self._stopped.done()
        if not is_over and changes == self.branches.changes and self.ends.is_awaited:
            self._suspend()

    def _release(self) -> None:
        """Begin the operations that the log does not have, unless they differ from it."""
        if not self.ends.check_held():
            return
        held = self.ends.held
        if self._is_dry and any(not one.future.done() for one in held):
            self.frontier = [f"{one.kind} {one.path}" for one in held]
            self._suspend()
            return
        self.ends.release()

    # --- divergence -------------------------------------------------------------------------------

    def _diverge(self, found: Divergence) -> None:
        """Stop a function that does something else than its log says."""
        self.outbox.drop()
        self._stop(self._report(divergence=found))
        self.unwind()

    def _diverged_at_end(self) -> FunctionReport | None:
        """The report of a function that ended before it did everything its log has."""
        found = self.ends.divergence_at_end()
        if found is None:
            return None
        self.outbox.drop()
        return self._report(divergence=found)

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
        found = self.ends.find(path, kind, line, arguments)
        # A step that began, and has no outcome, begins again.
        if found is None or (found.end is None and not found.is_pending):
            await self.admit(path, kind, line)
            return None
        return await self.ends.wait(path)

    def end_now(self, path: str, kind: OperationKind, line: int) -> LogEntry | None:
        """The recorded end of an operation that is not awaited; None: the log does not have it."""
        found = self.ends.find(path, kind, line)
        if found is None:
            return None
        if found.end is not None:
            self.ends.pass_time(found.end)
        return found.end

    def record_now(self, operation: Operation, line: int) -> None:
        """Note an operation that is done at once, and that the log does not have."""
        if self.log.is_replaying:
            self.ends.hold_done(operation.path, operation.kind, line)
        self.record(operation)

    async def admit(self, path: str, kind: OperationKind, line: int) -> None:
        """Wait until a new operation may begin: at once in a live function."""
        is_live = not (self.log.is_replaying or self._is_cancel_due or self.is_suspended)
        if is_live and not self._is_dry:
            return
        await self.ends.hold(path, kind, line)
        self.check_open()

    @property
    def _is_cancel_due(self) -> bool:
        return self.cancelled is not None and not self._is_cancel_seen and not self.is_undoing

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
        await self.ends.turn()
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
        self.outbox.note(operation)
        return await self.ends.wait(path)

    def record(self, operation: Operation, *, is_due: bool = True) -> None:
        """Note what the function has done; `is_due`: it is committed before the next effect."""
        self.ends.pass_time(operation)
        self.outbox.note(operation, is_due=is_due)

    # --- commits ----------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit everything that was done so far, so that an effect may begin."""
        due = self.outbox.due
        while self.outbox.reported < due:
            self.outbox.begin_commit()
            await self._end_of_commit()

    def _note_committed(self, cancelled: str | None) -> None:
        self.cancelled = self.cancelled or cancelled

    def _lose(self, error: BaseException | None) -> None:
        """End a function whose operations cannot be committed."""
        if error is not None and not self._stopped.done():
            self._stopped.set_exception(error)
        self.unwind()
