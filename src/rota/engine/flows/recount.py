"""Recounts limits: what the writer holds in memory, compared with what the store has.

The number of running tasks of a limit has to be the leases of its flows, and the slots that outlive
a lease. A flow with queued tasks has to be in exactly one place: active, or under a limit.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from rota.core.flows.commands import LimitsRecounted
from rota.engine.working_set.held_flows import HeldFlows

MOST_DIFFERENCES = 20  # that are reported


def recount(held: HeldFlows, fresh: HeldFlows) -> LimitsRecounted:
    """Compare held flows with those that were just loaded from the store."""
    return LimitsRecounted(
        limits=len(held.limits.by_key),
        slots=len(held.limits.slots),
        flows=len(held.open),
        differences=[*islice(_differences(held, fresh), MOST_DIFFERENCES)],
    )


def _differences(held: HeldFlows, fresh: HeldFlows) -> Iterator[str]:
    ours, theirs = held.limits, fresh.limits
    for key, counted, stored in _unequal(ours.running, theirs.running):
        yield f"limit {key!r} counts {counted} running, the store has {stored}"
    for key, counted, stored in _unequal(ours.waiting, theirs.waiting):
        yield f"limit {key!r} counts {counted} waiting, the store has {stored}"
    for number, counted, stored in _unequal(_queued(held), _queued(fresh)):
        yield f"flow {number} counts {counted} queued, the store has {stored}"
    for flow in held.admission.misplaced(held.open.values()):
        yield f"flow {flow.number} is not in exactly one of active and blocked"


def _queued(flows: HeldFlows) -> dict[str, int]:
    return {str(number): flow.queued for number, flow in flows.open.items()}


def _unequal(held: Mapping[str, int], fresh: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    for key in sorted(held.keys() | fresh.keys()):
        counted, stored = held.get(key, 0), fresh.get(key, 0)
        if counted != stored:
            yield key, counted, stored
