"""Metrics, the overview, and the coordinator itself."""

import asyncio
import platform
from collections import Counter

import msgspec

from rota import __version__
from rota.addresses import without_password
from rota.core import access, limits
from rota.core.access import Action, Caller
from rota.core.replicas import Leader, Replica, Role, is_away
from rota.core.tasks.model import TaskState
from rota.core.workers.model import WorkerState
from rota.engine.coordinator import Coordinator
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.dashboard import Backlog, StateCounts
from rota.gateways.http.prometheus import exposition
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse
from rota.gateways.http.views.workers import worker_view
from rota.messages import (
    LeaderView,
    LimitView,
    Overview,
    ReplicaView,
    SettingView,
    StoreView,
    SystemView,
)
from rota.messages.dashboard import ShardCounts
from rota.settings import Settings

routes = Routes("Operations")


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
        unacknowledged=counts.unacknowledged,
        waits=await coordinator.queries.waits.counts() if own is None else {},
        shards=await _shards(coordinator, call.caller.services),
        leader=leader(coordinator) if own is None and call.caller.services is None else None,
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


async def _shards(coordinator: Coordinator, own: tuple[str, ...] | None) -> ShardCounts:
    if coordinator.membership.role is Role.LEADER:
        counts = [
            (one.gauges.shard_count, one.gauges.unowned, one.gauges.revoking)
            for name, one in list(coordinator.metrics().services.items())
            if one.gauges and (own is None or name in own)
        ]
    else:  # only the leader sweeps
        counts = [
            (one.shard_count, one.unowned, one.moving)
            for one in await coordinator.queries.services.all()
            if own is None or one.name in own
        ]
    shards, unowned = sum(one[0] for one in counts), sum(one[1] for one in counts)
    return ShardCounts(
        services=len(counts),
        shards=shards,
        owned=shards - unowned,
        unowned=unowned,
        moving=sum(one[2] for one in counts),
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
            disk_free_bytes=coordinator.metrics().store_disk_free_bytes,
            is_disk_low=coordinator.metrics().is_store_disk_low,
            is_full=coordinator.is_store_full,
        ),
        figures=_figures(coordinator.metrics()),
        settings=_settings(settings),
        limits=[
            LimitView(name=name, value=value)
            for name, value in vars(limits).items()
            if name.isupper() and isinstance(value, int)
        ],
        replicas=await replicas(coordinator),
        role=coordinator.membership.role,
        leader=leader(coordinator),
        warnings=call.services.authenticator.warnings(),
    )


def leader(coordinator: Coordinator) -> LeaderView | None:
    """The leader that this coordinator last knew; None: the store is not shared."""
    known = coordinator.membership.leader
    if known is None:
        return None
    return LeaderView(
        name=known.name,
        address=known.address,
        epoch=known.epoch,
        since_ms=known.since_ms,
        is_here=known.name == coordinator.membership.name,
    )


async def replicas(coordinator: Coordinator) -> list[ReplicaView]:
    """The coordinators that work on the store, this one among them."""
    membership = coordinator.membership
    own = membership.presence.replica
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
            role=membership.role if one is own else _role(one, membership.leader, now_ms=now_ms),
        )
        for one in sorted([own, *others], key=lambda one: one.name)
    ]


def _role(other: Replica, leader: Leader | None, *, now_ms: int) -> Role | None:
    if leader is not None and leader.name == other.name:
        return Role.LEADER
    return None if is_away(other, now_ms=now_ms) else Role.FOLLOWER


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
