"""A lease subscription: grants tasks to a worker for as long as it is connected.

A long poll is one request and one reply. A worker with an open connection has one lasting request:
as many tasks as it has room for. The request waits in the writer's waitlist beside all other lease
calls, so the transaction that brings work chooses among them by score. The subscription hands the
granted tasks to the worker. The remainder of the request waits from that same transaction on. If
the store may have more work for it, the subscription enters it into the next batch instead. The
worker's room may change while the request waits.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from rota.core.commands import LeaseWork
from rota.core.replies import Granted
from rota.engine.commit.request import QueuedCommand
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound

log = structlog.get_logger("rota.engine")

MOST_CALLS = 4  # that wait at once; more are replaced by one
TROUBLE_PAUSE_S = 1.0  # before the next request, when the store could not be written


class LeaseSubscription:
    """The lasting request of one worker. It belongs to the event loop, and starts with `ask`."""

    def __init__(
        self,
        enter: Callable[[int], QueuedCommand],
        *,
        take_back: Callable[[QueuedCommand, object], None],
        on_granted: Callable[[Granted | GrantedRows], int],
        on_ended: Callable[[RotaError], None],
    ) -> None:
        """`on_granted` returns the room left; `on_ended` gets the error that ends this."""
        self._enter = enter
        self._take_back = take_back
        self._on_granted = on_granted
        self._on_ended = on_ended
        # The calls that wait, and how many tasks each asks for. Usually one. A second is entered
        # when the room grows while a batch may be executing the first.
        self._waiting: dict[QueuedCommand, int] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._is_over = False

    def ask(self, most: int) -> None:
        """Ask for as many tasks as the worker has room for now, in place of what was asked."""
        if self._is_over or self._pause is not None:
            return
        more = most - sum(self._waiting.values())
        for entry in [*reversed(self._waiting)]:  # lowering may retire it
            if more < 0:
                more += self._lower(entry, by=-more)
            elif more > 0 and entry.is_waiting:
                # It waits because there is no work for it, so it needs no new batch.
                self._set(entry, self._waiting[entry] + more)
                return
        if more > 0:
            if len(self._waiting) >= MOST_CALLS:
                for entry in list(self._waiting):
                    self._retire(entry)
                more = most
            self._enter_anew(more)

    def withdraw(self) -> None:
        """End the subscription of a worker that is gone; leases still granted are returned."""
        self._is_over = True
        for entry in list(self._waiting):
            self._retire(entry)
        if self._pause is not None:
            self._pause.cancel()

    def _lower(self, entry: QueuedCommand, *, by: int) -> int:
        """Lower what one call asks for, at most to nothing; return by how much it was lowered."""
        lowered = min(by, self._waiting[entry])
        left = self._waiting[entry] - lowered
        if left and not entry.is_forwarded:
            self._set(entry, left)
            return lowered
        self._retire(entry)
        if left:
            # The leader has the call as it was asked: a new one takes its place.
            self._enter_anew(left)
        return lowered

    def _set(self, entry: QueuedCommand, most: int) -> None:
        assert isinstance(entry.command, LeaseWork)
        entry.command = msgspec.structs.replace(entry.command, most=most)
        self._waiting[entry] = most

    def _retire(self, entry: QueuedCommand) -> None:
        del self._waiting[entry]
        entry.is_abandoned = True
        entry.future.cancel()

    def _enter_anew(self, most: int) -> None:
        try:
            entry = self._enter(most)
        except RotaError:
            return  # the coordinator has stopped, and the worker's connection will end, too
        self._wait(entry, most)

    def _wait(self, entry: QueuedCommand, most: int) -> None:
        """Take the reply as soon as it is given: an idle worker comes first."""
        self._waiting[entry] = most
        entry.on_resolved = lambda: self._take(entry)

    def _take(self, entry: QueuedCommand) -> None:
        future = entry.future
        error = future.exception()
        if self._waiting.pop(entry, None) is None:
            self._take_back(entry, error or future.result())
        elif error is None:
            granted: Granted | GrantedRows = future.result()
            remainder, entry.remainder = entry.remainder, None
            if remainder is not None:
                assert isinstance(remainder.command, LeaseWork)
                self._wait(remainder, remainder.command.most)
            if isinstance(granted, GrantedRows) or granted.leases:
                self.ask(self._on_granted(granted))
        elif isinstance(error, WorkerNotFound | StaleIncarnation):
            self.withdraw()
            self._on_ended(error)
        else:
            self._try_later(error)

    def _try_later(self, error: BaseException) -> None:
        log.warning("lease_request_failed", problem=str(error))
        if self._pause is None and not self._is_over:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(TROUBLE_PAUSE_S, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self.ask(self._on_granted(Granted([])))
