"""Which rules, if broken, would the simulation notice? All of these, by name."""

from tests.simulation import mutants_of_tasks, mutants_of_workers
from tests.simulation.mutation import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "mutants_of_tasks", "mutants_of_workers"]
