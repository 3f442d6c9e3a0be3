"""Keeps a coordinator the leader of its store, or connected to the leader.

Theory of operation. A loop asks the store who leads. The leader extends its lease. Every other
coordinator keeps a link to the leader, and takes over when the lease has run out, or when the link
is lost and the store shows that the leader is gone. The loop sleeps for a third of a lease, and
wakes when something happens: a lost link, a leader that resigns, a commit that was refused because
another coordinator leads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import structlog

from rota.core.replicas import Leader, Role, Step, next_step
from rota.engine.clock import StoreClock
from rota.engine.replicas.link.frames import (
    FollowerFrame,
    LeaderFrame,
    OnLeaderFrame,
    OnLost,
    PeerConnection,
)
from rota.errors import RotaError
from rota.store.leadership import Elections
from rota.tls import reason_of

log = structlog.get_logger("rota.replicas")

START_LIMIT_S = 10.0  # how long a start waits until the coordinator leads or follows
RETRY_S = 0.05  # between two steps while there is no leader to reach
NO_ANSWER = "no answer in time"
BRIEF_S = 1.0  # after links that were lost sooner than this, the next is opened later
LEASES_A_RENEWAL = 3  # a lease is extended this many times before it would run out

T = TypeVar("T")

ToLeader = PeerConnection[FollowerFrame]
Dial = Callable[[Leader, bytes, OnLeaderFrame, OnLost], Awaitable[ToLeader]]


class Roles(Protocol):
    """What a coordinator does when its role changes."""

    async def lead(self) -> None:
        """Load the state of the store and begin to execute commands."""
        ...

    async def step_down(self) -> None:
        """Stop executing commands; another coordinator leads, or may lead soon."""
        ...

    def follow(self, connection: ToLeader) -> None:
        """Send commands to the leader from now on."""
        ...

    def receive(self, frame: LeaderFrame) -> None: ...

    def lose_leader(self) -> None:
        """Hold commands until there is a leader again."""
        ...


class Leadership:
    def __init__(
        self,
        elections: Elections,
        roles: Roles,
        clock: StoreClock,
        *,
        name: str,
        lease_ms: int,
        is_inline: bool = False,
    ) -> None:
        self._elections = elections
        self._roles = roles
        self._clock = clock
        self._name = name
        self._lease_ms = lease_ms
        self._thread = None if is_inline else ThreadPoolExecutor(1, "rota-leadership")
        self._secret: bytes | None = None
        self._connection: ToLeader | None = None
        self._is_cut_off = False  # the link to the leader was refused or lost
        self._brief_links = 0  # to this leader, that were lost one after the other
        self._dial_after_s = 0.0  # by the clock of the event loop
        self._is_deposed = False  # a commit was refused because another coordinator leads
        self._wakeup = asyncio.Event()
        self._has_role = asyncio.Event()  # set for good when it first leads or follows
        self._task: asyncio.Task[None] | None = None
        self._lease_ends_s = 0.0  # of this leader's lease, by the clock of the event loop
        self.dial: Dial | None = None  # None: this coordinator can lead, but not follow
        self.address = ""  # where the other coordinators reach this one
        self.role = Role.SEEKING
        self.leader: Leader | None = None
        self.epoch: int | None = None  # at which this coordinator leads, or follows
        self.changes = 0  # of the leader, seen since the start
        self.store_problem: str | None = None  # why the last step could not use the store

    async def start(self) -> None:
        """Return when the coordinator leads or follows; the limit passed: it goes on trying."""
        self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._has_role.wait()
        except TimeoutError:
            log.warning("leader_not_reached", limit_s=START_LIMIT_S)

    async def stop(self) -> None:
        """Stop the loop. The role stays: `resign` or `disconnect` ends it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def resign(self) -> None:
        """End the lease, so that another coordinator takes over at once."""
        if self.role is Role.LEADER:
            self.role = Role.SEEKING
            try:
                await self._call(self._elections.resign)
            except RotaError as error:
                log.warning("resignation_failed", problem=error.detail)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def note_deposed(self) -> None:
        """Note that a commit was refused because another coordinator leads."""
        self._is_deposed = True
        self._wakeup.set()

    def look_soon(self) -> None:
        """Look at once, because the leader has said that it resigns."""
        self._wakeup.set()

    @property
    def has_lapsed(self) -> bool:
        """Whether this leader could not extend its lease in time, so that another may lead now."""
        return self.role is Role.LEADER and _now_s() > self._lease_ends_s

    def secret(self) -> bytes | None:
        """The secret of the coordinators of this store; None: it was not read yet."""
        return self._secret

    # --- the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                pause_s = await self.step()
                self.store_problem = None
            except RotaError as error:
                self.store_problem = error.detail
                log.warning("leadership_check_failed", problem=error.detail)
                pause_s = RETRY_S * 4
            except Exception:
                log.exception("leadership_check_failed")
                pause_s = RETRY_S * 4
            try:
                async with asyncio.timeout(pause_s):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def step(self) -> float:
        """Do what is next about the leadership; return the pause until the next step."""
        usual_s = self._lease_ms / 1000 / LEASES_A_RENEWAL
        if self._secret is None:
            self._secret = await self._call(self._elections.secret)
        if self.role is Role.LEADER:
            return usual_s if await self._renew() else 0.0
        view = await self._call(self._elections.look)
        self._clock.note(view.now_ms)
        leader = view.leader
        self._note_leader(leader)
        step = next_step(leader, is_cut_off=self._is_cut_off)
        if step is Step.TAKE_OVER:
            return usual_s if await self._take_over(leader) else RETRY_S
        assert leader is not None, "without a leader, the step is to take over"
        if self._connection is not None and self.epoch == leader.epoch:
            return usual_s
        early_s = self._dial_after_s - _now_s()
        if early_s > 0:
            return min(early_s, usual_s)
        return usual_s if await self._connect(leader) else RETRY_S

    def _note_leader(self, leader: Leader | None) -> None:
        known, self.leader = self.leader, leader
        if known is not None and leader is not None and known.epoch != leader.epoch:
            self.changes += 1
            self._brief_links, self._dial_after_s = 0, 0.0

    def _note_link_lost(self, lasted_s: float) -> None:
        """Open the next link later and later, if one after the other does not last."""
        self._brief_links = self._brief_links + 1 if lasted_s < BRIEF_S else 0
        if self._brief_links > 1:
            pause_s = RETRY_S * 2 ** min(self._brief_links, 10)
            self._dial_after_s = _now_s() + min(pause_s, self._lease_ms / 1000)

    async def _renew(self) -> bool:
        is_deposed, self._is_deposed = self._is_deposed, False
        asked_at_s = _now_s()
        now_ms = await self._call(lambda: self._elections.renew(lease_ms=self._lease_ms))
        if now_ms is not None:
            self._clock.note(now_ms)
            self._lease_ends_s = asked_at_s + self._lease_ms / 1000
            if not is_deposed:
                return True
        log.warning("leadership_lost", epoch=self.epoch)
        self.role, self.epoch = Role.SEEKING, None
        await self._roles.step_down()
        return False

    async def _take_over(self, leader: Leader | None) -> bool:
        seen = 0 if leader is None else leader.epoch
        asked_at_s = _now_s()
        epoch = await self._call(
            lambda: self._elections.take_over(
                self._name, self.address, seen_epoch=seen, lease_ms=self._lease_ms
            )
        )
        if epoch is None:
            return False
        self._lease_ends_s = asked_at_s + self._lease_ms / 1000
        self._disconnect()
        try:
            await self._roles.lead()
        except Exception:
            log.exception("takeover_failed", epoch=epoch)
            await self._call(self._elections.resign)
            return False
        self.role, self.epoch, self._is_cut_off, self._is_deposed = Role.LEADER, epoch, False, False
        self._note_leader(
            Leader(
                epoch=epoch,
                name=self._name,
                address=self.address,
                since_ms=self._clock.now_ms(),
                expires_in_ms=self._lease_ms,
                is_connected=True,
            )
        )
        self._has_role.set()
        log.info("leadership_taken", epoch=epoch, before=None if leader is None else leader.name)
        return True

    async def _connect(self, leader: Leader) -> bool:
        self._disconnect()
        if self.dial is None or self._secret is None:
            self._is_cut_off = True
            return False
        held: list[ToLeader] = []

        def lost(error: Exception | None) -> None:
            if held and self._connection is held[0]:
                log.warning("leader_link_lost", leader=leader.name, problem=str(error or "closed"))
                self._disconnect()
                self._note_link_lost(_now_s() - opened_at_s)
                self._is_cut_off = True
                self._wakeup.set()

        try:
            connection = await self.dial(leader, self._secret, self._roles.receive, lost)
        except (OSError, RotaError) as error:
            if not self._is_cut_off:
                log.warning(
                    "leader_unreachable", leader=leader.name, problem=reason_of(error) or NO_ANSWER
                )
            self._is_cut_off = True
            return False
        held.append(connection)
        opened_at_s = _now_s()
        self._connection, self._is_cut_off = connection, False
        self.role, self.epoch = Role.FOLLOWER, leader.epoch
        self._roles.follow(connection)
        self._has_role.set()
        log.info("leader_followed", leader=leader.name, epoch=leader.epoch)
        return True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self.role, self.epoch = Role.SEEKING, None
            connection.close()
            self._roles.lose_leader()

    async def _call(self, function: Callable[[], T]) -> T:
        if self._thread is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
