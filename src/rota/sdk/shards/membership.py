"""How does one incarnation of a worker live? It does what `Holding` says, until that is over.

`Holding` knows the rules: it is told what happens and answers with steps. Here they are carried
out: messages go over the line, calls to the seats; and what comes back is told to it.

Leaving is draining first: beats say that we are about to leave, the coordinator asks every shard
back, and when `on_revoked` has returned for each of them we go. What is not given up in time is
lost. If a callback is under way even then, we do not say that we leave: the lease runs out by
itself, and only then do others act on our shards.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import assert_never

import structlog

from rota.core.shards.events import BeatMember, LeaveMember, RegisterMember
from rota.core.shards.holding import Assigned, Holding, Lost, Revoked, Send, Step
from rota.core.shards.members import PROTOCOL
from rota.errors import Forbidden, Invalid, RotaError, Unauthorized
from rota.messages.shards import AssignmentData
from rota.sdk.client import Client
from rota.sdk.shards.callbacks import Callbacks
from rota.sdk.shards.held import HeldShard
from rota.sdk.shards.lines import Line, OpenLine, assignment_of
from rota.sdk.shards.seats import Functions, Seats

log = structlog.get_logger("rota.shards")

CLEAN_UP_S = 2.0  # what callbacks get for their last words when the time for draining is over
HURRIED_CLEAN_UP_S = 0.5
REMIND_AFTER_S = 30.0  # that callbacks keep us from going on


class Membership:
    """One incarnation, on the event loop it is made on."""

    def __init__(
        self,
        applicant: RegisterMember,
        functions: Functions,
        callbacks: Callbacks,
        *,
        connect: Callable[[], Client],
        now_ms: Callable[[], int],
    ) -> None:
        self._holding = Holding(applicant, now_ms=now_ms())
        self._connect = connect
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._line: Line
        self._said_seq: int | None = None  # of the message we said last
        self._end: BaseException | None = None  # why there is no going on
        self._leave_at: float | None = None  # when draining must be over
        self._is_hurried = False
        self.lost: Lost | None = None
        self.lease_s = 0.0  # as we were last told
        self.is_replaced = False  # by another process under our name, as far as can be told
        self.seats = Seats(
            functions,
            callbacks,
            hold=self._hold,
            on_tried=self._note_tried,
            on_let_go=self._note_let_go,
            on_quiet=self._woken.set,
        )

    # --- from beginning to end ------------------------------------------------------------------

    async def live(self, open_line: OpenLine) -> None:
        """Register, and hold what we are given, until all is lost or we have left."""
        self._line = open_line(self)
        try:
            while not self._holding.is_over:
                self._woken.clear()
                self._carry_out(self._holding.tick(self._now_ms()))
                if self._end is not None:
                    raise self._end
                if self._is_time_to_leave():
                    await self._leave()
                else:
                    await self._rest(self._next_s())
        finally:
            await self._line.close()

    def drain(self, *, until: float) -> None:
        """Give everything up, and leave when that is done, at the latest at this time."""
        self._leave_at = until
        if not self._holding.is_draining:
            self._holding.drain()
        self._woken.set()

    def hurry(self) -> None:
        """Leave now."""
        self._is_hurried = True
        self.drain(until=self._loop.time())

    def break_off(self, error: BaseException) -> None:
        """Raise this from `live`. The shards are held no longer than the lease lasts."""
        self._end = error
        self._woken.set()

    async def until_quiet(self) -> bool:
        """Wait until no callback is under way; false: it took too long, and we were to leave."""
        while not self.seats.is_quiet:
            left_s = self._clean_up_left_s()
            if left_s is not None and left_s <= 0:
                return False
            self._woken.clear()
            if not await self._rest(min(left_s or REMIND_AFTER_S, REMIND_AFTER_S)):
                log.warning("waiting for callbacks to return", **self._names())
        return True

    async def _leave(self) -> None:
        for step in self._holding.leave():
            if isinstance(step, Send) and not await self.until_quiet():
                log.warning("callbacks do not return; the lease is left to run out")
                return
            self._carry_out([step])

    def _is_time_to_leave(self) -> bool:
        if self._leave_at is None or self._holding.is_over:
            return False
        return self._holding.may_leave or self._loop.time() >= self._leave_at

    def _next_s(self) -> float:
        """How long there is nothing to do, unless something happens."""
        due_ms = self._holding.next_moment_ms()
        if due_ms is None:
            return 0.0
        next_s = (due_ms - self._now_ms()) / 1000
        if self._leave_at is not None:
            next_s = min(next_s, self._leave_at - self._loop.time())
        return max(0.0, next_s)

    def _clean_up_left_s(self) -> float | None:
        if self._leave_at is None:
            return None
        limit_s = HURRIED_CLEAN_UP_S if self._is_hurried else CLEAN_UP_S
        return self._leave_at + limit_s - self._loop.time()

    async def _rest(self, most_s: float) -> bool:
        """Wait for so long; true: something has happened meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._woken.wait()
        return self._woken.is_set()

    # --- steps ----------------------------------------------------------------------------------

    def _carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Assigned(shard=shard, epoch=epoch):
                    self.seats.assign(shard, epoch)
                case Revoked(shard=shard):
                    self.seats.revoke(shard)
                case Lost():
                    self._lose(step)
                case Send(message=message):
                    if not isinstance(message, LeaveMember):
                        self._said_seq = message.seq
                    self._line.send(message)
                case _:
                    assert_never(step)

    def _lose(self, lost: Lost) -> None:
        self.lost = lost
        log.warning(
            "membership over",
            shards_lost=len(lost.shards),
            loss=str(lost.loss),
            reason=lost.reason,
            **self._names(),
        )
        self.seats.lose(lost.shards)

    def _names(self) -> dict[str, str]:
        applicant = self._holding.applicant
        return {"service": applicant.service, "worker_id": applicant.worker_id}

    # --- what the seats ask and tell ------------------------------------------------------------

    def _hold(self, shard: int, epoch: int) -> HeldShard:
        return HeldShard(self._holding, shard, epoch, now_ms=self._now_ms, connect=self._connect)

    def _note_tried(self, held: HeldShard) -> None:
        self._carry_out(self._holding.activate(held.shard))
        self._woken.set()

    def _note_let_go(self, held: HeldShard) -> None:
        self._carry_out(self._holding.let_go(held.shard))
        self._woken.set()

    # --- what the line brings -------------------------------------------------------------------

    def hear(self, told: AssignmentData) -> None:
        try:
            assignment = assignment_of(told, self._holding.applicant)
        except RotaError as error:
            self.note_trouble(error)
            return
        self.lease_s = told.lease_ttl_ms / 1000
        if told.status == "fenced" and self._is_on_time():
            self.is_replaced = True
        self._carry_out(self._holding.receive(assignment, self._now_ms()))
        self._woken.set()

    def _is_on_time(self) -> bool:
        """Whether we have kept our lease, and keep nobody waiting: no reason to fence us."""
        holding = self._holding
        if holding.is_over or holding.lease_end_ms is None:
            return False
        is_behind = any(held.wanted != held.epoch for held in holding.held.values())
        return self._now_ms() < holding.lease_end_ms and not is_behind

    def note_trouble(self, error: RotaError) -> None:
        is_member = self._holding.lease_end_ms is not None
        if not is_member and isinstance(error, Unauthorized | Forbidden | Invalid):
            self.break_off(error)  # trying again would not help
        else:
            log.warning("no answer; trying again", reason=error.detail, **self._names())

    def beat_again(self) -> BeatMember | None:
        holding = self._holding
        if holding.is_over or holding.lease_end_ms is None or self._said_seq is None:
            return None
        return BeatMember(
            service=holding.applicant.service,
            worker_id=holding.applicant.worker_id,
            shard_count=holding.shard_count,
            holds=tuple(sorted(holding.held)),
            protocol=PROTOCOL,
            incarnation=holding.applicant.incarnation,
            generation=holding.generation,
            seq=self._said_seq,
            draining=holding.is_draining,
        )
