"""Draws a run on a terminal: a header, a line per node with a bar of its tokens, notes."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.render.output import STATE_STYLES, visible
from rota.cli.render.run_model import (
    HELD_BACK,
    NOT_STARTED,
    NodeModel,
    RunModel,
    has_more,
    seconds,
)

MAX_BAR_WIDTH = 24  # on a narrow screen the numbers come first
MIN_BAR_WIDTH = 4
GAP = 2  # between columns
OF_ALL = "of 10000, "  # after a node with branches that are held back
LINES_BESIDE = 8  # head, headings and notes
ALWAYS_SHOWN = ("done", "running", "queued", "waiting", "failed")  # so that columns do not jump
STYLES = {
    "done": "green",
    "running": "cyan",
    "queued": "yellow",
    "waiting": "blue",
    "failed": "red",
    "cancelled": "magenta",
    HELD_BACK: "bright_black",
    NOT_STARTED: "bright_black",
}


def draw_run(model: RunModel, *, width: int, height: int) -> Group:
    """Draw the model for a screen of this size."""
    run = model.run
    head = Text.assemble(
        (visible(run.workflow), "bold"),
        (f" v{run.version}  run {run.id}  ", "dim"),
        (run.state, STATE_STYLES.get(run.state, "")),
        (f"  {seconds(model.elapsed_ms)}", "dim"),
    )
    notes: list[RenderableType] = [
        *(Text(visible(failure), style="red") for failure in model.failures),
        *(Text(visible(hint), style="yellow") for hint in model.hints),
    ]
    nodes = shown_nodes(model, height - LINES_BESIDE)
    if len(nodes) < len(model.nodes):
        notes.insert(0, Text(f"and {len(model.nodes) - len(nodes)} other nodes", style="dim"))
    return Group(head, _table(nodes, width), *notes)


def shown_nodes(model: RunModel, most: int) -> list[NodeModel]:
    """All nodes, or only the active ones when there are too many for the screen."""
    if len(model.nodes) <= most or model.run.finished_at_ms is not None:
        return model.nodes
    return [node for node in model.nodes if node.counts.keys() - {"done"}][:most]


def _table(nodes: list[NodeModel], width: int) -> Table:
    used = tuple(column for column in STYLES if any(column in node.counts for node in nodes))
    columns = tuple(column for column in STYLES if column in {*ALWAYS_SHOWN, *used})
    texts = max((len(node.id) for node in nodes), default=0) + GAP
    texts += max((len(node.arriving or "") + len(OF_ALL) for node in nodes), default=0)
    if texts + _width_of(columns) > width:
        columns = used
    bar_width = min(MAX_BAR_WIDTH, width - texts - _width_of(columns) - GAP)
    if bar_width < MIN_BAR_WIDTH:
        bar_width = 0
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0))
    table.header_style = "dim"
    table.add_column("node", no_wrap=True)
    if bar_width:
        table.add_column("", width=bar_width, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for node in nodes:
        name, *cells = _row(node, columns)
        table.add_row(name, *([_bar(node.counts, bar_width)] if bar_width else []), *cells)
    return table


def _width_of(columns: tuple[str, ...]) -> int:
    return sum(len(column) + GAP for column in columns)


def _row(node: NodeModel, columns: tuple[str, ...]) -> list[Text]:
    cells = [
        Text(str(node.counts[column]), style=STYLES[column])
        if column in node.counts
        else Text("·", style="dim")
        for column in columns
    ]
    name = Text(visible(node.id), style="" if node.counts else "dim")
    notes = [node.arriving or ""]
    if has_more(node.counts):
        notes.insert(0, f"of {sum(node.counts.values())}")
    return [name, *cells, Text(", ".join(filter(None, notes)), style="dim")]


def _bar(counts: Mapping[str, int], bar_width: int) -> Text:
    """A node's tokens as a line of bars, in proportion to their states."""
    total = sum(counts.values())
    bar = Text()
    seen = filled = 0
    for column, count in counts.items():
        seen += count
        width = min(max(1, round(bar_width * seen / total) - filled), bar_width - filled)
        bar.append("━" * width, style=STYLES[column])
        filled += width
    bar.append("─" * (bar_width - filled), style="dim")
    return bar
