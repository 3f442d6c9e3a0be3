"""Which rules about shards, if broken, would the simulation notice? All of these, by name."""

from tests.simulation.shards import mutants_of_coordinators, mutants_of_members
from tests.simulation.shards.mutation import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "mutants_of_coordinators", "mutants_of_members"]
