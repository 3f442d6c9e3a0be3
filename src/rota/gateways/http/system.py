"""The coordinator itself over HTTP: what it is, what it runs with, where its state lies."""

import platform

import msgspec

from rota import __version__
from rota.addresses import without_password
from rota.core import limits
from rota.core.access import Action
from rota.core.replicas import is_away
from rota.engine.coordinator import Coordinator
from rota.engine.figures import Figures
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import LimitView, ReplicaView, SettingView, StoreView, SystemView
from rota.settings import Settings


async def show(call: Call[None, NoQuery]) -> SystemView:
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
            size_bytes=await coordinator.queries.board.store_bytes(),
        ),
        figures=_figures(coordinator.figures()),
        settings=_settings(settings),
        limits=[
            LimitView(name=name, value=value)
            for name, value in vars(limits).items()
            if name.isupper() and isinstance(value, int)
        ],
        replicas=await replicas(coordinator),
        warnings=call.service.gate.warnings(),
    )


async def replicas(coordinator: Coordinator) -> list[ReplicaView]:
    """Who works on the store, this coordinator among them."""
    own = coordinator.presence.replica
    found = await coordinator.queries.replicas() if coordinator.is_shared else []
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


def _figures(figures: Figures) -> dict[str, float]:
    batches = max(1, figures.batches)
    return {
        "commits": figures.batches,
        "failed_commits": figures.failed_batches,
        "events_per_commit": figures.batched_events / batches,
        "commit_ms": figures.commit_seconds * 1000 / batches,
        "changes_waiting": figures.waiting,
        "lease_calls_waiting": figures.parked,
        "leased": figures.leased,
        "refused_results": sum(figures.refused_results.values()),
        "evicted_workers": figures.evicted_workers,
        "held_sweeps": sum(figures.held_sweeps.values()),
        "overloads": figures.overloads,
        "events_told": figures.notices,
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


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/system",
        summary="Show the coordinator's version, store, settings, limits and figures",
        noun="Operations",
        action=Action.READ,
        handler=show,
        answer=SystemView,
    ),
)
