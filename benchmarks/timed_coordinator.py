"""`rota`, with a coordinator that notes how long each batch takes which advances runs.

It writes a line for each to the file that `ROTA_BENCH_BATCHES` names: milliseconds by the clock,
and milliseconds of the processor.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rota.cli.main import main
from rota.core.workflow.commands import AdvanceRuns
from rota.engine.commit.pipeline import Pipeline
from rota.engine.commit.request import Delivery, QueuedCommand

FILE = "ROTA_BENCH_BATCHES"
COMMAND = (sys.executable, "-m", "benchmarks.timed_coordinator")


def time_batches(file: Path) -> None:
    """Note batches from now on; they run on the writer's thread, because they are not cheap."""
    lines = file.open("w", buffering=1)
    run = Pipeline.run

    def timed(self: Pipeline, entries: Sequence[QueuedCommand]) -> Delivery:
        begun_s, used_s = time.perf_counter(), time.thread_time()
        delivery = run(self, entries)
        if any(isinstance(one.command, AdvanceRuns) for one in entries):
            took_ms = (time.perf_counter() - begun_s) * 1000
            lines.write(f"{took_ms:.3f} {(time.thread_time() - used_s) * 1000:.3f}\n")
        return delivery

    replaced: Any = Pipeline
    replaced.run = timed


def read_batches(file: Path) -> tuple[list[float], list[float]]:
    """The times of all batches: by the clock, and of the processor."""
    rows = [line.split() for line in file.read_text().splitlines()]
    return [float(row[0]) for row in rows], [float(row[1]) for row in rows]


if __name__ == "__main__":
    time_batches(Path(os.environ[FILE]))
    main()
