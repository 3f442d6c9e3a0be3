"""The processor time that a task costs each process.

On a machine that is also busy with other work, rates change, but processor time hardly does. The
time counts from the first observation of finished tasks to the last, so that the start of a process
is not included. This module uses only the standard library, because the peers import it in an
environment of their own.
"""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
MIN_TASKS = 1_000  # with fewer, the clock ticks are too coarse


def clock_of(process_id: int) -> int:
    """The clock of one process's processor time, as `clock_getcpuclockid` of the C library has it.

    `time.clock_gettime` reads it with the precision of the kernel, where `spent_s` counts ticks.
    """
    return (~process_id << 3) | 2


def spent_s(process_id: int) -> float:
    """The processor time of a process and its descendants; 0 on systems without /proc."""
    known = _all_processes()
    wanted, total = [process_id], 0
    while wanted:
        one = wanted.pop()
        if one in known:
            total += known[one][1]
            wanted += [other for other, (parent, _) in known.items() if parent == one]
    return total / _TICKS


def _all_processes() -> dict[int, tuple[int, int]]:
    """Each process with its parent, and the ticks that it and its ended children have used."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may contain spaces and parentheses.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = int(fields[1]), sum(int(field) for field in fields[11:15])
    return found


class Meter:
    """Computes the processor time of a task from repeated counts of finished tasks."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._first: tuple[int, dict[str, float]] | None = None
        self._last = (0, dict.fromkeys(processes, 0.0))

    def done(self, tasks: int) -> None:
        if tasks <= 0:
            return
        self._last = tasks, {name: spent_s(number) for name, number in self._processes.items()}
        self._first = self._first or self._last

    def us_per_task(self) -> dict[str, float] | None:
        """The cost by process, and of all together; None: too few tasks were observed."""
        if self._first is None or self._last[0] - self._first[0] < MIN_TASKS:
            return None
        (first, before), (last, after) = self._first, self._last
        costs = {name: (after[name] - before[name]) / (last - first) * 1e6 for name in after}
        return costs | {"all": sum(costs.values())}
