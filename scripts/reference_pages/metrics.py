"""The page on metrics: what `/metrics` offers, read from what it writes."""

from collections import Counter

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from reference_pages.markdown import code, codes, document, table
from rota.core.dispatch.autoscaling import Term
from rota.engine.metrics.links import LinkTraffic
from rota.engine.metrics.metrics import Metrics, ServiceMetrics, WireMetrics
from rota.engine.metrics.outbound import OutboundMetrics
from rota.engine.queries.queues import QueueFigures
from rota.engine.replicas.membership import ReplicaFigures
from rota.engine.shards.changes import ServiceGauges
from rota.gateways.http.prometheus.exposition import Observed, render
from rota.messages import ScaleView

# One of everything that is counted by label, so that each label shows itself.
EXAMPLE = Observed(
    metrics=Metrics(
        submitted=Counter({"default": 1}),
        finished=Counter({("default", "succeeded"): 1}),
        requeued=Counter({"failed": 1}),
        inbox=Counter({"accepted": 1}),
        firings=Counter({("default", "fired"): 1}),
        firing_delay_ms=Counter({"default": 1}),
        refusals=Counter({"rate": 1}),
        refused_results=Counter({"stale": 1}),
        held_sweeps=Counter({"mass_death": 1}),
        duty_runs_ms={"health": 1},
        store_disk_free_bytes=1,
        services={
            "feed": ServiceMetrics(
                departures=Counter({"expired": 1}),
                gauges=ServiceGauges(
                    swept_ms=1,
                    generation=1,
                    shard_count=1,
                    members=1,
                    unowned=0,
                    stranded=0,
                    revoking=0,
                    oldest_revoke_ms=0,
                    imbalance=0.0,
                    lease_margin_ms=1,
                ),
            )
        },
        outbound=OutboundMetrics(requests=Counter({("webhook", "delivered"): 1})),
        wire=WireMetrics(
            received=Counter({"heartbeat": 1}),
            refused=Counter({"malformed": 1}),
            refused_connections=Counter({"too_many": 1}),
            dropped_peers=Counter({"unfinished_message": 1}),
        ),
    ),
    queues=[QueueFigures(name="default", paused=False, target_wait_ms=1_000)],
    scale=[
        ScaleView(
            queue="default",
            requires=(),
            paused=False,
            depth=0,
            running=0,
            submitted_per_s=0.0,
            finished_per_s=0.0,
            workers=1,
            capacity=10,
            available_capacity=10,
            utilisation=0.0,
            drain_ms=0.0,
            wanted_capacity=0.0,
            wanted_workers=0,
            decided_by=Term.IDLE,
            explanation="",
        )
    ],
    workers={("healthy", "active"): 1},
    answers={("GET", "/health", 200): 1},
    in_flight=0,
    uptime_s=1.0,
    replica=ReplicaFigures(is_leader=True, epoch=1, changes=0, followers=0, held_commands=0),
    links=LinkTraffic(),
    webhooks=[],
)


def page() -> str:
    families = [
        family
        for family in text_string_to_metric_families(render(EXAMPLE).decode())
        if family.name.startswith("rota_")
    ]
    return document(
        "# Metrics",
        "`GET /metrics`, in Prometheus's text format. It needs a token with the scope `read` "
        "where the coordinator needs tokens at all. Counters start at 0 with the process. The "
        "usual `process_…` metrics (memory, CPU time, open files) come along on Linux.",
        table(("metric", "type", "labels", "meaning"), map(_row, families)),
    )


def _row(family: Metric) -> tuple[str, ...]:
    if not family.samples:
        raise SystemExit(f"{family.name}: give it a sample in scripts/reference_pages/metrics.py")
    sample = family.samples[0]
    return code(sample.name), family.type, codes(sample.labels), family.documentation
