"""A coordinator among those that share its store: its role, and how that changes.

On a store that is not shared, the coordinator leads from its start to its stop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import NamedTuple, Protocol

import structlog

from rota.core.replicas import BEAT_MS, BeatReplica, Leader, Role
from rota.core.replies import Done
from rota.engine.clock import Clock, StoreClock
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.writer import Writer
from rota.engine.replicas.follower import FollowerWriter
from rota.engine.replicas.held import HeldCommands
from rota.engine.replicas.leader import Enqueue, FollowerSessions
from rota.engine.replicas.leadership import Leadership, ToLeader
from rota.engine.replicas.link.frames import LeaderFrame
from rota.engine.replicas.presence import Presence
from rota.errors import NotLeader, RotaError
from rota.settings import Settings
from rota.store.database import Database

log = structlog.get_logger("rota.replicas")

GOODBYE_S = 1.0  # how long a stop waits until the others know of it


class Engine(Protocol):
    """The parts of a coordinator that follow its role."""

    @property
    def enqueue(self) -> Enqueue: ...

    def execute(self, command: BeatReplica) -> Awaitable[Done]: ...

    async def lead(self) -> None: ...

    async def stop_leading(self) -> list[QueuedCommand]: ...

    def use_writer(self, writer: Writer | None) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...

    def deliver_of_leader(self, delivery: Delivery) -> None: ...

    def awaits_ends(self) -> bool: ...

    def resolve(self, entry: QueuedCommand, outcome: object) -> None: ...

    async def catch_up(self) -> None: ...


class ReplicaFigures(NamedTuple):
    """What is measured of a coordinator among those that share its store."""

    is_leader: bool
    epoch: int | None  # of the leader that it last knew; None: of none, or the store is not shared
    changes: int  # of the leader, since the start
    followers: int  # that are connected to it
    held_commands: int  # that wait for a leader


class ReplicaMembership:
    def __init__(
        self, database: Database, settings: Settings, engine: Engine, *, clock: Clock, inline: bool
    ) -> None:
        self._engine = engine
        self._clock = clock
        self.presence = Presence(settings, clock)
        self.held = HeldCommands(engine.deliver)
        self.followers = FollowerSessions(engine.enqueue)
        self._following: FollowerWriter | None = None
        self._beating: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self.leadership: Leadership | None = None
        if database.elections is not None:
            assert isinstance(clock, StoreClock)
            self.leadership = Leadership(
                database.elections,
                self,
                clock,
                name=self.name,
                lease_ms=settings.leader_lease_ms,
                is_inline=inline,
            )

    @property
    def name(self) -> str:
        return self.presence.name

    @property
    def started_at_ms(self) -> int:
        return self.presence.started_at_ms

    @property
    def role(self) -> Role:
        return Role.LEADER if self.leadership is None else self.leadership.role

    @property
    def leader(self) -> Leader | None:
        """The leader, as this coordinator last knew it; None: the store is not shared."""
        return None if self.leadership is None else self.leadership.leader

    @property
    def has_lapsed(self) -> bool:
        """Whether it leads by a lease that it could not extend in time."""
        return self.leadership is not None and self.leadership.has_lapsed

    @property
    def figures(self) -> ReplicaFigures:
        leadership, leader = self.leadership, self.leader
        return ReplicaFigures(
            is_leader=self.role is Role.LEADER,
            epoch=None if leader is None else leader.epoch,
            changes=0 if leadership is None else leadership.changes,
            followers=len(self.followers),
            held_commands=len(self.held),
        )

    async def start(self) -> None:
        if self.leadership is None:
            await self._engine.lead()
            return
        self.held.begin()
        await self.leadership.start()
        self.presence.started_at_ms = self._clock.now_ms()
        self.start_beating()

    async def stop(self) -> None:
        """Execute or forward all accepted commands, then leave."""
        if self.leadership is None:
            await self._engine.stop_leading()
            self._engine.use_writer(None)
            return
        await self.leadership.stop()
        await self._say_goodbye()
        if self._following is not None:
            await self._following.stop()
        self.followers.resign()
        await self._engine.stop_leading()
        self._engine.use_writer(None)
        await self.followers.wait_until_resigned()
        await self.leadership.resign()
        await asyncio.sleep(0)  # the replies of the last batch are sent in this turn of the loop
        self.followers.close()
        self.held.refuse_all()

    async def tick(self) -> None:
        """Check the leadership and send a heartbeat now. Tests that turn the clock call this."""
        if self.leadership is not None:
            await self.leadership.step()
            await self.beat()

    def delivered(self, delivery: Delivery) -> Delivery:
        """Tell the followers of a commit; return what the callers of this coordinator get.

        Commands that were refused because another coordinator leads are not answered: they are held
        for the new leader. Those of a follower are returned to it, because it sends them again: a
        command that both sent could undo a later one.
        """
        self.followers.tell(delivery, now_ms=self._clock.now_ms())
        refused = [entry for entry, outcome in delivery.answers if isinstance(outcome, NotLeader)]
        if refused:
            self._hold_refused([entry for entry in refused if not entry.is_of_follower])
            delivery.answers = [
                (entry, outcome)
                for entry, outcome in delivery.answers
                if entry.is_of_follower or not isinstance(outcome, NotLeader)
            ]
        return delivery

    def _hold_refused(self, entries: list[QueuedCommand]) -> None:
        assert self.leadership is not None
        # Not at once: the followers get their commands back before their links are closed.
        asyncio.get_running_loop().call_soon(self.leadership.note_deposed)
        if not self.held.is_holding:
            self.held.begin()
        for entry in entries:
            self.held.add(entry)

    # --- the roles --------------------------------------------------------------------------------

    async def lead(self) -> None:
        await self._engine.lead()
        self._catch_up()

    async def step_down(self) -> None:
        self.held.begin()
        self._engine.use_writer(None)
        self.followers.close()
        for entry in await self._engine.stop_leading():
            self.held.add(entry)

    def follow(self, connection: ToLeader) -> None:
        self._following = writer = FollowerWriter(
            self._engine.deliver_of_leader,
            awaits_ends=self._engine.awaits_ends,
            resolve=self._engine.resolve,
            hold=self.held.add,
            on_resigning=self._note_resigning,
        )
        writer.connect(connection)
        self._engine.use_writer(writer)
        self._catch_up()

    def receive(self, frame: LeaderFrame) -> None:
        if self._following is not None:
            self._following.receive(frame)

    def lose_leader(self) -> None:
        self._engine.use_writer(None)
        following, self._following = self._following, None
        self.held.begin()
        for entry in () if following is None else following.lose():
            self.held.add(entry, was_sent=True)

    def _note_resigning(self) -> None:
        """The leader executes nothing more: hold new commands for its successor."""
        assert self.leadership is not None
        self.held.begin()
        self._engine.use_writer(None)
        self.leadership.look_soon()

    def _catch_up(self) -> None:
        self._catching_up = asyncio.create_task(self._try_to_catch_up())

    async def _try_to_catch_up(self) -> None:
        try:
            await self._engine.catch_up()
        except RotaError as error:
            # The waiting callers read the store again when their waits end.
            log.warning("catch_up_failed", problem=error.detail)

    # --- heartbeats -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(RotaError):
                await self.beat()
            await asyncio.sleep(BEAT_MS / 1000)

    async def beat(self) -> None:
        """Send a heartbeat now."""
        await self._engine.execute(self.presence.beat(is_leader=self.role is Role.LEADER))

    def start_beating(self) -> None:
        self._beating = asyncio.create_task(self._beat())

    async def _say_goodbye(self) -> None:
        for task in (self._beating, self._catching_up):
            if task is not None:
                task.cancel()
        with contextlib.suppress(RotaError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._engine.execute(self.presence.goodbye)
