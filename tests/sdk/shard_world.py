"""A coordinator of shards in memory, in virtual time, and workers that speak with it.

It decides by the real rules. What workers and coordinator say to each other takes a moment, and can
be made to get lost.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from rota.core.context import Context
from rota.core.shards.commands import LeaveMember, MemberCommand, RegisterMember, SweepServices
from rota.core.shards.members import PROTOCOL, Assignment, ShardPolicy
from rota.core.shards.reducer import assignment, reduce
from rota.core.shards.service import Service
from rota.errors import RotaError
from rota.messages.shards import full_assignment
from rota.sdk.shards.callbacks import Callback
from rota.sdk.shards.driver import ShardDriver
from rota.sdk.shards.held import HeldShard
from rota.sdk.shards.slots import UserCallbacks
from rota.sdk.shards.transport import AssignmentListener
from rota.sdk.worker.stopping import StopReason
from tests.core.snapshots import context_at
from tests.simulation.loop import VirtualLoop, end_all_tasks

SERVICE = "feed"
DELAY_S = 0.01
LEASE_S = 15.0


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop whose time passes at once."""

    def run() -> None:
        loop = VirtualLoop(random.Random(1))
        try:
            loop.run_until_complete(test())
        finally:
            end_all_tasks(loop)
            loop.close()

    run.__name__ = test.__name__
    return run


async def after(seconds: float) -> None:
    """Let so much virtual time pass."""
    await asyncio.sleep(seconds)


async def until(is_so: Callable[[], bool], *, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - time is virtual, so looking often costs nothing
            await asyncio.sleep(DELAY_S / 2)


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


class World:
    """The coordinator, and the way to it."""

    def __init__(self, policy: ShardPolicy | None = None) -> None:
        self.service = Service(name=SERVICE)
        self.policy = policy or ShardPolicy()
        self.said: list[MemberCommand] = []  # all that arrived
        self.cut_off: set[str] = set()  # ids of workers that nothing reaches, nor leaves
        self.refusal: RotaError | None = None
        self.diary: list[str] = []  # what callbacks note, in order
        self._lines: dict[str, WorldLine] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(self.policy.sweep_ms / 1000, self._sweep)

    def owner_of(self, shard: int) -> str | None:
        return self.service.owners[shard]

    def open_transport(self, listener: AssignmentListener) -> "WorldLine":
        return WorldLine(self, listener)

    def arrive(self, message: MemberCommand, line: "WorldLine") -> None:
        if message.worker_id in self.cut_off:
            return
        if self.refusal is not None:
            line.listener.note_error(self.refusal)
            return
        self.said.append(message)
        if not isinstance(message, LeaveMember):
            self._lines[message.worker_id] = line
        _, answer = reduce(self.service, message, self._context())
        if answer is not None:
            line.bring(answer)
        self._push(but=message.worker_id)

    def _sweep(self) -> None:
        reduce(self.service, SweepServices(), self._context())
        self._push()
        self._loop.call_later(self.policy.sweep_ms / 10_000, self._sweep)

    def _context(self) -> Context:
        return context_at(now_ms(), shards=self.policy)

    def _push(self, but: str | None = None) -> None:
        for worker_id in self.service.take_changed():
            if worker_id != but and worker_id in self._lines:
                self._lines[worker_id].bring(assignment(self.service, worker_id, self.policy))


class WorldLine:
    def __init__(self, world: World, listener: AssignmentListener) -> None:
        self.listener = listener
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def send(self, message: MemberCommand) -> None:
        self._loop.call_later(DELAY_S, self._world.arrive, message, self)

    def bring(self, told: Assignment) -> None:
        self._loop.call_later(DELAY_S, self._hear, told)

    async def close(self) -> None:
        self._is_closed = True

    def _hear(self, told: Assignment) -> None:
        if not self._is_closed and told.worker_id not in self._world.cut_off:
            self.listener.receive(full_assignment(told))


class Shop:
    """A worker whose callbacks write into the world's diary, and do what a test says."""

    def __init__(
        self, world: World, worker_id: str, *, shards: int = 4, drain_s: float = 30.0
    ) -> None:
        self.world = world
        self.worker_id = worker_id
        self.seen: list[HeldShard] = []
        self.when_assigned: Callable[[HeldShard], Awaitable[None]] | None = None
        self.when_revoked: Callable[[HeldShard], Awaitable[None]] | None = None
        self.when_lost: Callable[[HeldShard], Awaitable[None]] | None = None
        functions = UserCallbacks(
            self._callback("assigned", lambda: self.when_assigned),
            self._callback("revoked", lambda: self.when_revoked),
            self._callback("lost", lambda: self.when_lost),
        )
        self.driver = ShardDriver(
            RegisterMember(
                service=SERVICE, worker_id=worker_id, shard_count=shards, protocol=PROTOCOL
            ),
            functions,
            open_transport=world.open_transport,
            connect=no_client,
            callback_loop=asyncio.get_running_loop(),
            now_ms=now_ms,
            drain_s=drain_s,
        )
        self.running: asyncio.Task[StopReason] = asyncio.create_task(self.driver.run())

    @property
    def held(self) -> list[int]:
        """The shards it works on."""
        membership = self.driver.membership
        return [] if membership is None else list(membership.slots.active())

    def _callback(
        self, name: str, action: Callable[[], Callable[[HeldShard], Awaitable[None]] | None]
    ) -> Callback:
        async def called(held: HeldShard) -> None:
            self.seen.append(held)
            self.world.diary.append(f"{self.worker_id} {name} {held.shard}")
            then = action()
            if then is not None:
                await then(held)
                self.world.diary.append(f"{self.worker_id} {name} {held.shard} done")

        return called


def no_client() -> NoReturn:
    raise AssertionError("nobody asked for a checkpoint here")
