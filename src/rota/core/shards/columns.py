"""A value for each shard, as a list: how are many of them read and written at once?

Shards are named sorted, and are often a run without gaps. A run is a slice, which a list reads and
writes in one piece.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Place = slice | Sequence[int]


def place_of(shards: Sequence[int]) -> Place:
    first, last = shards[0], shards[-1]
    return slice(first, last + 1) if last - first == len(shards) - 1 else shards


def picked(column: list[T], place: Place) -> list[T]:
    if isinstance(place, slice):
        return column[place]
    return [column[shard] for shard in place]


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
    """Whether all are the same; a list knows that quickly if they are, or if the first is not."""
    return values[0] == value and values.count(value) == len(values)


def raised(values: list[int]) -> list[int]:
    if is_all(values, values[0]):
        return [values[0] + 1] * len(values)
    return [value + 1 for value in values]


def include(index: dict[str, list[int]], worker_id: str, shards: Sequence[int]) -> None:
    """Add shards to those of a worker, where a column is kept the other way round as well."""
    if shards:
        known = index.get(worker_id)
        index[worker_id] = sorted([*known, *shards]) if known else list(shards)


def exclude(index: dict[str, list[int]], worker_id: str, shards: Sequence[int]) -> None:
    """The same the other way: these, all of them the worker's, are its no more."""
    known = index.pop(worker_id)
    kept = len(known) - len(shards)
    if kept and known[kept:] == list(shards):  # as it is when the highest are taken from many
        index[worker_id] = known[:kept]
    elif kept:
        gone = set(shards)
        index[worker_id] = [one for one in known if one not in gone]
