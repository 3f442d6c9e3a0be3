"""Which callback is due for which shard? Each shard has a seat, and its calls come in order.

Theory of operation. A seat lives from the grant of its shard until that is given up or lost. First
`on_assigned` is called, and when it has returned the seat is taken. `on_revoked` is called for a
taken seat and `on_lost` too, each after whatever call of this seat is still under way. A seat that
was never taken is given up, or lost, without a word: there is nothing for the user to end.

When `on_assigned` raises, the shard is given up here: its `is_held` turns false, and nobody acts on
it. The protocol knows no handing back of a single shard, and leaving altogether would send the
trouble round the fleet, one worker after the other. So the seat stays ours, and after a pause
`on_assigned` is called again with a fresh value under the same epoch, for as long as the shard is
assigned to us. The coordinator may ask it back meanwhile, and gets it at once.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from rota.sdk.backoff import Backoff
from rota.sdk.shards.callbacks import Callback, Callbacks, NotHeld
from rota.sdk.shards.held import HeldShard

log = structlog.get_logger("rota.shards")

TRY_AGAIN_FIRST_S = 1.0  # after on_assigned has raised
TRY_AGAIN_MOST_S = 30.0


class Functions(NamedTuple):
    """The user's callbacks."""

    on_assigned: Callback
    on_revoked: Callback | None
    on_lost: Callback | None


class Seat:
    __slots__ = ("backoff", "error", "held", "is_busy", "is_taken", "is_tried", "next", "retry")

    def __init__(self, held: HeldShard) -> None:
        self.held = held
        self.is_taken = False
        self.is_tried = False  # on_assigned has ended, one way or the other
        self.is_busy = False  # a call is under way
        self.next: Callable[[Seat], None] | None = None  # what to do when it has ended
        self.retry: asyncio.TimerHandle | None = None
        self.backoff: Backoff | None = None
        self.error: BaseException | None = None  # why it is not taken


class Seats:
    """The seats of one worker. Belongs to the loop of its driver."""

    def __init__(
        self,
        functions: Functions,
        callbacks: Callbacks,
        *,
        hold: Callable[[int, int], HeldShard],
        on_tried: Callable[[HeldShard], None],
        on_let_go: Callable[[HeldShard], None],
        on_quiet: Callable[[], None],
    ) -> None:
        self._functions = functions
        self._callbacks = callbacks
        self._hold = hold
        self._on_tried = on_tried
        self._on_let_go = on_let_go
        self._on_quiet = on_quiet
        self._seats: dict[int, Seat] = {}
        self._busy = 0
        self._loop = asyncio.get_running_loop()

    @property
    def is_quiet(self) -> bool:
        """Whether no callback is under way, or about to be."""
        return self._busy == 0

    def taken(self) -> dict[int, HeldShard]:
        """From any thread: the shards that were taken up, and are still held."""
        return {
            shard: seat.held
            for shard, seat in sorted(self._seats.copy().items())
            if seat.is_taken and seat.held.is_held
        }

    def failing(self) -> dict[int, BaseException]:
        """From any thread: the shards that could not be taken up so far, and why."""
        return {
            shard: seat.error
            for shard, seat in sorted(self._seats.copy().items())
            if seat.error is not None
        }

    # --- what the driver asks for ---------------------------------------------------------------

    def assign(self, shard: int, epoch: int) -> None:
        assert shard not in self._seats
        seat = self._seats[shard] = Seat(self._hold(shard, epoch))
        self._try(seat)

    def revoke(self, shard: int) -> None:
        self._do_next(self._seats[shard], self._revoke)

    def lose(self, shards: Iterable[int]) -> None:
        for shard in shards:
            seat = self._seats[shard]
            seat.held.give_up()
            self._do_next(seat, self._lose)

    # --- one after the other --------------------------------------------------------------------

    def _do_next(self, seat: Seat, action: Callable[[Seat], None]) -> None:
        if seat.retry is not None:
            seat.retry.cancel()
            seat.retry = None
        if seat.is_busy:
            seat.next = action
        else:
            action(seat)

    def _call(
        self,
        seat: Seat,
        function: Callback,
        then: Callable[[Seat, BaseException | None], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        def end(error: BaseException | None) -> None:
            self._busy -= 1
            seat.is_busy = False
            then(seat, error)
            if seat.next is not None and not seat.is_busy:
                action, seat.next = seat.next, None
                action(seat)
            if self.is_quiet:
                self._on_quiet()

        seat.is_busy = True
        self._busy += 1
        self._callbacks.call(function, seat.held, end, is_urgent=is_urgent)

    # --- assigned -------------------------------------------------------------------------------

    def _try(self, seat: Seat) -> None:
        self._call(seat, self._functions.on_assigned, self._end_try)

    def _end_try(self, seat: Seat, error: BaseException | None) -> None:
        seat.is_taken = error is None
        seat.error = error
        if error is not None:
            self._put_off(seat, error)
        if not seat.is_tried:
            seat.is_tried = True
            self._on_tried(seat.held)

    def _put_off(self, seat: Seat, error: BaseException) -> None:
        """Give the shard up for now, and try again later if it is still ours then."""
        before = seat.held
        before.give_up()
        if seat.next is not None:
            return
        if seat.backoff is None:
            seat.backoff = Backoff(first_s=TRY_AGAIN_FIRST_S, most_s=TRY_AGAIN_MOST_S)
        wait_s = seat.backoff.wait_s()
        if not isinstance(error, NotHeld):
            log.error(
                "on_assigned failed; the shard is not worked on until it succeeds",
                service=before.service,
                shard=before.shard,
                epoch=before.epoch,
                again_in_s=round(wait_s, 1),
                exc_info=error,
            )
        seat.held = self._hold(before.shard, before.epoch)
        seat.retry = self._loop.call_later(wait_s, self._try_again, seat)

    def _try_again(self, seat: Seat) -> None:
        seat.retry = None
        self._try(seat)

    # --- revoked and lost -----------------------------------------------------------------------

    def _revoke(self, seat: Seat) -> None:
        if not seat.is_taken or self._functions.on_revoked is None:
            self._end_revoke(seat, None)
        else:
            self._call(seat, self._functions.on_revoked, self._end_revoke)

    def _end_revoke(self, seat: Seat, error: BaseException | None) -> None:
        if isinstance(error, NotHeld):
            return  # the lease is over, and so it will be lost
        if error is not None:
            self._log_failure("on_revoked failed; the shard is given up all the same", seat, error)
        if seat.next is not None:
            return  # lost meanwhile
        seat.held.give_up()
        del self._seats[seat.held.shard]
        self._on_let_go(seat.held)

    def _lose(self, seat: Seat) -> None:
        del self._seats[seat.held.shard]
        if seat.is_taken and self._functions.on_lost is not None:
            self._call(seat, self._functions.on_lost, self._end_lose, is_urgent=True)

    def _end_lose(self, seat: Seat, error: BaseException | None) -> None:
        if error is not None:
            self._log_failure("on_lost failed", seat, error)

    def _log_failure(self, event: str, seat: Seat, error: BaseException) -> None:
        held = seat.held
        log.error(event, service=held.service, shard=held.shard, epoch=held.epoch, exc_info=error)
