"""Which rules about shards, if broken, would the simulation notice? All of these, by name."""

from tests.simulation.shards import mutants_of_coordinators, mutants_of_members

MUTANTS = [*mutants_of_coordinators.MUTANTS, *mutants_of_members.MUTANTS]
