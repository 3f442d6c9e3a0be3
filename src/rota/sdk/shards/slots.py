"""The callbacks of each shard, in order.

Theory of operation. A slot lives from the grant of its shard until the shard is given up or lost.
First `on_assigned` is called; when it has returned, the slot is active. For an active slot
`on_revoked` or `on_lost` follows, each after the callback of this slot that is still running. A
slot that never became active is given up, or lost, without a callback: the user has begun nothing.

When `on_assigned` raises, `is_held` of the shard turns false, and no worker acts on it. The
protocol cannot hand back a single shard, and a worker that leaves would pass the error on to the
next worker. So the slot stays, and after a pause `on_assigned` is called again with a new
`HeldShard` under the same epoch, for as long as the shard is assigned. If the coordinator revokes
it, it is given up at once.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rota.sdk.shards.callbacks import Callback, CallbackRunner, NotHeld
from rota.sdk.shards.held import HeldShard
from rota.sdk.timing import RetryBackoff
from rota.telemetry import library_logger

log = library_logger("rota.shards")

RETRY_FIRST_S = 1.0  # after on_assigned has raised
RETRY_MOST_S = 30.0


class UserCallbacks(NamedTuple):
    on_assigned: Callback
    on_revoked: Callback | None
    on_lost: Callback | None


class ShardSlot:
    __slots__ = ("backoff", "error", "held", "is_active", "is_busy", "is_tried", "next", "retry")

    def __init__(self, held: HeldShard) -> None:
        self.held = held
        self.is_active = False
        self.is_tried = False  # on_assigned has ended once, with or without an error
        self.is_busy = False  # a callback is running
        self.next: Callable[[ShardSlot], None] | None = None  # the action after that callback
        self.retry: asyncio.TimerHandle | None = None
        self.backoff: RetryBackoff | None = None
        self.error: BaseException | None = None  # of the last on_assigned


class ShardSlots:
    """The slots of one worker, on the loop of its driver."""

    def __init__(
        self,
        user_callbacks: UserCallbacks,
        runner: CallbackRunner,
        *,
        hold: Callable[[int, int], HeldShard],
        on_tried: Callable[[HeldShard], None],
        on_given_up: Callable[[HeldShard], None],
        on_quiet: Callable[[], None],
    ) -> None:
        self._user_callbacks = user_callbacks
        self._runner = runner
        self._hold = hold
        self._on_tried = on_tried
        self._on_given_up = on_given_up
        self._on_quiet = on_quiet
        self._slots: dict[int, ShardSlot] = {}
        self._busy = 0
        self._loop = asyncio.get_running_loop()

    @property
    def is_quiet(self) -> bool:
        """Whether no callback is running or waiting to run."""
        return self._busy == 0

    def active(self) -> dict[int, HeldShard]:
        """The shards that are held and active; callable from any thread."""
        return {
            shard: slot.held
            for shard, slot in sorted(self._slots.copy().items())
            if slot.is_active and slot.held.is_held
        }

    def failing(self) -> dict[int, BaseException]:
        """The shards whose `on_assigned` has raised, with the error; callable from any thread."""
        return {
            shard: slot.error
            for shard, slot in sorted(self._slots.copy().items())
            if slot.error is not None
        }

    # --- actions of the membership --------------------------------------------------------------

    def assign(self, shard: int, epoch: int) -> None:
        assert shard not in self._slots
        slot = self._slots[shard] = ShardSlot(self._hold(shard, epoch))
        self._try(slot)

    def revoke(self, shard: int) -> None:
        self._do_next(self._slots[shard], self._revoke)

    def lose(self, shards: Iterable[int]) -> None:
        for shard in shards:
            slot = self._slots[shard]
            slot.held.give_up()
            self._do_next(slot, self._lose)

    def _do_next(self, slot: ShardSlot, action: Callable[[ShardSlot], None]) -> None:
        if slot.retry is not None:
            slot.retry.cancel()
            slot.retry = None
        if slot.is_busy:
            slot.next = action
        else:
            action(slot)

    def _call(
        self,
        slot: ShardSlot,
        callback: Callback,
        then: Callable[[ShardSlot, BaseException | None], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        def end(error: BaseException | None) -> None:
            self._busy -= 1
            slot.is_busy = False
            then(slot, error)
            if slot.next is not None and not slot.is_busy:
                action, slot.next = slot.next, None
                action(slot)
            if self.is_quiet:
                self._on_quiet()

        slot.is_busy = True
        self._busy += 1
        self._runner.call(callback, slot.held, end, is_urgent=is_urgent)

    # --- assigned -------------------------------------------------------------------------------

    def _try(self, slot: ShardSlot) -> None:
        slot.retry = None
        self._call(slot, self._user_callbacks.on_assigned, self._end_try)

    def _end_try(self, slot: ShardSlot, error: BaseException | None) -> None:
        slot.is_active = error is None
        slot.error = error
        if error is not None:
            self._retry_later(slot, error)
        if not slot.is_tried:
            slot.is_tried = True
            self._on_tried(slot.held)

    def _retry_later(self, slot: ShardSlot, error: BaseException) -> None:
        before = slot.held
        before.give_up()
        if slot.next is not None:
            return
        if slot.backoff is None:
            slot.backoff = RetryBackoff(first_s=RETRY_FIRST_S, most_s=RETRY_MOST_S)
        wait_s = slot.backoff.wait_s()
        if not isinstance(error, NotHeld):
            log.error(
                "on_assigned_failed",
                hint="it is called again until it succeeds",
                service=before.service,
                shard=before.shard,
                epoch=before.epoch,
                again_in_s=round(wait_s, 1),
                exc_info=error,
            )
        slot.held = self._hold(before.shard, before.epoch)
        slot.retry = self._loop.call_later(wait_s, self._try, slot)

    # --- revoked and lost -----------------------------------------------------------------------

    def _revoke(self, slot: ShardSlot) -> None:
        if not slot.is_active or self._user_callbacks.on_revoked is None:
            self._end_revoke(slot, None)
        else:
            self._call(slot, self._user_callbacks.on_revoked, self._end_revoke)

    def _end_revoke(self, slot: ShardSlot, error: BaseException | None) -> None:
        if isinstance(error, NotHeld):
            return  # the lease is over, so the loss follows
        if error is not None:
            self._log_error("on_revoked_failed", slot, error)
        if slot.next is not None:
            return  # lost in the meantime
        slot.held.give_up()
        del self._slots[slot.held.shard]
        self._on_given_up(slot.held)

    def _lose(self, slot: ShardSlot) -> None:
        del self._slots[slot.held.shard]
        if slot.is_active and self._user_callbacks.on_lost is not None:
            self._call(slot, self._user_callbacks.on_lost, self._end_lose, is_urgent=True)

    def _end_lose(self, slot: ShardSlot, error: BaseException | None) -> None:
        if error is not None:
            self._log_error("on_lost_failed", slot, error)

    def _log_error(self, event: str, slot: ShardSlot, error: BaseException) -> None:
        held = slot.held
        log.error(event, service=held.service, shard=held.shard, epoch=held.epoch, exc_info=error)
