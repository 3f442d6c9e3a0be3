"""The tables of figures: a row for each measurement, a column for each system."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import machine
from benchmarks.bars import (
    BARS,
    COUNT,
    LATENCY,
    MEGABYTES,
    OVER_DBOS,
    PLAIN,
    POSTGRES,
    RATE,
    SCALING,
    SCHEDULES,
    SECONDS,
    TIMES,
    Bar,
    Verdict,
    over_celery,
)
from benchmarks.comparing import PEERS, POSTGRES_PEERS
from benchmarks.scaling import report
from benchmarks.workflows import CHAIN_STEPS, FAN_BRANCHES

MIN_WIDTH = 150  # of a table written to a file, where no terminal says how wide it is

Results = dict[str, Any]
Facts = dict[str, Any]


def per_s(facts: Facts) -> float | None:
    return facts.get("per_s")


def rate_of(way: str) -> Callable[[Facts], float | None]:
    """A peer's rate of runs in one way of running them; Rota's own rate."""

    def read(facts: Facts) -> float | None:
        found: float | None = facts.get("ways_per_s", {}).get(way, per_s(facts))
        return found

    return read


def p50_ms(facts: Facts) -> float | None:
    return facts.get("p50_ms")


def p99_ms(facts: Facts) -> float | None:
    return facts.get("p99_ms")


NONE = "-"
SHARDS, SOCKETS = "shards: ", "sockets: "
COST, MEMORY = "{:.1f} µs", "{:.0f} MiB"
MEMORY_AFTER = ("drain", "drain-large", "end-to-end")  # the others are in the raw figures
# Title, Rota's measurement, the peers' measurement (if they have it), the figure, and its format.
Row = tuple[str, str, str | None, Callable[[Facts], float | None], str]
Rows = tuple[Row, ...]
OwnRows = list[tuple[str, str]]
Marks = dict[str, Text]
ROWS: Rows = (
    ("drain", "drain", "drain", per_s, RATE),
    ("drain, longer run", "drain-large", None, per_s, RATE),
    ("end to end", "end-to-end", None, per_s, RATE),
    ("submit one by one", "submit-one", "submit_one", per_s, RATE),
    ("submit in batches", "submit-batches", None, per_s, RATE),
    ("submit in batches, SDK", "submit-batches-sdk", None, per_s, RATE),
    ("pick-up, p50", "pickup", "pickup", p50_ms, LATENCY),
    ("pick-up, p99", "pickup", "pickup", p99_ms, LATENCY),
    ("drain, one at a time a key", "keyed", "keyed", per_s, RATE),
    ("one-task runs", "runs-one", "runs_one", per_s, RATE),
    ("three-step runs", "runs-three", "runs_three", per_s, RATE),
    (
        "functions of three steps, 64 at once",
        "functions-three",
        "runs_three",
        rate_of("queued"),
        RATE,
    ),
    (
        "functions of three steps, one by one",
        "functions-one",
        "runs_three",
        rate_of("called"),
        RATE,
    ),
    (
        "the same, run by a worker elsewhere",
        "functions-one",
        "runs_three",
        rate_of("asked"),
        RATE,
    ),
    ("a function with 100 children, p50", "functions-children", None, p50_ms, LATENCY),
    ("replay of 1,000 steps, p50", "functions-replay", None, p50_ms, LATENCY),
    (f"a step of {CHAIN_STEPS}, p50", "chain", None, p50_ms, LATENCY),
    (f"{FAN_BRANCHES} branches and their join, p50", "fan-out", None, p50_ms, LATENCY),
)
POSTGRES_ROWS: Rows = (
    ("drain", "postgres-drain", "drain", per_s, RATE),
    ("submit one by one", "postgres-submit-one", "submit_one", per_s, RATE),
    ("submit in bulk", "postgres-submit-batches", "submit_bulk", per_s, RATE),
    ("pick-up, p50", "postgres-pickup", "pickup", p50_ms, LATENCY),
    ("pick-up, p99", "postgres-pickup", "pickup", p99_ms, LATENCY),
    ("drain, one at a time a key", "postgres-keyed", "keyed", per_s, RATE),
)


class Sheet(NamedTuple):
    title: str
    rows: Rows
    peers: list[str]
    own_rows: OwnRows


def show(results: Results, verdicts: list[Verdict]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, MIN_WIDTH))
    marks = {verdict.row: _mark(verdict) for verdict in verdicts}
    for table in _tables(results, marks):
        console.print()
        console.print(table)
    console.print(f"machine: {machine.in_words(results['machine'])}", highlight=False)
    if warning := machine.unsteadiness({**results["rota"], **results["peers"]}):
        console.print(f"NOTE: {warning}", highlight=False)
    for key, facts in results["peers"].items():
        console.print(_about(key, facts), highlight=False, markup=False)
    for name, facts in results["rota"].items():
        if "left_out" in facts:
            console.print(f"{name} LEFT OUT: {facts['left_out']}", markup=False)
        if "problem" in facts:
            console.print(f"{name} could not be measured: {facts['problem']}", markup=False)


def _tables(results: Results, marks: Marks) -> list[Table]:
    """A table for SQLite and one for PostgreSQL; each only if it has figures."""
    shown = [key for key, facts in results["peers"].items() if _has_figures(facts)]
    sheets = (
        Sheet(
            "Rota on this machine, and peers beside it",
            ROWS,
            [key for key in shown if key not in POSTGRES_PEERS],
            _own_rows(results),
        ),
        Sheet(
            "The same on PostgreSQL, and peers on the same server",
            POSTGRES_ROWS,
            [key for key in shown if key in POSTGRES_PEERS],
            postgres_rows(results),
        ),
        Sheet("Several coordinators on one PostgreSQL", (), [], scaling_rows(results)),
    )
    tables = [_table(results, sheet, marks) for sheet in sheets]
    return [table for table in tables if table.row_count]


def _table(results: Results, sheet: Sheet, marks: Marks) -> Table:
    rota, peers, shown = results["rota"], results["peers"], sheet.peers
    table = Table(title=sheet.title)
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
    for row, measurement, peer_measurement, figure, text in sheet.rows:
        ours = figure(rota.get(measurement, {}))
        theirs = [figure(peers[key].get(peer_measurement or "", {})) for key in shown]
        mark = marks.get(row, "") if sheet.rows is ROWS else ""  # the others have theirs below
        if ours is None and not any(theirs) and not mark:
            continue
        cells = [_against(ours, one, text) for one in theirs]
        said = NONE if ours is None else text.format(ours)
        table.add_row(row, said, mark, *cells)
    table.add_section()
    for row, said in sheet.own_rows:
        title = row.removeprefix(POSTGRES).removeprefix(SCALING)
        table.add_row(title, said, marks.get(row, ""))
    return table


def _own_rows(results: Results) -> OwnRows:
    """Rows that only Rota has, such as the cost of a claim and the coordinator's memory."""
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
    sleepers = rota.get("functions-sleepers", {})
    if "added_mb" in sleepers:
        name = f"{sleepers['sleepers']:,} sleeping functions"
        rows.append((f"{name}, memory", MEGABYTES.format(sleepers["added_mb"])))
        rows.append((f"{name}, tasks occupied", COUNT.format(sleepers["occupied"])))
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
    limited = rota.get("limits", {})
    if "spread_ratio" in limited:
        blocked, spread = limited["blocked_ratio"], limited["spread_ratio"]
        rows.append(("claim, beside blocked keys : without", TIMES.format(blocked)))
        rows.append(("claim, over many keys : without", TIMES.format(spread)))
    if times := rota.get("shards-decide", {}).get("times_less"):
        rows.append(("shards: moved, ranges in order of id : ours", TIMES.format(times)))
    held = [
        (f"memory after {name}", facts["memory_mib"])
        for name, facts in rota.items()
        if name in MEMORY_AFTER and facts.get("memory_mib")
    ]
    if depths and (memory_mib := depths[max(depths)]["memory_mib"]):
        held.append((f"memory with {max(depths):,} queued", memory_mib))
    for kind in (PLAIN, SCHEDULES, SHARDS, SOCKETS):
        rows += [(bar.row, said) for bar, said in rows_with_bars(results, kind)]
    return rows + [(title, MEMORY.format(memory_mib["now"])) for title, memory_mib in held]


def postgres_rows(results: Results) -> OwnRows:
    """Rows against peers, across replicas, and while a transaction is held."""
    rows = [(bar.row, said) for bar, said in rows_with_bars(results, POSTGRES)]
    replicas = results["rota"].get("postgres-replicas", {})
    if "two_per_s" in replicas:
        rows.append(("drain, two coordinators", RATE.format(replicas["two_per_s"])))
        rows.append(("drain, one, in turn with two", RATE.format(replicas["one_per_s"])))
    held = results["rota"].get("postgres-held", {})
    if "during_per_s" in held:
        name = f"transaction held {held['held_s']:.0f} s"
        rates = (held["before_per_s"], *held["during_per_s"], held["after_per_s"])
        costs = held["server_us"]
        for when, index in (("before", 0), ("first", 1), ("last", -2), ("after", -1)):
            said = f"{RATE.format(rates[index])} ({costs[index]:.0f} µs)"
            rows.append((f"{name}: {when}", said))
    return rows


def scaling_rows(results: Results) -> OwnRows:
    """The rates and costs by distance of the database, and what several must reach."""
    return report.rows(results) + [
        (bar.row, said) for bar, said in rows_with_bars(results, SCALING)
    ]


def rows_with_bars(results: Results, prefix: str) -> list[tuple[Bar, str]]:
    """The measured bars whose row begins with the prefix, with their figures as text."""
    measured = [(bar, bar.measured(results)) for bar in BARS if bar.row.startswith(prefix)]
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
    return any(name in facts for name in ("drain", "submit_one", "pickup", "keyed"))


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
