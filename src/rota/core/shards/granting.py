"""Who gets what nobody owns?"""

from rota.core.shards import waiting
from rota.core.shards.service import Service


def grant(service: Service, *, now_ms: int) -> None:
    """Every shard that is without an owner goes to whom it shall belong."""
    for worker_id, shards in sorted(service.grantable.items()):
        # A fenced member is told nothing; it lost its targets with the event that fenced it.
        assert service.members[worker_id].fenced is None
        service.grant(worker_id, shards)
        waiting.answer(service, worker_id, now_ms=now_ms)
