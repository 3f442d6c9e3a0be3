"""How is a rule broken on purpose? By a patch on the real code, for as long as a context lasts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from unittest.mock import patch

from rota.store.sqlite.database import SqliteTransaction
from tests.simulation.trace import Violation


class Named(Protocol):
    """A kind of bad day; each simulation has its own."""

    @property
    def name(self) -> str: ...


ProfileT = TypeVar("ProfileT", bound=Named)
Body = Callable[[], Iterator[None]]


@dataclass(frozen=True)
class Mutant(Generic[ProfileT]):
    """A broken rule, the profile in which it matters most, and how many seeds it may take."""

    name: str
    profile: ProfileT
    seeds: int
    applied: Callable[[], AbstractContextManager[None]]


class Mutants(list[Mutant[ProfileT]]):
    """The broken rules of a module, each added by its decorator."""

    def __init__(self, *, seeds: int) -> None:
        super().__init__()
        self._seeds = seeds

    def add(self, profile: ProfileT, *, seeds: int | None = None) -> Callable[[Body], Body]:
        def register(body: Body) -> Body:
            self.append(Mutant(body.__name__, profile, seeds or self._seeds, contextmanager(body)))
            return body

        return register


def seed_that_notices(mutant: Mutant[ProfileT], simulate: Callable[[int, ProfileT], object]) -> int:
    for seed in range(mutant.seeds):
        with mutant.applied():
            try:
                simulate(seed, mutant.profile)
            except Violation:
                return seed
    raise AssertionError(f"{mutant.name} survived {mutant.seeds} seeds of {mutant.profile.name}")


def skipping(*queries: str) -> AbstractContextManager[Any]:
    """The store believes that it has run these statements."""
    execute, execute_many = SqliteTransaction.execute, SqliteTransaction.execute_many

    def pretended_execute(self: SqliteTransaction, query: str, /, **parameters: object) -> int:
        if query in queries:
            return sum(len(one) for one in parameters.values() if isinstance(one, list))
        return execute(self, query, **parameters)

    def pretended_execute_many(
        self: SqliteTransaction, query: str, names: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> int:
        if query in queries:
            return len(list(rows))
        return execute_many(self, query, names, rows)

    return patch.multiple(
        SqliteTransaction, execute=pretended_execute, execute_many=pretended_execute_many
    )
