"""Draws a service on a terminal: its facts, a bar of its shards, its members.

A member has a colour and a letter. A shard that stays is filled with its owner's colour. A shard
that moves is hollow, with its owner's letter in lower case and the colour of its next owner. A
shard without an owner is a red dot.
"""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.render.output import STATE_STYLES, visible
from rota.cli.render.service_tables import (
    SETTLED,
    bar_lines,
    fence_reasons,
    legend,
    member_table,
    service_facts,
)
from rota.cli.render.shard_bar import NO_OWNER, Cell, cell_text, labels, number_width, shard_bar_of
from rota.messages.shards import ServiceView

# Neighbours differ well. Sixteen colours and 26 letters make 208 different pairs.
COLOURS = (75, 208, 113, 176, 220, 44, 210, 141, 154, 180, 205, 81, 78, 222, 250, 167)
RANGES_SHOWN = 4  # of a member's shards, before they are counted
LINES_BESIDE = 11  # of a screen: facts, headings and notes
ALARMING = {"unowned": "bold bright_red", "moving": "yellow", "beyond the count": "yellow"}
NUMBERS = ("has", "weight", "at most", "protocol")
GAP = 2  # between columns
MIDDLE_DOT = "·"


def is_coloured(console: Console) -> bool:
    """Whether the terminal has colours, and `NO_COLOR` is not set."""
    return console.color_system is not None and not console.no_color


def draw_service(
    service: ServiceView, *, width: int, is_coloured: bool, height: int | None = None
) -> Group:
    """Draw the service for a screen of this size; without a height, with all members."""
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in service_facts(service).pairs:
        if value is not None:
            style = ALARMING.get(name, "") if value else ""
            facts.add_row(Text(name, style="dim"), Text(visible(value), style=style))
    bar = (
        _coloured_bar(service, width)
        if is_coloured
        else [Text(line) for line in bar_lines(service, width=width)]
    )
    most = None if height is None else max(1, height - LINES_BESIDE - len(bar))
    reasons = [Text(visible(line), style="red") for line in fence_reasons(service.members)]
    blank = Text()
    return Group(
        facts,
        blank,
        *bar,
        blank,
        *_members(service, is_coloured=is_coloured, most=most),
        *reasons,
    )


def _coloured_bar(service: ServiceView, width: int) -> list[Text]:
    names = [name[-1] for name in labels(len(service.members))]
    bar = shard_bar_of(service, width=width)
    indent = number_width(service.shard_count)
    lines = []
    for first, cells in bar.lines():
        line = Text(f"{first:>{indent}} ", style="dim", no_wrap=True)
        for cell, alike in groupby(cells):
            letter = _centred(cell_text(cell, names), bar.cell_width)
            line.append(letter * len(list(alike)), style=_style(cell))
        lines.append(line)
    return [*lines, *(Text(line, style="dim") for line in legend(bar, is_coloured=True))]


def _centred(letter: str, width: int) -> str:
    return (MIDDLE_DOT if letter == NO_OWNER else letter).center(width)


def _style(cell: Cell) -> str:
    if cell.owner is None:
        return "not dim bold bright_red"
    if not cell.is_moving:
        return f"not dim black on {_colour(cell.owner)}"
    return "not dim bold" if cell.target is None else f"not dim bold {_colour(cell.target)}"


def _colour(place: int) -> str:
    return f"color({COLOURS[place % len(COLOURS)]})"


def _members(service: ServiceView, *, is_coloured: bool, most: int | None) -> list[RenderableType]:
    columns, rows, empty = member_table(service, most_ranges=RANGES_SHOWN)
    if not rows:
        return [Text(empty)]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(
            column,
            no_wrap=column in ("", "worker"),
            justify="right" if column in NUMBERS else "left",
        )
    shown = _shown(rows, most)
    for place in shown:
        label, *cells = map(visible, rows[place])
        mark = (
            Text(f" {label[-1]} ", style=_style(Cell(place, place))) if is_coloured else Text(label)
        )
        table.add_row(mark, *(Text(cell, style=_cell_style(cell)) for cell in cells))
    others = len(rows) - len(shown)
    return [table, *([Text(f"and {others} other members", style="dim")] if others else [])]


def _shown(rows: Sequence[Sequence[object]], most: int | None) -> list[int]:
    """The indexes of the rows that fit; members with moving shards come first."""
    places = list(range(len(rows)))
    if most is None or len(rows) <= most:
        return places
    busy = [place for place in places if SETTLED not in rows[place]]
    calm = [place for place in places if SETTLED in rows[place]]
    return sorted([*busy, *calm][:most])


def _cell_style(cell: str) -> str:
    if cell.startswith(("gives up", "awaits", "draining")):
        return "yellow"
    return {SETTLED: "green", "fenced": "red", "drained": "dim"}.get(
        cell, STATE_STYLES.get(cell, "")
    )
