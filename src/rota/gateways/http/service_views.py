"""How does a service look over HTTP?"""

from rota.engine import shard_views
from rota.messages import MemberView, ServiceSummary, ServiceView
from rota.messages.shards import THOUSANDTHS


def summary_of(service: shard_views.ServiceSummary) -> ServiceSummary:
    return ServiceSummary(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        member_count=service.members,
        unowned=service.unowned,
        moving=service.moving,
    )


def service_view(service: shard_views.ServiceView) -> ServiceView:
    return ServiceView(
        name=service.name,
        shard_count=service.shard_count,
        pinned=service.pinned,
        min_protocol=service.min_protocol,
        generation=service.generation,
        member_count=len(service.members),
        unowned=service.unowned,
        moving=service.moving,
        members=[_member_view(member) for member in service.members],
    )


def _member_view(member: shard_views.MemberView) -> MemberView:
    return MemberView(
        worker_id=member.worker_id,
        shards=member.shards,
        epochs=member.epochs,
        target=member.target,
        weight=member.weight / THOUSANDTHS,
        draining=member.draining,
        health=member.health,
        protocol=member.protocol,
        last_heartbeat_ms=member.seen_ms,
        max_shards=member.max_shards,
        fenced=member.fenced,
    )
