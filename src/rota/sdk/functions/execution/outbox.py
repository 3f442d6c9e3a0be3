"""What a function has done and not reported: committed while it runs, or sent with its report."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rota.core.workflow.functions.model import Operation
from rota.sdk.functions.execution.branches import Branches


class Committer(Protocol):
    """The coordinator, as a running function needs it."""

    def commit(self, after: int, operations: Sequence[Operation]) -> Awaitable[str | None]:
        """Commit operations; returns why the run was cancelled. Raises `LeaseLost`."""


class FunctionOutbox:
    """The operations of a function that the coordinator does not have yet, in their order.

    One commit is under way at a time. Operations that are noted meanwhile wait for the next one.
    """

    def __init__(
        self,
        reported: int,
        branches: Branches,
        *,
        on_committed: Callable[[str | None], None],
        on_lost: Callable[[BaseException | None], None],
    ) -> None:
        """`on_committed` gets why the run was cancelled, `on_lost` why a commit failed, if known.

        Either is called before the branches that wait for the end of the commit go on.
        """
        self.reported = reported  # entries that the coordinator has
        self.due = 0  # entries, of those reported and to report, that an effect must wait for
        self.committer: Committer | None = None
        self._operations: list[Operation] = []
        self._in_flight = 0  # entries that are being committed
        self._commit: asyncio.Future[str | None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._branches = branches
        self._on_committed = on_committed
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()

    def note(self, operation: Operation, *, is_due: bool = True) -> None:
        """Note an operation; `is_due`: it is committed before the next effect."""
        self._operations.append(operation)
        if is_due:
            self.due = self.reported + self._in_flight + len(self._operations)

    def drop(self) -> None:
        """Forget what was noted: what a diverged function has seen counts as unseen."""
        self._operations = []

    def take(self) -> tuple[int, list[Operation]]:
        """Take everything for the report of the function, and the number of entries before it."""
        operations, self._operations = self._operations, []
        after, self.reported = self.reported, self.reported + len(operations)
        return after, operations

    @property
    def is_committing(self) -> bool:
        return self._commit is not None

    def commit_requests(self) -> None:
        """Report what the coordinator is asked for, while steps still run."""
        if self._commit is None and any(one.state == "pending" for one in self._operations):
            self.begin_commit()

    def begin_commit(self) -> None:
        """Commit what was noted, unless a commit is under way."""
        if self._commit is not None:
            return
        operations, self._operations = self._operations, []
        self._in_flight = len(operations)
        assert self.committer is not None
        try:
            commit = asyncio.ensure_future(self.committer.commit(self.reported, operations))
        except Exception as error:  # noqa: BLE001 - what cannot be sent cannot be committed
            self._on_lost(error)
            return
        self._commit = commit
        commit.add_done_callback(self._end_commit)

    def _end_commit(self, commit: "asyncio.Future[str | None]") -> None:
        self._commit = None
        waiters, self._waiters = self._waiters, []
        error = None if commit.cancelled() else commit.exception()
        if commit.cancelled() or error is not None:
            self._on_lost(error)
        else:
            self.reported += self._in_flight
            self._in_flight = 0
            self._on_committed(commit.result())
        for one in waiters:
            if not one.done():  # its branch may have been cancelled
                one.set_result(None)
        self._branches.note_change()

    async def end_of_commit(self) -> None:
        """Wait until nothing is being committed."""
        if self._commit is not None:
            # Not the commit itself: a branch that is cancelled must not cancel it.
            ended: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(ended)
            await ended
