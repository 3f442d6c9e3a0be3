"""Draws the overview on a terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.render.output import STATE_STYLES, visible
from rota.cli.render.overview import (
    HEADINGS,
    TopView,
    queue_rows,
    shares,
    summary,
    waiting_rows,
    worker_rows,
)

LINES_PER_TABLE = 5  # besides its rows: blank lines, heading, rule, "and N more"
LINES_BESIDE = 1  # the first line
STYLES = STATE_STYLES | {"stuck": "bold bright_red"}
MIN_WIDTH = 12  # of a column whose values are as long
NARROW = 90  # below this width the `SPARED` columns are left out
SPARED = {"queue": {"later", "in/s", "failed/s"}, "worker": {"state", "p50", "done", "failed"}}
LEFT_ALIGNED = {"queue", "worker", "health", "state", "task", "why", "stuck"}


def draw_top(
    view: TopView, *, width: int, height: int, problem: str | None = None
) -> RenderableType:
    """Draw the overview for a screen of this size; `problem` says why it is not newer."""
    counts = _counts(view)
    tables = {
        "waiting": waiting_rows(view),
        "queues": queue_rows(view),
        "workers": worker_rows(view),
    }
    shown = [(name, rows) for name, rows in tables.items() if rows]
    room = height - LINES_BESIDE - counts.row_count
    # A table needs at least one row; the last tables are the least urgent.
    shown = shown[: max(1, room // (LINES_PER_TABLE + 1))]
    left = max(len(shown), room - LINES_PER_TABLE * len(shown))
    most = shares([len(rows) for _, rows in shown], left)
    parts: list[RenderableType] = [_first_line(view, width, problem), counts]
    for (name, rows), share in zip(shown, most, strict=True):
        parts.append(_table(HEADINGS[name], rows[:share], is_narrow=width < NARROW))
        parts += [_more(len(rows) - share)] if share < len(rows) else []
    return Group(*parts)


def _first_line(view: TopView, width: int, problem: str | None) -> Text:
    line = Text(f"rota {view.overview.version}", style="bold", no_wrap=True, overflow="ellipsis")
    if view.overview.stuck:
        line.append(f"   stuck: {view.overview.stuck:,}", style="bold bright_red")
    if problem is not None:
        line.append(f"   {visible(problem)}", style="bold yellow")
    line.truncate(width)
    return line


def _counts(view: TopView) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for noun, text in summary(view):
        table.add_row(Text(noun, style="dim"), _coloured(text))
    return table


def _coloured(text: str) -> Text:
    line = Text(visible(text))
    for state, style in STYLES.items():
        line.highlight_regex(rf"[\d,]+ {state}\b", style)
    return line


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, is_narrow: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    spared = SPARED.get(headings[0], {"queue", "oldest"}) if is_narrow else set()
    places = [place for place, heading in enumerate(headings) if heading not in spared]
    for place in places:
        heading = headings[place]
        longest = max(len(visible(row[place])) for row in rows)
        table.add_column(
            "" if heading == "stuck" else heading,
            justify="left" if heading in LEFT_ALIGNED else "right",
            no_wrap=True,
            overflow="ellipsis",
            # Reasons are cut first: they say nothing without the names.
            min_width=1 if heading == "why" else min(longest, MIN_WIDTH),
        )
    for row in rows:
        cells = (row[place] for place in places)
        table.add_row(*(Text(visible(cell), style=STYLES.get(cell, "")) for cell in cells))
    return table


def _more(hidden: int) -> Text:
    return Text(f"  and {hidden:,} more", style="dim")
