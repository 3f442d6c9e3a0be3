"""Groups shard rows that change alike into ranges, so that each range is one statement.

A rebalance among a thousand members may change a hundred thousand shards. Most of these shards
have the same state as their neighbours. A range is a run of adjacent shards with the same state.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from rota.core.shards.ranges import Shards, place_of
from rota.core.shards.service import Service
from rota.store.shards import ShardRange


def runs_of(service: Service, changed: Iterable[Shards]) -> list[ShardRange]:
    """Return the current state of the changed shards as ranges, in order, each shard once."""
    epochs, owners, targets = service.epochs, service.owners, service.targets
    asked_in = service.asked_in()
    runs: list[ShardRange] = []
    for start, end in _stretches(changed, len(owners)):
        columns = epochs[start:end], owners[start:end], targets[start:end], asked_in[start:end]
        first = start
        for standing, alike in groupby(zip(*columns, strict=True)):
            next_first = first + len(list(alike))
            runs.append(ShardRange(first, next_first - 1, *standing))
            first = next_first
    return runs


def _stretches(named: Iterable[Shards], count: int) -> Iterator[tuple[int, int]]:
    """Yield the named shards as intervals without gaps (start, end), each shard once."""
    marks = bytearray(count)
    for shards in named:
        place = place_of(shards)
        if isinstance(place, slice):
            marks[place] = b"\1" * len(shards)
        else:
            for shard in place:
                marks[shard] = 1
    start = marks.find(1)
    while start >= 0:
        end = marks.find(0, start)
        if end < 0:
            end = count
        yield start, end
        start = marks.find(1, end)
