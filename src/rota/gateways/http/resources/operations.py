"""Health checks, metrics, the overview, and the coordinator itself."""

import asyncio
import platform
from collections import Counter

import msgspec

from rota import __version__
from rota.addresses import without_password
from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.replicas import is_away
from rota.core.tasks.model import TaskState
from rota.core.workers.model import WorkerState
from rota.engine.coordinator import Coordinator
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.dashboard import Backlog, StateCounts
from rota.errors import Unavailable
from rota.gateways.http.prometheus import exposition
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.http.views.workers import worker_view
from rota.messages import (
    Answer,
    Check,
    HealthAnswer,
    LimitView,
    Overview,
    ReplicaView,
    SettingView,
    StoreView,
    SystemView,
)
from rota.messages.dashboard import ShardCounts
from rota.settings import Settings

DUTY_SILENCE_MS = 60_000  # all are due every ten seconds or less; one silent for longer is stuck

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
    return encoded(answer, 200 if is_healthy else 503)


def _checks(coordinator: Coordinator, now_ms: int) -> list[Check]:
    has_store = coordinator.store_problem is None
    checks = [
        Check(
            component="store",
            isHealthy=has_store,
            # This needs no token; the reason is in the log.
            detail=None if has_store else "cannot be used; the log has the reason",
        ),
        Check(
            component="engine",
            isHealthy=coordinator.is_ready,
            detail=None if coordinator.is_ready else "starting or stopping",
        ),
    ]
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


@routes.get("/health/ready", None, errors=(Unavailable,))
async def ready(call: HttpCall[None, NoQuery]) -> Alive:
    """Show whether the coordinator accepts requests."""
    if not call.coordinator.is_ready:
        raise Unavailable("the coordinator is starting or stopping")
    if call.coordinator.store_problem is not None:
        raise Unavailable("the store cannot be used at the moment")
    return Alive(status="ready")


@routes.get("/metrics", Action.READ, answer=str, media_type="text/plain")
async def show_metrics(call: HttpCall[None, NoQuery]) -> HttpResponse:
    """Show the metrics for Prometheus.

    A token that is bound to queues or services gets the metrics of those.
    """
    observed = await exposition.observe(
        call.coordinator, call.settings, call.services.traffic, call.caller
    )
    # Writing out many queues takes a while, and reads files about this process.
    content = await asyncio.to_thread(exposition.render, observed)
    return HttpResponse(content, media_type=exposition.MEDIA_TYPE)


# --- the overview ------------------------------------------------------------------------------


@routes.get("/api/overview", Action.READ)
async def overview(call: HttpCall[None, NoQuery]) -> Overview:
    """Count everything: tasks and runs by state, workers by health, shards."""
    coordinator, own = call.coordinator, call.caller.queues
    dashboard = coordinator.queries.dashboard
    waiting = [one for one in await dashboard.backlog() if own is None or one.lane.queue in own]
    names = await coordinator.queries.queues.names()
    counts = await dashboard.counts() if own is None else StateCounts(tasks=_live(waiting), runs={})
    return Overview(
        now_ms=coordinator.clock.now_ms(),
        version=__version__,
        tasks=counts.tasks,
        runs=counts.runs,
        workers=await _workers(coordinator, call.settings, call.caller),
        queues=len(names.known if own is None else names.known & {*own}),
        paused_queues=sorted(names.paused if own is None else names.paused & {*own}),
        stuck=sum(one.figures.queued for one in waiting if one.why.is_stuck),
        shards=_shards(coordinator, call.caller.services),
    )


def _live(waiting: list[Backlog]) -> dict[str, int]:
    """The live counts of a caller that is bound to queues; its history is not counted."""
    return {
        TaskState.SCHEDULED.value: sum(one.figures.scheduled for one in waiting),
        TaskState.QUEUED.value: sum(one.figures.queued for one in waiting),
        TaskState.RUNNING.value: sum(one.figures.running for one in waiting),
    }


async def _workers(coordinator: Coordinator, settings: Settings, caller: Caller) -> dict[str, int]:
    now_ms = coordinator.clock.now_ms()
    counts: Counter[str] = Counter()
    for figures in await coordinator.queries.workers.all():
        if not access.may_see_worker(caller, figures.worker.queues):
            continue
        view = worker_view(figures, now_ms=now_ms, settings=settings)
        counts[view.health.value] += 1
        if view.state is not WorkerState.ACTIVE:
            counts[view.state.value] += 1
    return dict(counts)


def _shards(coordinator: Coordinator, own: tuple[str, ...] | None) -> ShardCounts:
    found = [
        one.gauges
        for name, one in list(coordinator.metrics().services.items())
        if one.gauges and (own is None or name in own)
    ]
    shards, unowned = sum(one.shard_count for one in found), sum(one.unowned for one in found)
    return ShardCounts(
        services=len(found),
        shards=shards,
        owned=shards - unowned,
        unowned=unowned,
        moving=sum(one.revoking for one in found),
    )


# --- the coordinator itself --------------------------------------------------------------------


@routes.get("/api/system", Action.READ)
async def show(call: HttpCall[None, NoQuery]) -> SystemView:
    """Show the coordinator's version, store, settings, limits and metrics."""
    access.check_unbound(call.caller, "the coordinator's figures and settings")
    coordinator, settings = call.coordinator, call.settings
    return SystemView(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        started_at_ms=coordinator.started_at_ms,
        now_ms=coordinator.clock.now_ms(),
        store=StoreView(
            kind=settings.store.partition(":")[0],
            place=without_password(settings.store),
            size_bytes=await coordinator.queries.dashboard.store_bytes(),
        ),
        figures=_figures(coordinator.metrics()),
        settings=_settings(settings),
        limits=[
            LimitView(name=name, value=value)
            for name, value in vars(limits).items()
            if name.isupper() and isinstance(value, int)
        ],
        replicas=await replicas(coordinator),
        warnings=call.services.authenticator.warnings(),
    )


async def replicas(coordinator: Coordinator) -> list[ReplicaView]:
    """The coordinators that work on the store, this one among them."""
    own = coordinator.presence.replica
    found = await coordinator.queries.dashboard.replicas() if coordinator.is_shared else []
    others = [one for one in found if one.name != own.name]
    now_ms = coordinator.clock.now_ms()
    return [
        ReplicaView(
            name=one.name,
            url=one.url,
            host=one.host,
            version=one.version,
            started_at_ms=one.started_at_ms,
            seen_ms=one.seen_ms,
            is_away=is_away(one, now_ms=now_ms),
            is_here=one is own,
        )
        for one in sorted([own, *others], key=lambda one: one.name)
    ]


def _figures(figures: Metrics) -> dict[str, float]:
    batches = max(1, figures.batches)
    return {
        "commits": figures.batches,
        "failed_commits": figures.failed_batches,
        "events_per_commit": figures.batched_events / batches,
        "commit_ms": figures.commit_seconds * 1000 / batches,
        "changes_waiting": figures.waiting,
        "lease_calls_waiting": figures.waiting_leases,
        "leased": figures.leased,
        "refused_results": sum(figures.refused_results.values()),
        "evicted_workers": figures.evicted_workers,
        "held_sweeps": sum(figures.held_sweeps.values()),
        "overloads": figures.overloads,
        "events_told": figures.events,
        "event_watchers": figures.watchers,
        "forgotten": figures.forgotten,
    }


def _settings(settings: Settings) -> list[SettingView]:
    found = []
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        meta = getattr(field.type, "__metadata__", ())
        found.append(
            SettingView(
                name=field.name,
                value=without_password(value) if field.name == "store" else value,
                is_default=value == field.default,
                description=next((one.description for one in meta if one.description), ""),
            )
        )
    return found
