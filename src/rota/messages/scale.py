"""The demand for workers, on the wire."""

from rota.core.dispatch.autoscaling import Term
from rota.messages.base import Answer


class ScaleView(Answer, frozen=True, kw_only=True):
    """The demand of one queue and capability set."""

    queue: str
    requires: tuple[str, ...]  # capabilities; a worker needs all of them
    paused: bool
    depth: int  # queued now
    oldest_age_ms: int | None = None  # how long the oldest has been queued
    running: int  # leased to workers
    submitted_per_s: float  # over the last minute, as the one below
    finished_per_s: float
    duration_ms: float | None = None  # of an attempt, on average; null: none has ended yet
    workers: int  # that can serve it: active and healthy
    capacity: int  # tasks that these can run at once
    available_capacity: int  # of that, free now
    utilisation: float | None = None  # share of the capacity in use; null: there is none
    drain_ms: float | None = None  # until the waiting tasks are done; null: no worker runs them
    wanted_capacity: float  # tasks that should run at once
    wanted_workers: int
    decided_by: Term  # the largest part of the wanted capacity
    explanation: str  # the same, with its figures


class ScalePage(Answer, frozen=True, kw_only=True):
    items: list[ScaleView]
    depth: int  # of all items, as the three below
    running: int
    wanted_capacity: float
    wanted_workers: int  # a worker that serves several items is wanted once
    next_cursor: str | None = None
