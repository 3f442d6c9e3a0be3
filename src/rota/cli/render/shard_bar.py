"""The shards of a service as a bar of any width.

A bar has a cell for each shard, in their order, or for several neighbours when there are too many
for a few lines. A cell shows the owner of its shards. A shard without an owner or one that is about
to move decides the look of its cell, so that it is seen among a thousand others.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from string import ascii_uppercase
from typing import NamedTuple

from rota.messages.shards import MemberView, ServiceView

MAX_LINES = 6  # of a bar; with more shards, more of them share a cell
ROOMY_WIDTH = 3  # of a cell, if all cells then fit into one line
ROUND_STEPS = (10, 5)  # lines begin with round numbers, where that costs little width
MIN_STEPS = 3  # in a line
NO_OWNER = "."


class Cell(NamedTuple):
    """Members by their index in the list; None: no member."""

    owner: int | None
    target: int | None

    @property
    def is_moving(self) -> bool:
        return self.owner is not None and self.owner != self.target


class ShardBar(NamedTuple):
    cells: Sequence[Cell]
    shards_per_cell: int
    cells_per_line: int
    cell_width: int

    def lines(self) -> Iterator[tuple[int, Sequence[Cell]]]:
        """The cells of each line, and the first shard in it."""
        for start in range(0, len(self.cells), self.cells_per_line):
            yield start * self.shards_per_cell, self.cells[start : start + self.cells_per_line]


def shard_bar_of(service: ServiceView, *, width: int, label_width: int = 1) -> ShardBar:
    """Build the bar of a service for lines of this width, each with a number before it."""
    shard_count = service.shard_count
    room = max(label_width, width - number_width(shard_count) - 1)
    cell_width = label_width if label_width == 1 else label_width + 1
    if shard_count * ROOMY_WIDTH <= room:
        cell_width = max(cell_width, ROOMY_WIDTH)
    cells_per_line = _rounded(max(1, room // cell_width), shard_count)
    per_cell = next(
        size for size in _round_sizes() if shard_count <= size * cells_per_line * MAX_LINES
    )
    owners = _places(service, [member.shards for member in service.members])
    targets = _places(service, [member.target for member in service.members])
    cells = [
        _cell(owners[start : start + per_cell], targets[start : start + per_cell])
        for start in range(0, shard_count, per_cell)
    ]
    return ShardBar(cells, per_cell, cells_per_line, cell_width)


def number_width(shard_count: int) -> int:
    """Width of the numbers before the lines of a bar."""
    return len(str(max(0, shard_count - 1)))


def labels(members: int) -> list[str]:
    """Letters for each member, as many as are needed to make them unique."""
    length = 1
    while len(ascii_uppercase) ** length < members:
        length += 1
    return [_label(place, length) for place in range(members)]


def cell_text(cell: Cell, names: Sequence[str]) -> str:
    """A cell as letters, in lower case when a shard moves."""
    if cell.owner is None:
        return NO_OWNER
    name = names[cell.owner]
    return name.lower() if cell.is_moving else name


def ranges(shards: Sequence[int], *, most: int | None = None) -> str:
    """Sorted shards as ranges, 0-3, 7; beyond `most` ranges the shards are counted."""
    parts: list[tuple[int, int]] = []
    for shard in shards:
        if parts and parts[-1][1] == shard - 1:
            parts[-1] = parts[-1][0], shard
        else:
            parts.append((shard, shard))
    parts_text = [
        f"{first}" if first == last else f"{first}-{last}" for first, last in parts[:most]
    ]
    if len(parts_text) < len(parts):
        more = sum(last - first + 1 for first, last in parts[len(parts_text) :])
        parts_text.append(f"and {more} more")
    return ", ".join(parts_text) or "-"


def revoked_count(member: MemberView) -> int:
    """How many of its shards a member has to give up."""
    return len(set(member.shards).difference(member.target))


def pending_count(member: MemberView) -> int:
    """How many shards a member is to get."""
    return len(set(member.target).difference(member.shards))


def surplus_shards(service: ServiceView) -> list[int]:
    """Owned shards at and above the shard count, after it was reduced."""
    owned = (shard for member in service.members for shard in member.shards)
    return sorted(shard for shard in owned if shard >= service.shard_count)


def _rounded(cells_per_line: int, shard_count: int) -> int:
    if shard_count > cells_per_line:
        for step in ROUND_STEPS:
            if cells_per_line >= step * MIN_STEPS:
                return cells_per_line - cells_per_line % step
    return cells_per_line


def _places(service: ServiceView, by_member: Sequence[Sequence[int]]) -> list[int | None]:
    places: list[int | None] = [None] * service.shard_count
    for place, shards in enumerate(by_member):
        for shard in shards:
            if shard < service.shard_count:
                places[shard] = place
    return places


def _cell(owners: Sequence[int | None], targets: Sequence[int | None]) -> Cell:
    """The cell of neighbouring shards: one without an owner, one that moves, or the majority."""
    if None in owners:
        return Cell(None, targets[owners.index(None)])
    for owner, target in zip(owners, targets, strict=True):
        if owner != target:
            return Cell(owner, target)
    most_common = Counter(owners).most_common(1)[0][0]
    return Cell(most_common, most_common)


def _label(place: int, length: int) -> str:
    letters = ""
    for _ in range(length):
        place, letter = divmod(place, len(ascii_uppercase))
        letters = ascii_uppercase[letter] + letters
    return letters


def _round_sizes() -> Iterator[int]:
    """Round numbers: 1, 2, 5, 10, 20, 50, …"""
    return (step * 10**power for power in count() for step in (1, 2, 5))
