"""Makes the policies of the core from the operator's settings."""

from rota.core.context import Rules
from rota.core.quotas import ValuePolicy
from rota.core.workers.model import HealthPolicy
from rota.core.workers.scoring import ScoringPolicy
from rota.core.workers.selection import Strategy
from rota.settings import Settings


def policies_of(settings: Settings) -> Rules:
    return Rules(
        health=HealthPolicy(
            degraded_after=settings.degraded_after, unhealthy_after=settings.unhealthy_after
        ),
        scoring=ScoringPolicy(lifetime=settings.scoring == "lifetime"),
        strategy=Strategy(settings.strategy),
        job_lease_ms=settings.job_lease_ms,
        unclaimed_lease_ms=settings.unclaimed_lease_ms,
        values=ValuePolicy(
            max_values=settings.max_values, max_values_bytes=settings.max_values_bytes
        ),
        max_workers=settings.max_workers,
        max_attempt_bytes=settings.max_attempt_bytes,
        max_artifacts_bytes=settings.max_artifacts_bytes,
    )
