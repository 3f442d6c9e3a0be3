"""Draws the overview on a terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.render.output import STATE_STYLES, visible
from rota.cli.render.overview import HEADINGS, TopView, shares, summary, tables

LINES_PER_TABLE = 2  # besides its rows: a blank line and the heading
STYLES = STATE_STYLES | {"stuck": "bold bright_red"}
MIN_WIDTH = 12  # of a column whose values are as long
COLUMN_GAP = 2
FEW_ROWS = 3  # that a table has at least, if it is shown
BESIDE = 150  # from this width on, two tables are drawn beside each other
GAP = 3  # between them
# Columns that are left out where a table is wider than the screen.
SPARED = {
    "queue": {"later", "in/s", "failed/s"},
    "worker": {"state", "p50", "done", "failed"},
    "stuck": {"queue", "oldest"},
    "needs you": {"kind", "workflow"},
    "run": {"state", "since"},
}
# What is cut first where a line is too long: it says nothing without the names beside it.
CUT_FIRST = {"why", "waiting for", "needs you"}
RIGHT_ALIGNED = {
    *("queued", "running", "later", "oldest", "in/s", "done/s", "failed/s"),
    *("tasks", "p50", "p95", "done", "failed", "heard", "since", "due"),
}
LEFT_HALF = {"waits", "waiting", "runs"}  # on a wide screen; the others are in the right half

Rows = list[tuple[str, ...]]


def draw_top(
    view: TopView, *, width: int, height: int, problem: str | None = None
) -> RenderableType:
    """Draw the overview for a screen of this size; `problem` says why it is not newer."""
    counts = _counts(view)
    head: list[RenderableType] = [_first_line(view, width, problem), counts]
    room = height - 1 - counts.row_count
    found = tables(view)
    left = {name: rows for name, rows in found.items() if name in LEFT_HALF}
    right = {name: rows for name, rows in found.items() if name not in LEFT_HALF}
    if width < BESIDE or not left or not right:
        return Group(*head, *_stack(found, width, room))
    grid = Table.grid(padding=(0, GAP, 0, 0))
    half = (width - GAP) // 2
    grid.add_column(width=half)
    grid.add_column(width=width - GAP - half)
    grid.add_row(Group(*_stack(left, half, room)), Group(*_stack(right, width - GAP - half, room)))
    return Group(*head, grid)


def _stack(found: Mapping[str, Rows], width: int, room: int) -> list[RenderableType]:
    """Draw tables below each other, within so many lines."""
    shown = _fitting(found, room)
    left = max(len(shown), room - LINES_PER_TABLE * len(shown))
    most = shares([len(rows) for _, rows in shown], left)
    parts: list[RenderableType] = []
    for (name, rows), share in zip(shown, most, strict=True):
        # The line that counts the rest takes the place of a row.
        count = share if share == len(rows) or share < 2 else share - 1
        parts += [Text(), _table(HEADINGS[name], rows[:count], width)]
        parts += [_more(len(rows) - count)] if count < share else []
    return parts


def _fitting(found: Mapping[str, Rows], room: int) -> list[tuple[str, Rows]]:
    """The first tables, as many as have a few rows each; the last are the least urgent."""
    shown: list[tuple[str, Rows]] = []
    for name, rows in found.items():
        room -= LINES_PER_TABLE + min(FEW_ROWS, len(rows))
        if shown and room < 0:
            break
        shown.append((name, rows))
    return shown


def _first_line(view: TopView, width: int, problem: str | None) -> Text:
    line = Text(f"rota {view.overview.version}", style="bold", no_wrap=True, overflow="ellipsis")
    if view.overview.stuck:
        tasks = "task" if view.overview.stuck == 1 else "tasks"
        line.append(f"   {view.overview.stuck:,} {tasks} cannot start", style="bold bright_red")
    if problem is not None:
        line.append(f"   {visible(problem)}", style="bold yellow")
    line.truncate(width)
    return line


def _counts(view: TopView) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for noun, text in summary(view):
        style = "bold yellow" if noun == "needs you" else "dim"
        table.add_row(Text(noun, style=style), _coloured(text))
    return table


def _coloured(text: str) -> Text:
    line = Text(visible(text), no_wrap=True, overflow="ellipsis")
    for state, style in STYLES.items():
        line.highlight_regex(rf"[\d,]+ {state}\b", style)
    return line


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold underline"
    )
    longest_of = [max(len(visible(row[place])) for row in rows) for place in range(len(headings))]
    natural = sum(
        max(len(heading), longest) + COLUMN_GAP
        for heading, longest in zip(headings, longest_of, strict=True)
    )
    spared = SPARED.get(headings[0], set()) if natural - COLUMN_GAP > width else set()
    places = [place for place, heading in enumerate(headings) if heading not in spared]
    for place in places:
        heading, longest = headings[place], longest_of[place]
        table.add_column(
            "" if heading == "stuck" else heading,
            justify="right" if heading in RIGHT_ALIGNED else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=len(heading) if heading in CUT_FIRST else min(longest, MIN_WIDTH),
        )
    for row in rows:
        cells = (row[place] for place in places)
        table.add_row(*(Text(visible(cell), style=STYLES.get(cell, "")) for cell in cells))
    return table


def _more(hidden: int) -> Text:
    return Text(f"and {hidden:,} more", style="dim")
