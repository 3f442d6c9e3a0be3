"""How are the figures shown? One table: a row a measurement, a column a system."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import machine
from benchmarks.bars import (
    BARS,
    LATENCY,
    OVER_DBOS,
    RATE,
    SECONDS,
    TIMES,
    Bar,
    Verdict,
    over_celery,
)
from benchmarks.comparing import PEERS
from benchmarks.workflows import CHAIN_STEPS, FAN_BRANCHES

MIN_WIDTH = 150  # of a table written to a file, where no terminal says how wide it is

Results = dict[str, Any]
Facts = dict[str, Any]


def per_s(facts: Facts) -> float | None:
    return facts.get("per_s")


def p50_ms(facts: Facts) -> float | None:
    return facts.get("p50_ms")


def p99_ms(facts: Facts) -> float | None:
    return facts.get("p99_ms")


NONE = "-"
SHARDS = "shards: "
COST, MEMORY = "{:.1f} µs", "{:.0f} MiB"
MEMORY_AFTER = ("drain", "drain-large", "end-to-end")  # the others are in the raw figures
# Title, Rota's measurement, the peers' one (if they have it), the figure, and how it is written.
Row = tuple[str, str, str | None, Callable[[Facts], float | None], str]
ROWS: tuple[Row, ...] = (
    ("drain", "drain", "drain", per_s, RATE),
    ("drain, longer run", "drain-large", None, per_s, RATE),
    ("end to end", "end-to-end", None, per_s, RATE),
    ("submit one by one", "submit-one", "submit_one", per_s, RATE),
    ("submit in batches", "submit-batches", None, per_s, RATE),
    ("submit in batches, SDK", "submit-batches-sdk", None, per_s, RATE),
    ("pick-up, p50", "pickup", "pickup", p50_ms, LATENCY),
    ("pick-up, p99", "pickup", "pickup", p99_ms, LATENCY),
    ("one-task runs", "runs-one", "runs_one", per_s, RATE),
    ("three-step runs", "runs-three", "runs_three", per_s, RATE),
    (f"a step of {CHAIN_STEPS}, p50", "chain", None, p50_ms, LATENCY),
    (f"{FAN_BRANCHES} branches and their join, p50", "fan-out", None, p50_ms, LATENCY),
)


def show(results: Results, verdicts: list[Verdict]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, MIN_WIDTH))
    console.print()
    console.print(_table(results, verdicts))
    console.print(f"machine: {machine.in_words(results['machine'])}", highlight=False)
    if warning := machine.unsteadiness({**results["rota"], **results["peers"]}):
        console.print(f"NOTE: {warning}", highlight=False)
    for key, facts in results["peers"].items():
        console.print(_about(key, facts), highlight=False, markup=False)
    for name, facts in results["rota"].items():
        if "problem" in facts:
            console.print(f"{name} could not be measured: {facts['problem']}", markup=False)


def _table(results: Results, verdicts: list[Verdict]) -> Table:
    rota, peers = results["rota"], results["peers"]
    shown = [key for key, facts in peers.items() if _has_figures(facts)]
    marks = {verdict.row: _mark(verdict) for verdict in verdicts}
    table = Table(title="Rota on this machine, and peers beside it")
    if shown:
        table.caption = (
            "x: Rota's figure divided by the peer's. Rates: above 1 Rota does more; "
            "latencies: below 1 Rota is quicker."
        )
    table.add_column("no-op tasks", no_wrap=True)
    table.add_column(f"Rota {results['version']}", justify="right", style="bold", no_wrap=True)
    table.add_column("bar", no_wrap=True)
    for key in shown:
        table.add_column(PEERS[key].title, justify="right")
    for title, measurement, peer_measurement, figure, text in ROWS:
        ours = figure(rota.get(measurement, {}))
        theirs = [figure(peers[key].get(peer_measurement or "", {})) for key in shown]
        if ours is None and not any(theirs) and title not in marks:
            continue
        cells = [_against(ours, one, text) for one in theirs]
        said = NONE if ours is None else text.format(ours)
        table.add_row(title, said, marks.get(title, ""), *cells)
    table.add_section()
    for title, said in _own_rows(results):
        table.add_row(title, said, marks.get(title, ""))
    return table


def _own_rows(results: Results) -> list[tuple[str, str]]:
    """What only Rota is asked: the cost of a claim, and the coordinator's memory."""
    rota = results["rota"]
    claims = rota.get("claim", {})
    depths = {int(depth): entry for depth, entry in claims.get("depths", {}).items()}
    rows = []
    if (times := over_celery(results)) is not None:
        rows.append(("drain, over Celery's", TIMES.format(times)))
    rows += [
        (title, TIMES.format(times))
        for title, over in OVER_DBOS.items()
        if (times := over(results)) is not None
    ]
    foreach = rota.get("foreach", {})
    rows += [
        (f"foreach of {int(items):,}, joined", SECONDS.format(seconds))
        for items, seconds in foreach.get("items", {}).items()
    ]
    rows += [
        (f"claim one of {depth:,} queued", COST.format(entry["us_per_task"]))
        for depth, entry in depths.items()
    ]
    if "ratio" in claims:
        rows.append(("claim, deepest : shallowest", TIMES.format(claims["ratio"])))
    if times := rota.get("shards-decide", {}).get("times_less"):
        rows.append(("shards: moved, ranges in order of id : ours", TIMES.format(times)))
    held = [
        (f"memory after {name}", facts["memory_mib"])
        for name, facts in rota.items()
        if name in MEMORY_AFTER and facts.get("memory_mib")
    ]
    if depths and (memory_mib := depths[max(depths)]["memory_mib"]):
        held.append((f"memory with {max(depths):,} queued", memory_mib))
    rows += [(bar.row, said) for bar, said in shard_rows(results)]
    return rows + [(title, MEMORY.format(memory_mib["now"])) for title, memory_mib in held]


def shard_rows(results: Results) -> list[tuple[Bar, str]]:
    """What is measured of shards has a bar each."""
    measured = [(bar, bar.measured(results)) for bar in BARS if bar.row.startswith(SHARDS)]
    return [(bar, bar.text.format(one)) for bar, one in measured if one is not None]


def _mark(verdict: Verdict) -> Text:
    if verdict.is_met:
        return Text(f"{verdict.wanted} reached", style="green")
    return Text(f"{verdict.wanted} MISSED", style="bold red")


def _against(ours: float | None, theirs: float | None, text: str) -> str:
    if theirs is None:
        return NONE
    said = text.format(theirs)
    return said if ours is None else f"{said} {_ratio(ours / theirs)}"


def _ratio(ratio: float) -> str:
    return f"x{ratio:.2f}" if ratio < 1 else f"x{ratio:.1f}"


def _has_figures(facts: Facts) -> bool:
    return any(name in facts for name in ("drain", "submit_one", "pickup"))


def _about(key: str, facts: Facts) -> str:
    parts = [f"{PEERS[key].title}:"]
    if "version" in facts:
        settings = "; ".join(facts.get("settings", {}).values())
        parts.append(f"version {facts['version']}; {settings}")
    drained = facts.get("drain", {})
    if drained:
        parts.append(f"({drained['tasks']:,} tasks drained)")
    if "left_out" in facts:
        parts.append(f"LEFT OUT: {facts['left_out']}")
    if "problem" in facts:
        parts.append(f"NOT COMPLETE: {facts['problem']}")
    return " ".join(parts)
