"""How is a run drawn on a terminal? A head, a line a node with a bar of its tokens, and notes."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.output import STATE_STYLES, visible
from rota.cli.pictures import NodePicture, Picture, seconds

BAR_WIDTH = 24  # at the most; on a narrow screen the numbers come first
LEAST_BAR_WIDTH = 4
GAP = 2  # between columns
LINES_BESIDE = 8  # head, headings and notes
ALWAYS_SHOWN = ("done", "running", "queued", "waiting", "failed")  # so that nothing jumps about
STYLES = {
    "done": "green",
    "running": "cyan",
    "queued": "yellow",
    "waiting": "blue",
    "failed": "red",
    "cancelled": "magenta",
}


def drawn(picture: Picture, *, width: int, height: int) -> Group:
    """The picture for a screen of this size."""
    run = picture.run
    head = Text.assemble(
        (visible(run.workflow), "bold"),
        (f" v{run.version}  run {run.id}  ", "dim"),
        (run.state, STATE_STYLES.get(run.state, "")),
        (f"  {seconds(picture.elapsed_ms)}", "dim"),
    )
    notes: list[RenderableType] = [
        *(Text(visible(failure), style="red") for failure in picture.failures),
        *(Text(visible(hint), style="yellow") for hint in picture.hints),
    ]
    nodes = shown_nodes(picture, height - LINES_BESIDE)
    if len(nodes) < len(picture.nodes):
        notes.insert(0, Text(f"and {len(picture.nodes) - len(nodes)} other nodes", style="dim"))
    return Group(head, _table(nodes, width), *notes)


def shown_nodes(picture: Picture, most: int) -> list[NodePicture]:
    """All nodes, or those where something is going on when they are too many for the screen."""
    if len(picture.nodes) <= most or picture.run.finished_at_ms is not None:
        return picture.nodes
    return [node for node in picture.nodes if node.counts.keys() - {"done"}][:most]


def _table(nodes: list[NodePicture], width: int) -> Table:
    used = tuple(column for column in STYLES if any(column in node.counts for node in nodes))
    columns = tuple(column for column in STYLES if column in {*ALWAYS_SHOWN, *used})
    texts = max((len(node.id) for node in nodes), default=0) + GAP
    texts += max((len(node.arriving or "") for node in nodes), default=0)
    if texts + _width_of(columns) > width:
        columns = used
    bar_width = min(BAR_WIDTH, width - texts - _width_of(columns) - GAP)
    if bar_width < LEAST_BAR_WIDTH:
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


def _row(node: NodePicture, columns: tuple[str, ...]) -> list[Text]:
    cells = [
        Text(str(node.counts[column]), style=STYLES[column])
        if column in node.counts
        else Text("·", style="dim")
        for column in columns
    ]
    name = Text(visible(node.id), style="" if node.counts else "dim")
    return [name, *cells, Text(node.arriving or "", style="dim")]


def _bar(counts: Mapping[str, int], bar_width: int) -> Text:
    """A node's tokens as one line, each state its share of it."""
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
