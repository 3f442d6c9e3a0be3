"""Health checks of the coordinator and its parts."""

from rota import __version__
from rota.core.replicas import Role
from rota.engine.coordinator import Coordinator
from rota.engine.replicas.held import NO_LEADER
from rota.errors import StoreFull, Unavailable
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded, extra_headers
from rota.messages import Answer, Check, HealthAnswer

DUTY_SILENCE_MS = 60_000  # all are due every ten seconds or less; one silent for longer is stuck
LAPSED = "this leader could not extend its lease in time, so another one may lead the store now"

routes = Routes("Operations")


class Alive(Answer, frozen=True, kw_only=True):
    status: str


@routes.get("/health", None, answer=HealthAnswer, other_statuses=(503,))
async def health(call: HttpCall[None, NoQuery]) -> HttpResponse:
    """Show whether the coordinator and each of its parts are healthy."""
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
        warnings=call.services.authenticator.warnings(),
    )
    if is_healthy:
        return encoded(answer)
    return encoded(answer, 503)._replace(headers=extra_headers(Unavailable("unhealthy")))


def _checks(coordinator: Coordinator, now_ms: int) -> list[Check]:
    checks = [
        store_check(coordinator),
        Check(
            component="engine",
            isHealthy=not coordinator.is_stopping,
            detail="starting or stopping" if coordinator.is_stopping else None,
        ),
    ]
    if coordinator.is_shared:
        checks.append(leader_check(coordinator))
    checks.append(shards_check(coordinator, coordinator.steady_clock.now_ms()))
    for duty, ran_at_ms in sorted(coordinator.metrics().duty_runs_ms.items()):
        silence_ms = max(0, now_ms - ran_at_ms)
        checks.append(
            Check(
                component=f"duty:{duty}",
                isHealthy=silence_ms <= DUTY_SILENCE_MS,
                detail=f"last run {silence_ms} ms ago",
            )
        )
    return checks


def store_check(coordinator: Coordinator) -> Check:
    """Whether the store can be used; little free space is a warning, and still healthy."""
    if coordinator.is_store_full:
        detail = "its disk is full; changes are refused until there is free space"
        return Check(component="store", isHealthy=False, detail=detail)
    if coordinator.store_problem is not None:
        # This needs no token; the reason is in the log.
        detail = "cannot be used; the log has the reason"
        return Check(component="store", isHealthy=False, detail=detail)
    is_low = coordinator.metrics().is_store_disk_low
    detail_of_space = "little free space is left on its disk" if is_low else None
    return Check(component="store", isHealthy=True, detail=detail_of_space)


def leader_check(coordinator: Coordinator) -> Check:
    """Whether this coordinator leads the store, or is connected to the leader."""
    membership = coordinator.membership
    # This needs no token; the name and the address of the leader are in `GET /api/system`.
    if not coordinator.has_leader:
        detail = "no leader is reached; changes are refused until there is one"
        return Check(component="leader", isHealthy=False, detail=detail)
    if membership.has_lapsed:
        return Check(component="leader", isHealthy=False, detail=LAPSED)
    known = membership.leader
    verb = "leads" if membership.role is Role.LEADER else "follows the leader"
    detail = f"{verb}, epoch {known.epoch}" if known is not None else verb
    return Check(component="leader", isHealthy=True, detail=detail)


def shards_check(coordinator: Coordinator, now_ms: int) -> Check:
    """Whether every shard has an owner if it can, and no move is stuck."""
    policy = coordinator.rules.shards
    stranded = stuck = 0
    for service in list(coordinator.metrics().services.values()):
        gauges, since_ms = service.gauges, service.stranded_since_ms
        if gauges is None:
            continue
        if since_ms is not None and now_ms - since_ms > policy.lease_ms:
            stranded += gauges.stranded
        stuck += gauges.oldest_revoke_ms > policy.stuck_ms
    # This needs no token; the names of the services are in the metrics.
    problems = []
    if stranded:
        problems.append(f"shards without an owner for more than {policy.lease_ms} ms: {stranded}")
    if stuck:
        problems.append(f"services whose shards do not move within {policy.stuck_ms} ms: {stuck}")
    detail = "; ".join(problems) or None
    return Check(component="shards", isHealthy=detail is None, detail=detail)


@routes.get("/health/live", None)
async def live(_call: HttpCall[None, NoQuery]) -> Alive:
    """Answer as long as the process runs."""
    return Alive(status="alive")


@routes.get("/health/ready", None, errors=(StoreFull, Unavailable))
async def ready(call: HttpCall[None, NoQuery]) -> Alive:
    """Show whether the coordinator accepts requests."""
    if call.coordinator.is_stopping:
        raise Unavailable("the coordinator is starting or stopping")
    if call.coordinator.membership.has_lapsed:
        raise Unavailable(LAPSED)
    if call.coordinator.is_store_full:
        raise StoreFull
    if call.coordinator.store_problem is not None:
        raise Unavailable("the store cannot be used at the moment")
    if not call.coordinator.has_leader:
        raise Unavailable(NO_LEADER)
    return Alive(status="ready")
