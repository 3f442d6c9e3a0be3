"""How much processor time does a task cost, and whose?

On a machine that does other things as well, a rate says little and this still says something. What
is counted is the time between the first tasks that were seen to be done and the end, so that
nobody's start counts. Only the standard library is used here: the peers live in an environment of
their own.
"""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
MIN_TASKS = 1_000  # over fewer, the clock's ticks would be most of it


def spent_s(process_id: int) -> float:
    """What a process has used, with all it has started; 0 where /proc is not there to tell."""
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
            # The name, in parentheses, may hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = int(fields[1]), sum(int(field) for field in fields[11:15])
    return found


class Meter:
    """Told again and again how many tasks are done; says at the end what each of them cost."""

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
        """By process, and of all together; None: too little was seen."""
        if self._first is None or self._last[0] - self._first[0] < MIN_TASKS:
            return None
        (first, before), (last, after) = self._first, self._last
        costs = {name: (after[name] - before[name]) / (last - first) * 1e6 for name in after}
        return costs | {"all": sum(costs.values())}
