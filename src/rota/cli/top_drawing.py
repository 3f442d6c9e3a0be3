"""How is a glance drawn on a terminal? Counts above, then three tables that share the screen."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.glances import (
    HEADINGS,
    Glance,
    queue_rows,
    shares,
    summary,
    waiting_rows,
    worker_rows,
)
from rota.cli.output import STATE_STYLES, visible

LINES_PER_TABLE = 5  # blank lines above and below, heading, rule, "and N more"
LINES_BESIDE = 1  # the first line
STYLES = STATE_STYLES | {"stuck": "bold bright_red"}
LEAST_WIDTH = 12  # of a column that needs so much
NARROW = 90  # below this many columns only what matters most is shown
SPARED = {"queue": {"later", "in/s", "failed/s"}, "worker": {"state", "p50", "done", "failed"}}
LEFT = {"queue", "worker", "health", "state", "task", "why", "stuck"}  # the others are numbers


def drawn(seen: Glance, *, width: int, height: int, problem: str | None = None) -> RenderableType:
    """The glance for a screen of this size; a problem says why it is not newer."""
    counts = _counts(seen)
    tables = {
        "waiting": waiting_rows(seen),
        "queues": queue_rows(seen),
        "workers": worker_rows(seen),
    }
    shown = [(name, rows) for name, rows in tables.items() if rows]
    room = height - LINES_BESIDE - counts.row_count
    # Each needs a row of its own to be worth its heading; the last ones are the least urgent.
    shown = shown[: max(1, room // (LINES_PER_TABLE + 1))]
    left = max(len(shown), room - LINES_PER_TABLE * len(shown))
    most = shares([len(rows) for _, rows in shown], left)
    parts: list[RenderableType] = [_first_line(seen, width, problem), counts]
    for (name, rows), share in zip(shown, most, strict=True):
        parts.append(_table(HEADINGS[name], rows[:share], is_narrow=width < NARROW))
        parts += [_more(len(rows) - share)] if share < len(rows) else []
    return Group(*parts)


def _first_line(seen: Glance, width: int, problem: str | None) -> Text:
    line = Text(f"rota {seen.overview.version}", style="bold", no_wrap=True, overflow="ellipsis")
    if seen.overview.stuck:
        line.append(f"   waiting in vain: {seen.overview.stuck:,}", style="bold bright_red")
    if problem is not None:
        line.append(f"   {visible(problem)}", style="bold yellow")
    line.truncate(width)
    return line


def _counts(seen: Glance) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for noun, text in summary(seen):
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
            justify="left" if heading in LEFT else "right",
            no_wrap=True,
            overflow="ellipsis",
            # Reasons are cut first: without the names beside them they say nothing.
            min_width=1 if heading == "why" else min(longest, LEAST_WIDTH),
        )
    for row in rows:
        cells = (row[place] for place in places)
        table.add_row(*(Text(visible(cell), style=STYLES.get(cell, "")) for cell in cells))
    return table


def _more(hidden: int) -> Text:
    return Text(f"  and {hidden:,} more", style="dim")
