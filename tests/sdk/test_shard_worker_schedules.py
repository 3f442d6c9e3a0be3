"""Whatever callbacks and the network do: one acts on a shard, and calls come in order."""

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from rota.sdk.shards.held import HeldShard
from tests.sdk.shard_world import LEASE_S, Shop, World, after, until
from tests.simulation.loop import VirtualLoop, end_all_tasks

SHARDS = 6
NAMES = "abc"
LONGEST_CALL_S = 20.0  # longer than a lease
TROUBLE_S = 120.0
LOOK_EVERY_S = 0.1

# Of one worker and shard: A, R and L begin a call, `)` ends it and `!` fails it. The last one may
# have been under way when the worker was stopped.
ORDER = re.compile(r"(A!|A\)R[)!]|A\)(R[)!])?L[)!])*(A|A\)|A\)R|A\)(R[)!])?L)?")


class Schedule:
    """Three workers under random trouble."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.world = World()
        self.calls: dict[tuple[int, str, int], str] = defaultdict(str)
        self.opened_so_far = 0
        self.is_calm = False
        self.is_kept = True
        self.shops = [self.opened(name) for name in NAMES]

    def opened(self, name: str) -> Shop:
        self.opened_so_far += 1
        shop = Shop(self.world, name, shards=SHARDS)
        for letter, field in (("A", "when_assigned"), ("R", "when_revoked"), ("L", "when_lost")):
            setattr(shop, field, self.callback(name, letter))
        return shop

    def callback(self, name: str, letter: str) -> Callable[[HeldShard], Awaitable[None]]:
        number = self.opened_so_far

        async def called(held: HeldShard) -> None:
            key = number, name, held.shard
            self.calls[key] += letter
            if not self.is_calm and self.dice.random() < 0.5:
                await after(self.dice.uniform(0, LONGEST_CALL_S))
            # What is revoked is ours until we say so, unless the lease is over meanwhile.
            self.is_kept &= letter != "R" or held.is_held or held._member.is_over
            if not self.is_calm and self.dice.random() < 0.2:
                self.calls[key] += "!"
                raise ConnectionError("no database")
            self.calls[key] += ")"

        return called

    async def make_trouble(self) -> None:
        """Cut workers off and let them come back; stop some, and begin them again."""
        loop = asyncio.get_running_loop()
        while loop.time() < TROUBLE_S:
            await after(self.dice.uniform(0, LEASE_S))
            shop = self.dice.choice(self.shops)
            match self.dice.randrange(4):
                case 0:
                    self.world.cut_off ^= {shop.worker_id}
                case 1:
                    shop.driver.stop()
                    await shop.running
                    self.shops[self.shops.index(shop)] = self.opened(shop.worker_id)
                case _:
                    self.world.cut_off.clear()
        self.world.cut_off.clear()
        self.is_calm = True

    async def watch(self) -> None:
        while True:
            for shop in self.shops:
                shop.seen[:] = {held for held in shop.seen if held.is_held}
            acting = [held.shard for shop in self.shops for held in shop.seen]
            assert len(acting) == len(set(acting)), acting
            await after(LOOK_EVERY_S)

    def is_shared(self) -> bool:
        return [len(shop.held) for shop in self.shops] == [SHARDS // len(NAMES)] * len(NAMES)


async def live_through(seed: int) -> None:
    schedule = Schedule(random.Random(seed))
    watching = asyncio.create_task(schedule.watch())
    await schedule.make_trouble()
    await until(schedule.is_shared, within_s=120)
    if watching.done():
        watching.result()
    assert schedule.is_kept
    for key, calls in schedule.calls.items():
        assert ORDER.fullmatch(calls), (key, calls)


@pytest.mark.parametrize("seed", range(8))
def test_one_acts_on_a_shard_and_calls_come_in_order(seed: int) -> None:
    random.seed(seed)  # for the pauses that workers make
    loop = VirtualLoop(random.Random(seed))
    try:
        with capture_logs():  # drawing every traceback takes longer than the test
            loop.run_until_complete(live_through(seed))
    finally:
        end_all_tasks(loop)
        loop.close()
