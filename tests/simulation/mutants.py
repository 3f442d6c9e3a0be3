"""Which rules, if broken, would the simulation notice? All of these, by name."""

from tests.simulation import mutants_of_limits, mutants_of_tasks, mutants_of_workers

MUTANTS = [*mutants_of_tasks.MUTANTS, *mutants_of_workers.MUTANTS, *mutants_of_limits.MUTANTS]
