"""What does a coordinator tell Prometheus about scaling? `/api/scale`, as gauges."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from rota.messages import ScaleView

LABELS = ("queue", "requires")

# What has no value (no capacity to be in use, nobody to drain it) is left out.
_GAUGES: tuple[tuple[str, str, Callable[[ScaleView], float | None]], ...] = (
    ("wanted_workers", "Workers that the work wants.", lambda one: one.wanted_workers),
    ("wanted_capacity", "Tasks that should run at once.", lambda one: one.wanted_capacity),
    ("workers", "Workers that can serve it.", lambda one: one.workers),
    ("capacity", "Tasks that these can run at once.", lambda one: one.capacity),
    ("depth", "Tasks queued.", lambda one: one.depth),
    ("running", "Tasks leased to workers.", lambda one: one.running),
    (
        "oldest_age_seconds",
        "How long the oldest queued task has been waiting.",
        lambda one: (one.oldest_age_ms or 0) / 1000,
    ),
    (
        "submitted_per_second",
        "Tasks accepted a second, over the last minute.",
        lambda one: one.submitted_per_s,
    ),
    (
        "finished_per_second",
        "Tasks ended a second, over the last minute.",
        lambda one: one.finished_per_s,
    ),
    (
        "utilisation",
        "Share of the capacity that is in use; absent without any.",
        lambda one: one.utilisation,
    ),
    (
        "drain_seconds",
        "Until what waits is worked off; absent when nobody works it off.",
        lambda one: None if one.drain_ms is None else one.drain_ms / 1000,
    ),
)


def scale_families(views: Sequence[ScaleView]) -> Iterator[Metric]:
    for name, text, value_of in _GAUGES:
        family = GaugeMetricFamily(f"rota_scale_{name}", text, labels=LABELS)
        for view in views:
            value = value_of(view)
            if value is not None:
                family.add_metric((view.queue, ",".join(view.requires)), value)
        yield family
