"""Makes the policies of the core from the operator's settings."""

from rota.core.context import Rules
from rota.core.quotas import ValuePolicy
from rota.core.shards.members import ShardPolicy
from rota.core.workers.model import HealthPolicy
from rota.core.workers.scoring import ScoringPolicy
from rota.core.workers.selection import Strategy
from rota.settings import Settings

HEARTBEATS_PER_LEASE = 3  # that members of services are asked for: two may be lost


def policies_of(settings: Settings) -> Rules:
    """Return the rules that a coordinator with these settings decides by."""
    health = HealthPolicy(
        degraded_after=settings.degraded_after, unhealthy_after=settings.unhealthy_after
    )
    return Rules(
        health=health,
        scoring=ScoringPolicy(lifetime=settings.scoring == "lifetime"),
        strategy=Strategy(settings.strategy),
        job_lease_ms=settings.job_lease_ms,
        unclaimed_lease_ms=settings.unclaimed_lease_ms,
        values=ValuePolicy(
            max_values=settings.max_values, max_values_bytes=settings.max_values_bytes
        ),
        shards=ShardPolicy(
            lease_ms=settings.shard_lease_ms,
            heartbeat_interval_ms=max(1, settings.shard_lease_ms // HEARTBEATS_PER_LEASE),
            sweep_ms=settings.shard_sweep_ms,
            stuck_ms=settings.shard_stuck_ms,
            when_stuck=settings.shard_stuck,
            health=health,
        ),
        max_workers=settings.max_workers,
        max_attempt_bytes=settings.max_attempt_bytes,
        max_artifacts_bytes=settings.max_artifacts_bytes,
    )
