"""A consumer of a partitioned log, in as many copies as you like: they share its partitions.

    rota up                                                    # in one terminal
    ROTA_URL=http://127.0.0.1:7070 python examples/sharded_consumer.py     # in two others

Stop one copy with Ctrl-C, or kill it: the other takes its partitions over where it left off, and no
record is counted twice or left out. With ROTA_ZMQ=tcp://127.0.0.1:5555 they speak ZeroMQ.
"""

import asyncio
from typing import TypedDict

from rota import HeldShard, ShardWorker, StaleEpoch, Unavailable

PARTITIONS = 8
BATCH = 10
PAUSE_S = 0.2


class Progress(TypedDict):
    offset: int  # of the next record
    total: int  # of all records before


def record_at(partition: int, offset: int) -> int:
    """The log: made up, but always the same."""
    return (partition * 31 + offset * 17) % 100


class Consumer:
    def __init__(self) -> None:
        self.consuming: dict[int, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def begin(self, shard: HeldShard) -> None:
        """Take a partition up where its last owner left it."""
        # No earlier owner can save any more: since we own the shard, its old epochs are refused.
        progress: Progress = await shard.acheckpoint() or Progress(offset=0, total=0)
        stop = asyncio.Event()
        task = asyncio.create_task(self.consume(shard, progress, stop))
        self.consuming[shard.shard] = stop, task

    async def end(self, shard: HeldShard) -> None:
        """Let go of a partition. Its next owner begins when this has returned, so we wait."""
        stop, task = self.consuming.pop(shard.shard)
        stop.set()
        await task

    async def consume(self, shard: HeldShard, progress: Progress, stop: asyncio.Event) -> None:
        # Asked before each batch: a process that was put to sleep wakes up with its lease over.
        while shard.is_held and not stop.is_set():
            first, last = progress["offset"], progress["offset"] + BATCH
            batch = [record_at(shard.shard, offset) for offset in range(first, last)]
            # The offset and what follows from it are saved as one, so they never contradict each
            # other; and under our epoch, so they never undo what a later owner has saved.
            counted = Progress(offset=last, total=progress["total"] + sum(batch))
            try:
                await shard.asave(counted)
            except StaleEpoch:
                return  # the batch is the next owner's to count
            except Unavailable:
                continue  # perhaps it was saved, perhaps not: we count the same batch once more
            progress = counted
            print(f"partition {shard.shard}: {last} records, total {counted['total']}", flush=True)
            await asyncio.sleep(PAUSE_S)


def main() -> None:
    consumer = Consumer()
    worker = ShardWorker(
        "orders",
        shards=PARTITIONS,
        on_assigned=consumer.begin,
        on_revoked=consumer.end,
        on_lost=consumer.end,  # too late for good manners, but we have to stop all the same
    )
    print(f"consuming as {worker.worker_id}", flush=True)
    worker.run()


if __name__ == "__main__":
    main()
