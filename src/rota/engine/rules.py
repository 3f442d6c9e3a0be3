"""Which policies do an operator's settings stand for?"""

from rota.core.choosing import Strategy
from rota.core.scoring import ScoringPolicy
from rota.core.snapshot import Rules
from rota.core.workers import HealthPolicy
from rota.settings import Settings


def rules_of(settings: Settings) -> Rules:
    return Rules(
        health=HealthPolicy(
            degraded_after=settings.degraded_after, unhealthy_after=settings.unhealthy_after
        ),
        scoring=ScoringPolicy(lifetime=settings.scoring == "lifetime"),
        strategy=Strategy(settings.strategy),
        job_lease_ms=settings.job_lease_ms,
        unclaimed_lease_ms=settings.unclaimed_lease_ms,
    )
