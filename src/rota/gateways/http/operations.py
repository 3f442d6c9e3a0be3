"""Operations over HTTP: is the coordinator well, and what does it do?"""

import asyncio

from rota import __version__
from rota.core.access import Action
from rota.engine.coordinator import Coordinator
from rota.errors import Unavailable
from rota.gateways.http import metrics
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import Answer, Check, HealthAnswer

DUTY_SILENCE_MS = 60_000  # all are due every ten seconds or less; one silent for longer is stuck


class Alive(Answer, frozen=True, kw_only=True):
    status: str


async def health(call: Call[None, NoQuery]) -> Answered:
    coordinator = call.coordinator
    now_ms = coordinator.clock.now_ms()
    checks = _checks(coordinator, now_ms)
    is_healthy = all(check.isHealthy for check in checks)
    answer = HealthAnswer(
        status="healthy" if is_healthy else "unhealthy",
        checks=checks,
        components=checks,
        uptime=max(0, now_ms - coordinator.started_at_ms) / 1000,
        timestamp=now_ms,
        version=__version__,
        warnings=call.service.gate.warnings(),
    )
    return encoded(answer, 200 if is_healthy else 503)


def _checks(coordinator: Coordinator, now_ms: int) -> list[Check]:
    has_store = coordinator.store_problem is None
    checks = [
        Check(
            component="store",
            isHealthy=has_store,
            # Everybody may ask this; what exactly is wrong stands in the log.
            detail=None if has_store else "cannot be used; the log has the reason",
        ),
        Check(
            component="engine",
            isHealthy=coordinator.is_ready,
            detail=None if coordinator.is_ready else "starting or stopping",
        ),
    ]
    checks.append(shards_check(coordinator, coordinator.steady_clock.now_ms()))
    for duty, ran_at_ms in sorted(coordinator.figures().duty_runs_ms.items()):
        silence_ms = max(0, now_ms - ran_at_ms)
        checks.append(
            Check(
                component=f"duty:{duty}",
                isHealthy=silence_ms <= DUTY_SILENCE_MS,
                detail=f"last run {silence_ms} ms ago",
            )
        )
    return checks


def shards_check(coordinator: Coordinator, now_ms: int) -> Check:
    """Whether every shard that could have an owner has one, and what moves comes to its end."""
    policy = coordinator.shard_policy
    stranded = stuck = 0
    for service in list(coordinator.figures().services.values()):
        gauges, since_ms = service.gauges, service.stranded_since_ms
        if gauges is None:
            continue
        if since_ms is not None and now_ms - since_ms > policy.lease_ms:
            stranded += gauges.stranded
        stuck += gauges.oldest_revoke_ms > policy.stuck_ms
    # Everybody may ask this; which services they are stands in the metrics.
    troubles = []
    if stranded:
        troubles.append(f"shards without an owner for more than {policy.lease_ms} ms: {stranded}")
    if stuck:
        troubles.append(f"services whose shards do not move within {policy.stuck_ms} ms: {stuck}")
    detail = "; ".join(troubles) or None
    return Check(component="shards", isHealthy=detail is None, detail=detail)


async def live(_call: Call[None, NoQuery]) -> Alive:
    return Alive(status="alive")


async def ready(call: Call[None, NoQuery]) -> Alive:
    if not call.coordinator.is_ready:
        raise Unavailable("the coordinator is starting or stopping")
    if call.coordinator.store_problem is not None:
        raise Unavailable("the store cannot be used at the moment")
    return Alive(status="ready")


async def show_metrics(call: Call[None, NoQuery]) -> Answered:
    observed = await metrics.observe(call.coordinator, call.settings, call.service.traffic)
    # Writing out many queues takes a while, and reads files about this process.
    content = await asyncio.to_thread(metrics.render, observed)
    return Answered(content, media_type=metrics.MEDIA_TYPE)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/health",
        summary="Say whether the coordinator is well, and each of its parts",
        noun="Operations",
        action=None,
        handler=health,
        answer=HealthAnswer,
        other_statuses=(503,),
    ),
    Endpoint(
        method="GET",
        path="/health/live",
        summary="Say that the process runs",
        noun="Operations",
        action=None,
        handler=live,
        answer=Alive,
    ),
    Endpoint(
        method="GET",
        path="/health/ready",
        summary="Say whether requests are taken",
        noun="Operations",
        action=None,
        handler=ready,
        answer=Alive,
        errors=(Unavailable,),
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus",
        noun="Operations",
        action=Action.READ,
        handler=show_metrics,
        answer=str,
        media_type="text/plain",
    ),
)
