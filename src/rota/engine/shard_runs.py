"""Which rows of shards are to be written, and what do they have in common?

A rebalance among a thousand members may change a hundred thousand shards, but most of them stand as
the shards beside them do. So what has changed is found as runs: shards in a row that are alike.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from rota.core.shards.columns import Shards, place_of
from rota.core.shards.service import Service
from rota.store.shards import ShardRun


def runs_of(service: Service, changed: Iterable[Shards]) -> list[ShardRun]:
    """The changed shards as they stand now, in their order, each once."""
    epochs, owners, targets = service.epochs, service.owners, service.targets
    asked_in = service.asked_in()
    runs: list[ShardRun] = []
    for start, end in _stretches(changed, len(owners)):
        columns = epochs[start:end], owners[start:end], targets[start:end], asked_in[start:end]
        first = start
        for standing, alike in groupby(zip(*columns, strict=True)):
            next_first = first + len(list(alike))
            runs.append(ShardRun(first, next_first - 1, *standing))
            first = next_first
    return runs


def _stretches(named: Iterable[Shards], count: int) -> Iterator[tuple[int, int]]:
    """All shards that are named, however often, as stretches without gaps: from, and up to."""
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
