"""The whole at a glance over HTTP: counts, what waits and why, and the last hour."""

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from rota import __version__
from rota.core import access, ids
from rota.core.access import Action, Caller
from rota.core.explaining import Explanation
from rota.core.tasks import TaskState
from rota.core.workers import WorkerState
from rota.engine.board_views import Backlog, Counts
from rota.engine.coordinator import Coordinator
from rota.engine.series import SLOT_MS, SLOTS, Series, Track
from rota.errors import TaskNotFound
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.gateways.http.histories import events_of
from rota.gateways.http.tasks import known_id, own_task
from rota.gateways.http.worker_views import worker_view
from rota.messages import (
    AttemptView,
    BacklogPage,
    BacklogView,
    Name,
    Overview,
    Request,
    SeriesPage,
    SeriesView,
    ShardCounts,
    StandingPage,
    StandingView,
    TasksAlike,
    TaskTimeline,
    WhyView,
)
from rota.settings import Settings

MOST_STANDINGS = 100
MOST_CHARTED = 8  # queues that are charted when the caller names none


class SeriesQuery(Request, frozen=True, kw_only=True):
    queue: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=20,
            description="These queues; repeated. Without: all together, and the busiest.",
        ),
    ] = ()


class StandingsQuery(Request, frozen=True, kw_only=True):
    run: Annotated[
        tuple[Name, ...], Meta(max_length=MOST_STANDINGS, description="These runs; repeated.")
    ] = ()


# --- counts -------------------------------------------------------------------------------------


async def overview(call: Call[None, NoQuery]) -> Overview:
    coordinator, own = call.coordinator, call.caller.queues
    board = coordinator.queries.board
    waiting = [one for one in await board.backlog() if own is None or one.lane.queue in own]
    names = await board.queue_names()
    counts = await board.counts() if own is None else Counts(tasks=_live(waiting), runs={})
    return Overview(
        now_ms=coordinator.clock.now_ms(),
        version=__version__,
        tasks=counts.tasks,
        runs=counts.runs,
        workers=await _workers(coordinator, call.settings),
        queues=len(names.known if own is None else names.known & {*own}),
        paused_queues=sorted(names.paused if own is None else names.paused & {*own}),
        stuck=sum(one.figures.queued for one in waiting if one.why.is_stuck),
        shards=_shards(coordinator),
    )


def _live(waiting: list[Backlog]) -> dict[str, int]:
    """What a caller who sees some queues only can be told without counting all of history."""
    return {
        TaskState.SCHEDULED.value: sum(one.figures.scheduled for one in waiting),
        TaskState.QUEUED.value: sum(one.figures.queued for one in waiting),
        TaskState.RUNNING.value: sum(one.figures.running for one in waiting),
    }


async def _workers(coordinator: Coordinator, settings: Settings) -> dict[str, int]:
    now_ms = coordinator.clock.now_ms()
    counts: Counter[str] = Counter()
    for figures in await coordinator.queries.workers():
        view = worker_view(figures, now_ms=now_ms, settings=settings)
        counts[view.health.value] += 1
        if view.state is not WorkerState.ACTIVE:
            counts[view.state.value] += 1
    return dict(counts)


def _shards(coordinator: Coordinator) -> ShardCounts:
    found = [one.gauges for one in list(coordinator.figures().services.values()) if one.gauges]
    shards, unowned = sum(one.shard_count for one in found), sum(one.unowned for one in found)
    return ShardCounts(
        services=len(found),
        shards=shards,
        owned=shards - unowned,
        unowned=unowned,
        moving=sum(one.revoking for one in found),
    )


# --- why ----------------------------------------------------------------------------------------


async def backlog(call: Call[None, NoQuery]) -> BacklogPage:
    now_ms = call.coordinator.clock.now_ms()
    own = call.caller.queues
    found = await call.coordinator.queries.board.backlog()
    views = [_waiting(one, now_ms) for one in found if own is None or one.lane.queue in own]
    views.sort(key=lambda view: (not view.why.is_stuck, -view.queued, view.queue, view.name))
    return BacklogPage(items=views)


def _waiting(one: Backlog, now_ms: int) -> BacklogView:
    since_ms = one.figures.oldest_since_ms
    return BacklogView(
        queue=one.lane.queue,
        name=one.lane.name,
        requires=one.lane.requires,
        queued=one.figures.queued,
        scheduled=one.figures.scheduled,
        running=one.figures.running,
        oldest_age_ms=None if since_ms is None else max(0, now_ms - since_ms),
        why=_why(one.why),
    )


def _why(explanation: Explanation) -> WhyView:
    return msgspec.convert(explanation, WhyView, from_attributes=True)


async def timeline(call: Call[None, NoQuery]) -> TaskTimeline:
    task = await own_task(call, known_id(call.parameter))
    queries = call.coordinator.queries
    why = await queries.board.why(task, await queries.position(task))
    return TaskTimeline(
        id=call.parameter,
        state=task.state,
        events=events_of(task),
        attempts=[msgspec.convert(one, AttemptView, from_attributes=True) for one in task.log],
        why=_why(why),
        fence=task.fence,
        deadline_ms=task.deadline_ms,
    )


# --- what runs are at -------------------------------------------------------------------------


async def standings(call: Call[None, StandingsQuery]) -> StandingPage:
    access.check_unbound(call.caller)
    wanted = {number: text for text in call.query.run if (number := ids.from_text(text))}
    tasks: dict[int, list[TasksAlike]] = {number: [] for number in wanted}
    for work, lane in await call.coordinator.queries.board.work_of_runs(list(wanted)):
        tasks[work.run].append(
            TasksAlike(name=lane.name, queue=lane.queue, state=work.state, count=work.count)
        )
    return StandingPage(
        items=[StandingView(run_id=text, tasks=tasks[one]) for one, text in wanted.items()]
    )


# --- the last hour ------------------------------------------------------------------------------


async def series(call: Call[None, SeriesQuery]) -> SeriesPage:
    found = call.coordinator.figures().series
    first = call.coordinator.clock.now_ms() // SLOT_MS - SLOTS + 1
    return SeriesPage(
        items=[_charted(name, track, first) for name, track in _tracks(call, found)],
        start_ms=first * SLOT_MS,
        slot_ms=SLOT_MS,
    )


def _tracks(call: Call[None, SeriesQuery], found: Series) -> list[tuple[str | None, Track]]:
    named = call.query.queue or _own(call.caller) or tuple(found.busiest(MOST_CHARTED))
    for queue in named if call.query.queue else ():
        access.check_queue(call.caller, queue)
    tracks: list[tuple[str | None, Track]] = []
    if not call.query.queue and call.caller.queues is None:
        tracks.append((None, found.all))
    return [*tracks, *((name, found.queues[name]) for name in named if name in found.queues)]


def _own(caller: Caller) -> tuple[str, ...]:
    return () if caller.queues is None else caller.queues[:MOST_CHARTED]


def _charted(queue: str | None, track: Track, first: int) -> SeriesView:
    return SeriesView(queue=queue, **track.span(first, SLOTS)._asdict())


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/overview",
        summary="Count everything: tasks and runs by state, workers by health, shards",
        noun="Operations",
        action=Action.READ,
        handler=overview,
        answer=Overview,
    ),
    Endpoint(
        method="GET",
        path="/api/backlog",
        summary="List what waits, and why",
        description="Tasks of one queue and name that require the same are one row. What is stuck "
        "comes first: a paused queue, no worker that could take it, workers held back or silent.",
        noun="Queues",
        action=Action.READ,
        handler=backlog,
        answer=BacklogPage,
    ),
    Endpoint(
        method="GET",
        path="/api/standings",
        summary="Show what runs are at: their live tasks by name and state",
        description="A run without any waits for an answer, a signal, a timer or a sub-run; one "
        "that has ended has none, either.",
        noun="Runs",
        action=Action.READ,
        handler=standings,
        query=StandingsQuery,
        answer=StandingPage,
    ),
    Endpoint(
        method="GET",
        path="/api/series",
        summary="Show the last hour of queues, in slots of ten seconds",
        description="Kept over restarts, minute by minute; a crash costs the last one.",
        noun="Queues",
        action=Action.READ,
        handler=series,
        query=SeriesQuery,
        answer=SeriesPage,
    ),
    Endpoint(
        method="GET",
        path="/api/tasks/{task_id}/timeline",
        summary="Show what happened to a task, its attempts, and why it is where it is",
        noun="Tasks",
        action=Action.READ,
        handler=timeline,
        answer=TaskTimeline,
        errors=(TaskNotFound,),
    ),
)
