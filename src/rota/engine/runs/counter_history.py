"""The history of a run graph's counters, entry by entry, with checkpoints.

The dashboard has a slider over the journal of a run. At each entry it shows the run's graph of that
moment, also for a run with ten thousand branches. Reading the journal up to an entry takes too
long, and storing all counters for every entry takes too much memory. So the history stores, for
each entry, the counters that changed, and every `STILL_EVERY` entries a checkpoint of all counters.
The counters at an entry are the checkpoint before it plus the changes since, so each entry costs
the same to show. A counter is an integer with a tuple as its name.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Name = tuple[str, ...]

STILL_EVERY = 256  # entries between two checkpoints

# The first parts of the counters' names. Each comment lists the other parts and what is counted.
TOKENS = "tokens"  # node, state: tokens
CAME = "came"  # transition or group, from, to, state: tokens that came by it
ARRIVED = "arrived"  # node: tokens that waited there for their siblings
OPEN = "open"  # node: tokens that have not ended
FIRST = "first"  # node: when the first token came, in ms
LAST = "last"  # node: when the last one ended, in ms
NOT_TAKEN = "not taken"  # transition: how often it was considered and not taken
SCOPES = "scopes"  # fan-out: scopes that it opened
BRANCHES = "branches"  # fan-out: branches of these scopes
NEEDED = "needed"  # fan-out, node of the join: branches that a quorum by expression needs
JOINED = "joined"  # fan-out, node of the join: branches that arrived at the join
CANCELLED = "cancelled"  # fan-out: cancelled branches
FAILED = "failed"  # fan-out: failed branches
RUN = "run"  # the state of the run, as an index into `RunProjection.run_states`


@dataclass
class CounterSnapshot:
    """The counters after a journal entry; missing counters are zero."""

    figures: dict[Name, int] = field(default_factory=dict)
    number: int = 0  # of the entry; 0: before the first
    at_ms: int | None = None
    last_number: int = 0  # of the last entry in the history

    def get(self, *name: str) -> int:
        return self.figures.get(name, 0)

    def add(self, by: int, *name: str) -> None:
        self.figures[name] = self.figures.get(name, 0) + by

    def under(self, *start: str) -> Iterator[tuple[Name, int]]:
        """Yield the counters whose names begin with `start`, without that start; no zeros."""
        size = len(start)
        for name, value in self.figures.items():
            if name[:size] == start and value:
                yield name[size:], value

    def counts(self, *start: str) -> Counter[str]:
        """Return the counters with one more part in the name than `start`, by that part."""
        return Counter({name[0]: value for name, value in self.under(*start) if len(name) == 1})


class CounterHistory:
    def __init__(self) -> None:
        self._places: dict[Name, int] = {}
        self._values = array("q")  # the current counters, by place
        self._changed: set[int] = set()  # places changed since the last `cut`
        # All changes, in order; `_ends` has the end of each entry's changes.
        self._change_places = array("q")
        self._change_values = array("q")
        self._ends = array("q")
        self._numbers = array("q")
        self._times = array("q")
        self._stills: list[array[int]] = []

    def get(self, *name: str) -> int:
        place = self._places.get(name)
        return 0 if place is None else self._values[place]

    def put(self, value: int, *name: str) -> None:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._values)
            self._values.append(0)
        self._values[place] = value
        self._changed.add(place)

    def add(self, by: int, *name: str) -> None:
        self.put(self.get(*name) + by, *name)

    def cut(self, number: int, at_ms: int) -> None:
        """Close a journal entry: store the counters that it changed."""
        for place in self._changed:
            self._change_places.append(place)
            self._change_values.append(self._values[place])
        self._changed.clear()
        self._ends.append(len(self._change_places))
        self._numbers.append(number)
        self._times.append(at_ms)
        if len(self._ends) % STILL_EVERY == 0:
            self._stills.append(self._values[:])

    def at(self, number: int) -> CounterSnapshot:
        """Return the counters after this entry; after a future entry, the current ones."""
        count = bisect_right(self._numbers, number)
        still = count // STILL_EVERY
        values = self._stills[still - 1][:] if still else array("q")
        values.extend([0] * (len(self._values) - len(values)))
        first = self._ends[still * STILL_EVERY - 1] if still else 0
        last = self._ends[count - 1] if count else 0
        for change in range(first, last):
            values[self._change_places[change]] = self._change_values[change]
        return CounterSnapshot(
            figures=dict(zip(self._places, values, strict=True)),
            number=self._numbers[count - 1] if count else 0,
            at_ms=self._times[count - 1] if count else None,
            last_number=self._numbers[-1] if self._numbers else 0,
        )
