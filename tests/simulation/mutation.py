"""How is a rule broken on purpose? By a patch on the real code, for as long as a context lasts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from rota.store.sqlite import SqliteTransaction
from tests.simulation.profiles import Profile


@dataclass(frozen=True)
class Mutant:
    """A broken rule, the profile in which it matters most, and how many seeds will notice."""

    name: str
    profile: Profile
    seeds: int
    applied: Callable[[], AbstractContextManager[None]]


MUTANTS: list[Mutant] = []

Body = Callable[[], Iterator[None]]


def mutant(profile: Profile, *, seeds: int = 10) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        MUTANTS.append(Mutant(body.__name__, profile, seeds, contextmanager(body)))
        return body

    return register


def skipping(*queries: str) -> AbstractContextManager[Any]:
    """The store believes that it has run these statements."""
    run, many = SqliteTransaction.run, SqliteTransaction.many

    def pretended_run(self: SqliteTransaction, query: str, /, *parameters: object) -> int:
        if query in queries:
            return sum(len(one) for one in parameters if isinstance(one, list))
        return run(self, query, *parameters)

    def pretended_many(
        self: SqliteTransaction, query: str, rows: Iterable[Sequence[object]], /
    ) -> int:
        return len(list(rows)) if query in queries else many(self, query, rows)

    return patch.multiple(SqliteTransaction, run=pretended_run, many=pretended_many)
