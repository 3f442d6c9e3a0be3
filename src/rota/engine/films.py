"""How did the figures of a run's graph change, entry by entry?

A person drags a slider over the journal of a run with ten thousand branches, and at each moment the
graph is painted as it was. Reading the journal up to that moment takes too long, and keeping every
moment too much. A film keeps what changed: for each entry the figures that got a new value, and a
still of all of them every so often. A moment is the still before it and the changes since: it
costs the same wherever it is. A figure is a small number under a name, which is a tuple.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Name = tuple[str, ...]

STILL_EVERY = 256  # entries


@dataclass
class Moment:
    """The figures after an entry; those that are not there are zero."""

    figures: dict[Name, int] = field(default_factory=dict)
    number: int = 0  # of the entry; 0: before the first
    at_ms: int | None = None
    last_number: int = 0  # of the last entry there is

    def get(self, *name: str) -> int:
        return self.figures.get(name, 0)

    def add(self, by: int, *name: str) -> None:
        self.figures[name] = self.figures.get(name, 0) + by

    def under(self, *start: str) -> Iterator[tuple[Name, int]]:
        """The rest of all names that begin so, with their figures."""
        size = len(start)
        for name, value in self.figures.items():
            if name[:size] == start and value:
                yield name[size:], value

    def counts(self, *start: str) -> Counter[str]:
        """Figures by the last part of their names."""
        return Counter({name[0]: value for name, value in self.under(*start) if len(name) == 1})


class Film:
    def __init__(self) -> None:
        self._places: dict[Name, int] = {}
        self._values = array("q")  # as they are now, by place
        self._changed: set[int] = set()  # places, since the last cut
        # What changed, one after the other; `_ends` says where each entry's changes end.
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
        """An entry has been told whole."""
        for place in self._changed:
            self._change_places.append(place)
            self._change_values.append(self._values[place])
        self._changed.clear()
        self._ends.append(len(self._change_places))
        self._numbers.append(number)
        self._times.append(at_ms)
        if len(self._ends) % STILL_EVERY == 0:
            self._stills.append(self._values[:])

    def at(self, number: int) -> Moment:
        """The figures as they were after this entry; of one that is still to come, as they are."""
        count = bisect_right(self._numbers, number)
        still = count // STILL_EVERY
        values = self._stills[still - 1][:] if still else array("q")
        values.extend([0] * (len(self._values) - len(values)))
        first = self._ends[still * STILL_EVERY - 1] if still else 0
        last = self._ends[count - 1] if count else 0
        for change in range(first, last):
            values[self._change_places[change]] = self._change_values[change]
        return Moment(
            figures=dict(zip(self._places, values, strict=True)),
            number=self._numbers[count - 1] if count else 0,
            at_ms=self._times[count - 1] if count else None,
            last_number=self._numbers[-1] if self._numbers else 0,
        )
