"""One incarnation of a member: carries out what `MemberClient` decides.

`MemberClient` has the rules: it gets every event and answers with steps. The membership carries
the steps out: it sends messages, calls the slots, and reports their outcome back.

Leaving is draining first: the beats announce it, the coordinator revokes every shard, and the
member leaves when `on_revoked` has returned for each of them. Shards that are not given up in time
are lost. If a callback is running even then, the member does not send that it leaves: its lease
expires, and only then do others act on its shards.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import assert_never

from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember
from rota.core.shards.member_client import Assigned, Lost, MemberClient, Revoked, Send, Step
from rota.core.shards.members import PROTOCOL
from rota.errors import Forbidden, Invalid, RotaError, Unauthorized
from rota.messages.shards import AssignmentData
from rota.sdk.client.client import Client
from rota.sdk.shards.callbacks import CallbackRunner
from rota.sdk.shards.held import HeldShard
from rota.sdk.shards.slots import ShardSlots, UserCallbacks
from rota.sdk.shards.transport import OpenTransport, ShardTransport, assignment_of
from rota.telemetry import library_logger

log = library_logger("rota.shards")

CLEAN_UP_S = 2.0  # for callbacks, after the time for draining is over
HURRIED_CLEAN_UP_S = 0.5
REMIND_AFTER_S = 30.0  # of callbacks that delay the next incarnation


class Membership:
    """One incarnation, on the event loop it is made on."""

    def __init__(
        self,
        registration: RegisterMember,
        user_callbacks: UserCallbacks,
        runner: CallbackRunner,
        *,
        connect: Callable[[], Client],
        now_ms: Callable[[], int],
    ) -> None:
        self._member = MemberClient(registration, now_ms=now_ms())
        self._connect = connect
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._transport: ShardTransport
        self._last_seq: int | None = None  # of the last message
        self._error: BaseException | None = None  # which ends the worker
        self._leave_at: float | None = None  # when draining must be over
        self._is_hurried = False
        self.lost: Lost | None = None
        self.lease_s = 0.0  # of the last assignment
        self.is_replaced = False  # probably by another process under the same id
        self.slots = ShardSlots(
            user_callbacks,
            runner,
            hold=self._hold,
            on_tried=self._note_tried,
            on_given_up=self._note_given_up,
            on_quiet=self._changed.set,
        )

    # --- from start to stop ---------------------------------------------------------------------

    async def run(self, open_transport: OpenTransport) -> None:
        """Register and hold shards until all are lost or the member has left."""
        self._transport = open_transport(self)
        try:
            while not self._member.is_over:
                self._changed.clear()
                self._carry_out(self._member.tick(self._now_ms()))
                if self._error is not None:
                    raise self._error
                if self._is_time_to_leave():
                    await self._leave()
                else:
                    await self._wait(self._idle_s())
        finally:
            await self._transport.close()

    def drain(self, *, until: float) -> None:
        """Give up all shards, and leave when that is done, at the latest at this time."""
        self._leave_at = until
        if not self._member.is_draining:
            self._member.drain()
        self._changed.set()

    def hurry(self) -> None:
        """Leave now."""
        self._is_hurried = True
        self.drain(until=self._loop.time())

    def break_off(self, error: BaseException) -> None:
        """Raise this error from `run`; the shards are held until the lease expires."""
        self._error = error
        self._changed.set()

    async def wait_for_callbacks(self) -> bool:
        """Wait until no callback is running; False when that takes too long for leaving."""
        while not self.slots.is_quiet:
            left_s = self._clean_up_left_s()
            if left_s is not None and left_s <= 0:
                return False
            self._changed.clear()
            if not await self._wait(min(left_s or REMIND_AFTER_S, REMIND_AFTER_S)):
                log.warning("callbacks_awaited", **self._names())
        return True

    async def _leave(self) -> None:
        for step in self._member.leave():
            if isinstance(step, Send) and not await self.wait_for_callbacks():
                log.warning("callbacks_stuck", hint="the lease is left to expire")
                return
            self._carry_out([step])

    def _is_time_to_leave(self) -> bool:
        if self._leave_at is None or self._member.is_over:
            return False
        return self._member.may_leave or self._loop.time() >= self._leave_at

    def _idle_s(self) -> float:
        """How long there is nothing to do, unless something changes."""
        due_ms = self._member.next_moment_ms()
        if due_ms is None:
            return 0.0
        idle_s = (due_ms - self._now_ms()) / 1000
        if self._leave_at is not None:
            idle_s = min(idle_s, self._leave_at - self._loop.time())
        return max(0.0, idle_s)

    def _clean_up_left_s(self) -> float | None:
        if self._leave_at is None:
            return None
        limit_s = HURRIED_CLEAN_UP_S if self._is_hurried else CLEAN_UP_S
        return self._leave_at + limit_s - self._loop.time()

    async def _wait(self, timeout_s: float) -> bool:
        """Wait for a change; False when there was none in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._changed.is_set()

    # --- steps ----------------------------------------------------------------------------------

    def _carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Assigned(shard=shard, epoch=epoch):
                    self.slots.assign(shard, epoch)
                case Revoked(shard=shard):
                    self.slots.revoke(shard)
                case Lost():
                    self._lose(step)
                case Send(message=message):
                    if not isinstance(message, LeaveMember):
                        self._last_seq = message.seq
                    self._transport.send(message)
                case _:
                    assert_never(step)

    def _lose(self, lost: Lost) -> None:
        self.lost = lost
        log.warning(
            "membership_ended",
            shards_lost=len(lost.shards),
            loss=str(lost.loss),
            reason=lost.reason,
            **self._names(),
        )
        self.slots.lose(lost.shards)

    def _names(self) -> dict[str, str]:
        registration = self._member.applicant
        return {"service": registration.service, "worker_id": registration.worker_id}

    # --- callbacks of the slots -----------------------------------------------------------------

    def _hold(self, shard: int, epoch: int) -> HeldShard:
        return HeldShard(self._member, shard, epoch, now_ms=self._now_ms, connect=self._connect)

    def _note_tried(self, held: HeldShard) -> None:
        self._carry_out(self._member.activate(held.shard))
        self._changed.set()

    def _note_given_up(self, held: HeldShard) -> None:
        self._carry_out(self._member.let_go(held.shard))
        self._changed.set()

    # --- callbacks of the transport -------------------------------------------------------------

    def receive(self, data: AssignmentData) -> None:
        try:
            assignment = assignment_of(data, self._member.applicant)
        except RotaError as error:
            self.note_error(error)
            return
        self.lease_s = data.lease_ttl_ms / 1000
        if data.status == "fenced" and self._is_on_time():
            self.is_replaced = True
        self._carry_out(self._member.receive(assignment, self._now_ms()))
        self._changed.set()

    def _is_on_time(self) -> bool:
        """Whether the lease is valid and no revoked shard is overdue: no reason to be fenced."""
        member = self._member
        if member.is_over or member.lease_end_ms is None:
            return False
        is_behind = any(held.wanted != held.epoch for held in member.held.values())
        return self._now_ms() < member.lease_end_ms and not is_behind

    def note_error(self, error: RotaError) -> None:
        is_member = self._member.lease_end_ms is not None
        if not is_member and isinstance(error, Unauthorized | Forbidden | Invalid):
            self.break_off(error)  # another try would not help
        else:
            log.warning("coordinator_silent", reason=error.detail, **self._names())

    def repeated_beat(self) -> BeatMember | None:
        member = self._member
        if member.is_over or member.lease_end_ms is None or self._last_seq is None:
            return None
        return BeatMember(
            service=member.applicant.service,
            worker_id=member.applicant.worker_id,
            shard_count=member.shard_count,
            holds=tuple(sorted(member.held)),
            protocol=PROTOCOL,
            incarnation=member.applicant.incarnation,
            generation=member.generation,
            seq=self._last_seq,
            draining=member.is_draining,
        )
