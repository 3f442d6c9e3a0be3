"""When the faults have healed: is everything owned, in balance, and acted on by its owner?"""

from collections.abc import Sequence
from fractions import Fraction

from rota.core.shards.service import Service
from tests.simulation.shards.members import Member
from tests.simulation.shards.processes import Process


def unsettled(service: Service, living: Sequence[Process]) -> str | None:
    """What is not yet as it should be; None: nothing."""
    return (
        _not_all_members(service, living)
        or _not_all_owned(service)
        or _out_of_balance(service)
        or _not_acted_on(service, living)
    )


def _not_all_members(service: Service, living: Sequence[Process]) -> str | None:
    here = sorted(process.worker_id for process in living)
    if sorted(service.members) != here:
        return f"members are {sorted(service.members)}, and not {here}"
    for process in living:
        member = service.members[process.worker_id]
        if isinstance(process, Member):
            if process.is_leaving:
                return f"{process.worker_id} has not left yet"
            incarnation = process.holding.applicant.incarnation
            if member.incarnation != incarnation:
                return f"{process.worker_id} is known as {member.incarnation}, not {incarnation}"
        if member.fenced is not None or member.draining:
            return f"{process.worker_id} is fenced or draining"
    named = {process.shard_count for process in living}
    if named != {service.shard_count}:
        return f"the count is {service.shard_count}, and everybody names {named}"
    return None


def _not_all_owned(service: Service) -> str | None:
    if service.revoking:
        return f"still revoking {service.revoking}"
    for shard, (owner, target) in enumerate(zip(service.owners, service.targets, strict=True)):
        if owner != target or (owner is None) is (shard < service.shard_count):
            return f"shard {shard} is owned by {owner}, and should be by {target}"
    return None


def _out_of_balance(service: Service) -> str | None:
    """Everybody has its share, to within one."""
    total = sum(member.weight for member in service.members.values())
    for worker_id, member in service.members.items():
        share = Fraction(service.shard_count * member.weight, total)
        owned = len(service.owned.get(worker_id, ()))
        if abs(owned - share) >= 1:
            return f"{worker_id} has {owned} shards, and its share is {share}"
    return None


def _not_acted_on(service: Service, living: Sequence[Process]) -> str | None:
    for process in living:
        owned = {*service.owned.get(process.worker_id, ())}
        if process.shards() != owned:
            return f"{process.worker_id} holds {process.shards()} and owns {owned}"
        if not all(process.is_acting(shard) for shard in owned):
            return f"{process.worker_id} does not act on what it owns"
        if isinstance(process, Member):
            epochs = {shard: service.epochs[shard] for shard in owned}
            known = {shard: held.epoch for shard, held in process.holding.held.items()}
            if epochs != known:
                return f"{process.worker_id} knows the epochs {known}, and they are {epochs}"
    return None
