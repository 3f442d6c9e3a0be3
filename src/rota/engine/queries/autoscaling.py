"""Demand and capacity by queue and capability set, for an autoscaler.

Counting a million queued tasks takes a tenth of a second, on a thread beside the writer. A reading
is therefore cached for a second, or for twenty times as long as it took if that is longer. So
readings cost at most a twentieth of a core, however many callers ask and however deep the queues.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from rota.core.dispatch.autoscaling import Demand
from rota.core.tasks.model import Lane
from rota.core.workers.model import (
    DEFAULT_HEALTH_POLICY,
    Health,
    HealthPolicy,
    WorkerRecord,
    WorkerState,
    can_serve,
    health,
)
from rota.engine.clock import Clock
from rota.engine.metrics.metrics import Metrics
from rota.engine.metrics.rates import QueueRates
from rota.engine.queries.autoscaling_inputs import MeanDuration, ScaleInputs, read_inputs
from rota.engine.queries.reader import StoreReader
from rota.engine.queries.workers import WorkerLoad
from rota.store.scaling import LaneWork

KEPT_MS = 1_000  # how long a reading is cached, unless it was expensive
KEPT_COSTS = 20  # an expensive reading is cached for this many times its duration

NO_WORK = LaneWork()
NO_RATES = QueueRates()


class WorkSelection(Struct, frozen=True, kw_only=True):
    """Selects work by queue and by task name; None: all."""

    queues: frozenset[str] | None = None
    names: frozenset[str] | None = None

    def has_queue(self, lane: Lane) -> bool:
        return self.queues is None or lane.queue in self.queues

    def has_name(self, lane: Lane) -> bool:
        return self.names is None or lane.name in self.names


class GroupDemand(Struct, frozen=True, kw_only=True):
    """The work of one queue and capability set."""

    queue: str
    requires: tuple[str, ...]
    demand: Demand


class WorkerKind(NamedTuple):
    """Workers that can serve the same work."""

    example: WorkerRecord
    workers: int
    capacity: int
    free: int


class AutoscalingQueries:
    def __init__(self, reader: StoreReader, metrics: Metrics, *, clock: Clock) -> None:
        self._read = reader.read
        self._lanes = reader.lanes
        self._metrics = metrics
        self._clock = clock
        self._reading: ScaleInputs | None = None
        self._refreshing = asyncio.Lock()

    async def demands(
        self, selection: WorkSelection, policy: HealthPolicy = DEFAULT_HEALTH_POLICY
    ) -> list[GroupDemand]:
        """Return the demand of each queue and capability set, in the order of their names."""
        reading = await self._current()
        kinds = _kinds(reading, policy)
        # All lanes of a queue share its rate, also those that the selection leaves out.
        lanes = [pair for pair in self._lanes.current().items() if selection.has_queue(pair[1])]
        submitted, finished = self._rates(reading, lanes)
        groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, Lane]]] = {}
        for number, lane in lanes:
            if selection.has_name(lane):
                groups.setdefault((lane.queue, lane.requires), []).append((number, lane))
        return [
            GroupDemand(
                queue=queue,
                requires=requires,
                demand=_demand(reading, members, kinds, submitted, finished),
            )
            for (queue, requires), members in sorted(groups.items())
        ]

    async def _current(self) -> ScaleInputs:
        async with self._refreshing:  # concurrent callers share one reading
            now_ms = self._clock.now_ms()
            known = self._reading
            if known is None or not _is_fresh(known, now_ms):
                known = await self._read(lambda tx: read_inputs(tx, self._lanes, now_ms=now_ms))
                self._reading = known
            return known

    def _rates(
        self, reading: ScaleInputs, lanes: Sequence[tuple[int, Lane]]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Return the submitted and the finished tasks per second, by lane."""
        now_ms = self._clock.now_ms()
        by_queue: dict[str, list[int]] = {}
        for number, lane in lanes:
            by_queue.setdefault(lane.queue, []).append(number)
        submitted: dict[int, float] = {}
        finished: dict[int, float] = {}
        for queue, numbers in by_queue.items():
            rates = self._metrics.rates.get(queue, NO_RATES)
            came, went = rates.submitted.per_second(now_ms), rates.finished.per_second(now_ms)
            submitted |= _divided(came, numbers, reading.accepted, reading.work)
            finished |= _divided(went, numbers, reading.finished, reading.work)
        return submitted, finished


def _is_fresh(reading: ScaleInputs, now_ms: int) -> bool:
    kept_ms = max(KEPT_MS, KEPT_COSTS * reading.took_ms)
    return 0 <= now_ms - reading.at_ms < kept_ms  # below 0: the clock was set back


def _divided(
    rate: float, lanes: Sequence[int], sample: Mapping[int, int], work: Mapping[int, LaneWork]
) -> dict[int, float]:
    """Divide a queue's rate over its lanes: by the sample, else by live tasks, else evenly."""
    parts = [sample.get(lane, 0) for lane in lanes]
    if not any(parts):
        parts = [work[lane].queued + work[lane].running if lane in work else 0 for lane in lanes]
    if not any(parts):
        parts = [1] * len(lanes)
    whole = sum(parts)
    return {lane: rate * (part / whole) for lane, part in zip(lanes, parts, strict=True)}


def _kinds(reading: ScaleInputs, policy: HealthPolicy) -> list[WorkerKind]:
    """Group the workers that take work by kind, because fleets are large and kinds are few."""
    alike: dict[object, list[WorkerLoad]] = {}
    for load in reading.workers:
        worker = load.worker
        # At the time of the reading, which cannot know later heartbeats.
        age_ms = reading.at_ms - worker.last_heartbeat_ms
        verdict = health(age_ms=age_ms, interval_ms=worker.heartbeat_interval_ms, policy=policy)
        if worker.state is WorkerState.ACTIVE and verdict is Health.HEALTHY:
            kind = (worker.queues, worker.tasks, worker.capabilities)
            alike.setdefault(kind, []).append(load)
    return [
        WorkerKind(
            example=members[0].worker,
            workers=len(members),
            capacity=sum(worker.max_concurrent_tasks for worker, _ in members),
            free=sum(max(0, worker.max_concurrent_tasks - held) for worker, held in members),
        )
        for members in alike.values()
    ]


def _demand(
    reading: ScaleInputs,
    members: Sequence[tuple[int, Lane]],
    kinds: Sequence[WorkerKind],
    submitted: Mapping[int, float],
    finished: Mapping[int, float],
) -> Demand:
    work = [reading.work.get(number, NO_WORK) for number, _ in members]
    running = sum(one.running for one in work)
    begun_ms = sum(one.running * (one.running_since_ms or 0.0) for one in work)
    since = [one.oldest_since_ms for one in work if one.oldest_since_ms is not None]
    able = [
        kind
        for kind in kinds
        if any(
            can_serve(kind.example, queue=lane.queue, name=lane.name, requires=lane.requires)
            for _, lane in members
        )
    ]
    return Demand(
        depth=sum(one.queued for one in work),
        oldest_age_ms=max(0, reading.at_ms - min(since)) if since else None,
        running=running,
        running_for_ms=max(0.0, reading.at_ms - begun_ms / running) if running else None,
        submitted_per_s=sum(submitted[number] for number, _ in members),
        finished_per_s=sum(finished[number] for number, _ in members),
        duration_ms=_duration_ms(members, work, reading.durations),
        workers=sum(kind.workers for kind in able),
        capacity=sum(kind.capacity for kind in able),
        free=sum(kind.free for kind in able),
        is_paused=members[0][1].queue in reading.paused,
    )


def _duration_ms(
    members: Sequence[tuple[int, Lane]],
    work: Sequence[LaneWork],
    durations: Mapping[str, MeanDuration],
) -> float | None:
    """Return the mean duration of the tasks that are live now, or of past ones if none is."""
    present = [one.queued + one.running for one in work]
    is_any_there = any(present)
    total, total_ms = 0.0, 0.0
    for (_, lane), count in zip(members, present, strict=True):
        known = durations.get(lane.name)
        if known is not None:
            weight = count if is_any_there else known.weight
            total += weight
            total_ms += weight * known.mean_ms
    return total_ms / total if total else None
