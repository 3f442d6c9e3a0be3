"""Two checkouts of Rota in turns on this machine: `python -m benchmarks.turns --help`.

The rates of one machine differ by several per cent from minute to minute, so a figure of today says
little about one of yesterday. Here both checkouts are measured one after the other, in many short
turns, and each turn begins with the other one. Each side is a process in its checkout, with the
`.venv` of that checkout: coordinator, worker, client and measurement are of one version. Both
coordinators run all the time, and one of them is idle. The other checkout needs `make setup` first.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.postgres_server import postgres
from benchmarks.processes import ROOT, Failed, time_limit

# Runs in either checkout, so it uses only what both have. It answers each line with one.
PROGRAM = """
import json, pathlib, sys
from contextlib import ExitStack
from benchmarks import measurements, processor
from benchmarks.coordinators import coordinator
from benchmarks.processes import stop_all

row, folder, store, size = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] or None, sys.argv[4]
size = int(size)

def drain(turn):
    facts = measurements.drained(size, folder / str(turn), store=store)
    return {"figure": facts["per_s"], "cpu_us": facts["cpu_us"]}

def submit(turn):
    before_s = processor.spent_s(one.process.id)
    facts = measurements.submitted_one_by_one(one, size)
    used_s = processor.spent_s(one.process.id) - before_s
    return {"figure": facts["per_s"], "cpu_us": {"coordinator": used_s / size * 1e6}}

def pickup(turn):
    return {"figure": measurements.picked_up(one, one, size)["p50_ms"]}

measure = {"drain": drain, "submit-one": submit, "pickup": pickup}[row]
try:
    with ExitStack() as stack:
        folder.mkdir()
        if measure is not drain:
            one = stack.enter_context(coordinator(folder / "store", store=store))
        for turn, _ in enumerate(sys.stdin):
            print(json.dumps(measure(turn)), flush=True)
finally:
    stop_all()
"""
SIDES = ("before", "now")
TURN_LIMIT_S = 120.0


class Row(NamedTuple):
    turns: int
    size: int  # tasks or samples in each turn
    unit: str
    is_rate: bool  # a higher figure is better


ROWS = {
    "submit-one": Row(20, 1_000, "/s", is_rate=True),
    "drain": Row(6, 150_000, "/s", is_rate=True),
    "pickup": Row(10, 60, " ms", is_rate=False),
}
Facts = dict[str, Any]
FreshStore = Callable[[], AbstractContextManager[str]]


class Side:
    """One checkout and its measuring process."""

    def __init__(self, checkout: Path, row: str, folder: Path, store: str, size: int) -> None:
        environment = {name: one for name, one in os.environ.items() if name != "PYTHONPATH"}
        command = [str(checkout / ".venv/bin/python"), "-c", PROGRAM]
        self._checkout = checkout
        self._process = subprocess.Popen(
            [*command, row, str(folder), store, str(size)],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def take_turn(self) -> Facts:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the measurement in {self._checkout} ended with {self._process.wait()}")
        facts: Facts = json.loads(line)
        return facts

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TURN_LIMIT_S)


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--before",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="The other checkout.",
)
@click.option("--rows", default=",".join(ROWS), show_default=True, help="By comma.")
@click.option("--turns", type=click.IntRange(2, 1_000), help="Instead of the usual number.")
@click.option("--size", type=click.IntRange(min=10), help="Tasks or samples in each turn.")
@click.option("--postgres", "is_postgres", is_flag=True, help="On PostgreSQL instead of SQLite.")
def main(
    *, before: Path, rows: str, turns: int | None, size: int | None, is_postgres: bool
) -> None:
    """Measure the checkout at --before and this one in turns, and print the medians."""
    checkouts = {"before": before.resolve(), "now": ROOT}
    if unknown := [name for name in rows.split(",") if name not in ROWS]:
        raise click.BadParameter(f"{', '.join(unknown)}: there is {', '.join(ROWS)}")
    if is_postgres and "drain" in rows.split(","):
        raise click.BadParameter("a drain needs a new store for each turn: only on SQLite")
    with _stores(is_postgres=is_postgres) as fresh_store:
        for name in rows.split(","):
            usual = ROWS[name]
            row = usual._replace(turns=turns or usual.turns, size=size or usual.size)
            with _sides(checkouts, name, row.size, fresh_store) as sides:
                _report(name, row, _in_turns(sides, row.turns))


@contextmanager
def _stores(*, is_postgres: bool) -> Iterator[FreshStore]:
    """Yield what makes an empty store and names it; a store on SQLite needs no name."""
    if is_postgres:
        with postgres() as server:
            yield server.database
    else:
        yield lambda: nullcontext("")


@contextmanager
def _sides(
    checkouts: Mapping[str, Path], row: str, size: int, fresh_store: FreshStore
) -> Iterator[dict[str, Side]]:
    with ExitStack() as stack:
        folder = ROOT / "benchmarks"
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=".scratch-", dir=folder))
        )
        sides: dict[str, Side] = {}
        for name, checkout in checkouts.items():
            store = stack.enter_context(fresh_store())
            sides[name] = Side(checkout, row, scratch / name, store, size)
            stack.callback(sides[name].close)
        yield sides


def _in_turns(sides: Mapping[str, Side], turns: int) -> dict[str, list[Facts]]:
    """Measure; the first turn is not counted."""
    facts: dict[str, list[Facts]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name in SIDES if turn % 2 == 0 else reversed(SIDES):
            with time_limit(TURN_LIMIT_S):
                facts[name].append(sides[name].take_turn())
    return {name: all_of_them[1:] for name, all_of_them in facts.items()}


def _report(name: str, row: Row, facts: Mapping[str, Sequence[Facts]]) -> None:
    print(f"{name}: {row.turns} turns of {row.size:,}")
    medians: dict[str, float] = {}
    for side in SIDES:
        figures = sorted(one["figure"] for one in facts[side])
        medians[side] = statistics.median(figures)
        low, high = figures[len(figures) // 4], figures[len(figures) * 3 // 4]
        print(
            f"  {side:7}{_shown(medians[side])}{row.unit} "
            f"(half of the turns: {_shown(low)} to {_shown(high)}){_processor_time(facts[side])}"
        )
    pairs = zip(facts["before"], facts["now"], strict=True)
    gains = [_gain(row, before["figure"], now["figure"]) for before, now in pairs]
    whole = _gain(row, medians["before"], medians["now"])
    print(
        f"  now : before {whole:.3f} by the medians, {statistics.median(gains):.3f} is the median"
        " of the turns",
        flush=True,
    )


def _processor_time(facts: Sequence[Facts]) -> str:
    spent: dict[str, list[float]] = {}
    for one in facts:
        for part, cost_us in (one.get("cpu_us") or {}).items():
            spent.setdefault(part, []).append(cost_us)
    parts = [f"{part} {statistics.median(costs):.1f}" for part, costs in spent.items()]
    return f"; processor time in µs a task: {', '.join(parts)}" if parts else ""


def _gain(row: Row, before: float, now: float) -> float:
    """Above 1: this checkout is faster."""
    return now / before if row.is_rate else before / now


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


if __name__ == "__main__":
    main()
