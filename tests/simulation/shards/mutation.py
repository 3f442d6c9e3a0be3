"""How is a rule about shards broken on purpose? By a patch, for as long as a context lasts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.simulation.shards.profiles import Profile


@dataclass(frozen=True)
class Mutant:
    """A broken rule, the profile in which it matters most, and how many seeds it may take."""

    name: str
    profile: Profile
    seeds: int
    applied: Callable[[], AbstractContextManager[None]]


MUTANTS: list[Mutant] = []

Body = Callable[[], Iterator[None]]


def mutant(profile: Profile, *, seeds: int = 20) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        MUTANTS.append(Mutant(body.__name__, profile, seeds, contextmanager(body)))
        return body

    return register
