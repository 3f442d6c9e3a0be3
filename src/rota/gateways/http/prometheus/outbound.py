"""Metrics of webhooks and pushed tasks.

Neither URLs nor names of webhooks are labels: there is no limit to the former, and only operators
may see the latter. Pushed queues have their depth and their finished tasks like any other queue.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import get_args

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from rota.core.webhooks.model import WebhookCondition
from rota.engine.metrics.outbound import (
    LATENCY_BOUNDS_S,
    LatencyHistogram,
    OutboundKind,
    OutboundMetrics,
)
from rota.engine.webhooks.queries import WebhookFigures
from rota.gateways.http.prometheus.families import counter, gauge

KINDS: tuple[OutboundKind, ...] = get_args(OutboundKind)
CONDITIONS: tuple[WebhookCondition, ...] = get_args(WebhookCondition)


def outbound_families(
    metrics: OutboundMetrics, webhooks: Iterable[WebhookFigures]
) -> Iterator[Metric]:
    listed = [*webhooks]
    conditions = Counter(one.record.condition for one in listed)
    yield counter(
        "outbound_requests",
        "Requests of webhooks and pushed tasks that have ended, by outcome: `delivered`, `refused` "
        "(answered with an error), `busy` (asked to come back later), `failed` (not answered).",
        ("kind", "outcome"),
        metrics.requests.items(),
    )
    yield counter(
        "outbound_given_up",
        "Deliveries of webhooks, and pushed tasks, that have failed and are not tried again.",
        ("kind",),
        [((kind,), metrics.given_up[kind]) for kind in KINDS],
    )
    yield gauge(
        "outbound_requests_in_flight",
        "Requests of webhooks and pushed tasks under way.",
        ("kind",),
        [((kind,), metrics.in_flight[kind]) for kind in KINDS],
    )
    yield _latency(metrics)
    yield gauge(
        "webhooks",
        "Webhooks, by state: `active`, `failing` (the last request has failed), `disabled` (by its "
        "failures), `off`.",
        ("state",),
        [((one,), conditions[one]) for one in CONDITIONS],
    )
    yield gauge(
        "webhook_deliveries_pending",
        "Deliveries of webhooks that wait for their first or another attempt.",
        (),
        [((), sum(one.pending for one in listed))],
    )


def _latency(metrics: OutboundMetrics) -> Metric:
    family = HistogramMetricFamily(
        "rota_outbound_request_seconds",
        "Duration of the requests of webhooks and pushed tasks, answered or not.",
        labels=("kind",),
    )
    bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
    for kind in KINDS:
        found = metrics.latency.get(kind) or LatencyHistogram()
        buckets = zip(bounds, accumulate(found.counts), strict=True)
        family.add_metric((kind,), [*buckets], found.sum_s)
    return family
