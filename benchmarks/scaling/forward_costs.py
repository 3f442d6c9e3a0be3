"""The processor time of forwarding in two checkouts: `python -m benchmarks.scaling.forward_costs`.

One, two and three coordinators of each checkout run all the time, on stores behind the same round
trip. Each turn measures all of them with the load of `scale_out`, and begins with another one. As
in `path_costs`, both checkouts use the `.venv` of this one, and processor time is compared, which
other work on the machine changes less than it changes rates. The ratio to one coordinator is that
of the processor time: at 1, forwarding would be free.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks import coordinators
from benchmarks.coordinators import Coordinator
from benchmarks.postgres_server import postgres
from benchmarks.processes import ROOT, stop_all, time_limit
from benchmarks.processor import clock_of
from benchmarks.scaling.clients import WARM_UP_S, submit_alone
from benchmarks.scaling.links import delayed
from benchmarks.scaling.scale_out import CLIENTS, drain
from benchmarks.wire import Connection

SIDES = ("before", "now")
ROWS = ("submit", "drain")
SIZES = (1, 2, 3)
TURN_LIMIT_S = 120.0
SUBMIT_S = 1.0
TASKS = 10_000
DRAIN_LIMIT_S = 30.0

Facts = dict[str, Any]


class Cell(NamedTuple):
    """Some coordinators of one checkout. The first one leads, because it has started first."""

    side: str
    size: int
    fleet: list[Coordinator]

    def measure(self, row: str) -> Facts:
        if row == "drain":
            # On a new connection: the coordinator closes one that is idle for long.
            connection = Connection(self.fleet[0].port)
            coordinators.fill(self.fleet[0]._replace(connection=connection), TASKS)
            connection.close()
        before = self._spent()
        if row == "drain":
            facts = drain(self.fleet, TASKS, limit_s=DRAIN_LIMIT_S)
            count = facts["tasks"]
        else:
            ports = [one.port for one in self.fleet]
            facts = submit_alone(ports, clients=CLIENTS, seconds=SUBMIT_S)
            count = facts["per_s"] * (SUBMIT_S + WARM_UP_S)  # as they do while they warm up
        costs_us = [
            (now - then) / count * 1e6 for now, then in zip(self._spent(), before, strict=True)
        ]
        return {
            "leader": costs_us[0],
            "followers": sum(costs_us[1:]),
            "all": sum(costs_us),
            "per_s": facts["per_s"],
        }

    def _spent(self) -> list[float]:
        return [time.clock_gettime(clock_of(one.process.id)) for one in self.fleet]


@contextmanager
def _cells(
    checkouts: Mapping[str, Path], sizes: Sequence[int], rtt_ms: float
) -> Iterator[list[Cell]]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-forward-")))
        server = stack.enter_context(postgres(fsync="off"))
        found: list[Cell] = []
        for size in sizes:
            for side, checkout in checkouts.items():
                place = scratch / f"{side}-{size}"
                place.mkdir()
                store = stack.enter_context(server.database())
                store = stack.enter_context(delayed(store, rtt_ms, place))
                fleet = coordinators.replicas(
                    size,
                    place / "replicas",
                    store,
                    environment={"PYTHONPATH": str(checkout / "src")},
                )
                found.append(Cell(side, size, stack.enter_context(fleet)))
        yield found


def _report(
    row: str, facts: Mapping[tuple[str, int], Sequence[Facts]], sizes: Sequence[int]
) -> None:
    turns = len(next(iter(facts.values())))
    print(f"{row}: {turns} turns, processor time in µs a task")
    for size in sizes:
        for side in SIDES:
            mine = facts[side, size]
            parts = ", ".join(
                f"{part} {statistics.median(one[part] for one in mine):.1f}"
                for part in ("leader", "followers", "all")
            )
            ratios = [
                ours["all"] / one["all"]
                for ours, one in zip(mine, facts[side, sizes[0]], strict=True)
            ]
            per_s = statistics.median(one["per_s"] for one in mine)
            print(
                f"  {size} {side:7}{parts}, {statistics.median(ratios):.3f} times {sizes[0]};"
                f" {per_s:,.0f}/s"
            )
        pairs = zip(facts["before", size], facts["now", size], strict=True)
        gains = statistics.median(now["all"] / before["all"] for before, now in pairs)
        print(f"  {size} now : before {gains:.3f}", flush=True)


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--before",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="The other checkout.",
)
@click.option("--rows", default=",".join(ROWS), show_default=True, help="By comma.")
@click.option("--rtt-ms", type=click.FloatRange(0, 1_000), default=1.0, show_default=True)
@click.option("--turns", type=click.IntRange(2, 1_000), default=8, show_default=True)
@click.option("--sizes", default="1,2,3", show_default=True, help="By comma.")
def main(*, before: Path, rows: str, rtt_ms: float, turns: int, sizes: str) -> None:
    """Measure what tasks cost the coordinators of --before and of this checkout, in turns."""
    if unknown := [name for name in rows.split(",") if name not in ROWS]:
        raise click.BadParameter(f"{', '.join(unknown)}: there is {', '.join(ROWS)}")
    if any(one not in map(str, SIZES) for one in sizes.split(",")):
        raise click.BadParameter(f"{sizes}: numbers of {SIZES[0]} to {SIZES[-1]} coordinators")
    all_sizes = [int(one) for one in sizes.split(",")]
    try:
        with _cells({"before": before.resolve(), "now": ROOT}, all_sizes, rtt_ms) as cells:
            for row in rows.split(","):
                facts: dict[tuple[str, int], list[Facts]] = {
                    (cell.side, cell.size): [] for cell in cells
                }
                for turn in range(turns + 1):
                    first = turn % len(cells)
                    for cell in cells[first:] + cells[:first]:
                        with time_limit(TURN_LIMIT_S):
                            facts[cell.side, cell.size].append(cell.measure(row))
                _report(row, {key: found[1:] for key, found in facts.items()}, all_sizes)
    finally:
        stop_all()


if __name__ == "__main__":
    sys.exit(main())
