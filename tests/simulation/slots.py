"""Who is in a slot of a limit? Asked at the handlers, not at the coordinator.

A handler is in its slots from its beginning to its end, while its process lives and is awake, and
while its worker neither was told to stop nor has lost its own lease. Rash workers do not stop when
they should, so they are not asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rota.core.flows.model import Concurrency, listed_concurrency
from rota.core.tasks.model import TaskRecord
from tests.simulation.invariants import demand

# The most that each key was ever given; only the last one is changed on the way.
MOST = {"one": 1, "two": 2, "changed": 3}


@dataclass(eq=False)
class Handler:
    task: TaskRecord
    is_in: Callable[[], bool]


@dataclass
class Slots:
    _by_key: dict[str, list[Handler]] = field(default_factory=dict)
    entered: int = 0  # handlers so far

    def enter(self, task: TaskRecord, is_in: Callable[[], bool]) -> Handler:
        """Begin a handler, and count who else is in its slots at this moment."""
        handler = Handler(task, is_in)
        for key in _keys(task):
            inside = [one for one in self._by_key.get(key, ()) if one.is_in()]
            self._by_key[key] = [*inside, handler]
            self.entered += 1
            names = [f"{one.task.id:x}" for one in self._by_key[key]]
            demand(len(names) <= MOST[key], f"{names} are in {MOST[key]} slots of {key!r}")
        return handler

    def leave(self, handler: Handler) -> None:
        for key in _keys(handler.task):
            self._by_key[key] = [one for one in self._by_key[key] if one is not handler]


def _keys(task: TaskRecord) -> list[str]:
    return [one.key for one in listed_concurrency(task.options.concurrency)]


def slot(key: str, limit: int, *, is_kept: bool) -> Concurrency:
    return Concurrency(key=key, limit=limit, hold="task" if is_kept else "attempt")
