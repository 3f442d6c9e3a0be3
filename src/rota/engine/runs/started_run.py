"""A run that a caller starts and waits for: its reply, and its end, which is not missed."""

import asyncio
from contextlib import ExitStack
from typing import Self

from rota.core.ids import TaskId
from rota.core.workflow.commands import RunShown
from rota.core.workflow.states import RUN_ENDED
from rota.engine.commit.request import EndNotice, QueuedCommand
from rota.engine.waiters import Waiter, Waiters


class StartedRun:
    """The run that a queued `StartRun` makes. Belongs to the event loop.

    The waiter of its end is registered when the reply is delivered, before the coordinator delivers
    another commit.
    """

    def __init__(self, entry: QueuedCommand, ends: Waiters[TaskId, EndNotice]) -> None:
        self.reply: asyncio.Future[RunShown] = entry.future
        self._ends = ends
        self._end: Waiter[EndNotice] | None = None
        self._waiting = ExitStack()
        if self.reply.done():
            self._await_end()
        else:
            entry.on_resolved = self._await_end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()

    def _await_end(self) -> None:
        if self.reply.cancelled() or self.reply.exception() is not None:
            return
        record = self.reply.result().record
        if record.state not in RUN_ENDED:
            waiting = self._ends.waiting_for(TaskId(record.id))
            self._end = self._waiting.enter_context(waiting)

    def end_within(self, wait_ms: int) -> "asyncio.Future[EndNotice | None] | None":
        """The end of the run, which is None after the time limit; None: the run ended at once."""
        return None if self._end is None else self._end.within(wait_ms)
