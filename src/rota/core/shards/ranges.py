"""Columns with one value per shard, read and written by ranges.

Shards are sorted, and are often a range without gaps. A range is a slice, which a list reads and
writes in one piece. Shards that move together stay one tuple, so a hundred thousand of them move
for little more than the writing of the columns.
"""

from typing import TypeVar

T = TypeVar("T")
Shards = tuple[int, ...]  # sorted
Place = slice | Shards


def place_of(shards: Shards) -> Place:
    first, last = shards[0], shards[-1]
    return slice(first, last + 1) if last - first == len(shards) - 1 else shards


def picked(column: list[T], place: Place) -> list[T]:
    if isinstance(place, slice):
        return column[place]
    return list(map(column.__getitem__, place))


def put(column: list[T], place: Place, values: list[T]) -> None:
    if isinstance(place, slice):
        column[place] = values
    else:
        for shard, value in zip(place, values, strict=True):
            column[shard] = value


def fill(column: list[T], place: Place, value: T, *, times: int) -> None:
    if isinstance(place, slice):
        column[place] = [value] * times
    else:
        for shard in place:
            column[shard] = value


def is_all(values: list[T], value: T) -> bool:
    """Whether all values are this one; quick if they are, or if the first is not."""
    return values[0] == value and values.count(value) == len(values)


def raised(values: list[int]) -> list[int]:
    if is_all(values, values[0]):
        return [values[0] + 1] * len(values)
    return [value + 1 for value in values]


def by_worker(column: list[str | None]) -> dict[str, Shards]:
    """The shards of each worker."""
    index: dict[str, list[int]] = {}
    for shard, worker_id in enumerate(column):
        if worker_id is not None:
            index.setdefault(worker_id, []).append(shard)
    return {worker_id: tuple(shards) for worker_id, shards in index.items()}


def include(index: dict[str, Shards], worker_id: str, shards: Shards) -> None:
    """Add shards to those of a worker."""
    if shards:
        known = index.get(worker_id)
        index[worker_id] = tuple(sorted(known + shards)) if known else shards


def exclude(index: dict[str, Shards], worker_id: str, shards: Shards) -> None:
    """Remove shards from those of a worker."""
    left = without(index.pop(worker_id), shards)
    if left:
        index[worker_id] = left


def without(shards: Shards, gone: Shards) -> Shards:
    """The shards that are not among `gone`."""
    kept = len(shards) - len(gone)
    if kept >= 0 and shards[kept:] == gone:  # all, or the highest, are taken
        return shards[:kept]
    taken = set(gone)
    return tuple([shard for shard in shards if shard not in taken])
