"""Metrics of services and of the ZeroMQ socket of their members.

Gauges are as of the last sweep, twice a second. The number of services with a label of their own is
limited, so that callers that create services cannot create series without end.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rota.engine.metrics.metrics import Metrics, ServiceMetrics, WireMetrics
from rota.engine.shards.changes import ServiceGauges
from rota.gateways.http.prometheus.families import (
    LabelledRow,
    Row,
    counter,
    counters,
    counters_by_label,
    gauge,
    gauges,
)

MOST_LABELLED = 1_000  # services, the first ones by name

COUNTERS: tuple[Row[ServiceMetrics], ...] = (
    ("service_beats", "Heartbeats of members.", lambda one: one.beats),
    (
        "service_rebalances",
        "Rebalances that gave any shard another target.",
        lambda one: one.rebalances,
    ),
    (
        "service_shards_moved",
        "Shards that a rebalance moved to another member.",
        lambda one: one.moved,
    ),
    ("service_shards_granted", "Shards given to members.", lambda one: one.granted),
    (
        "service_shards_forced",
        "Shards taken from members that may not know.",
        lambda one: one.forced,
    ),
    (
        "service_effects_fenced",
        "Results and checkpoints refused because their shard had moved on.",
        lambda one: one.fenced_effects,
    ),
)

GAUGES: tuple[Row[ServiceGauges], ...] = (
    ("service_generation", "Changes of the assignment so far.", lambda one: one.generation),
    ("service_members", "Members.", lambda one: one.members),
    ("service_shards", "Shards of the service.", lambda one: one.shard_count),
    ("service_shards_unowned", "Shards without an owner.", lambda one: one.unowned),
    ("service_shards_moving", "Shards that their owners are to give up.", lambda one: one.revoking),
    (
        "service_oldest_revoke_age_seconds",
        "For how long the slowest owner has been asked to give up a shard.",
        lambda one: one.oldest_revoke_ms / 1000,
    ),
    (
        "service_imbalance",
        "Shards that the fullest member has more than the emptiest, for their weights.",
        lambda one: one.imbalance,
    ),
    (
        "service_lease_margin_seconds",
        "What is left of the lease of the member that has been silent for longest.",
        lambda one: None if one.lease_margin_ms is None else one.lease_margin_ms / 1000,
    ),
)

WIRE_COUNTERS: tuple[Row[WireMetrics], ...] = (
    ("zeromq_sent", "Messages sent to members.", lambda one: one.sent),
    ("zeromq_dropped", "Messages that their peers did not take in time.", lambda one: one.dropped),
)

WIRE_COUNTERS_BY_LABEL: tuple[LabelledRow[WireMetrics], ...] = (
    ("zeromq_messages", "Messages of members.", "type", lambda one: one.received),
    (
        "zeromq_messages_refused",
        "Messages that were not understood or not allowed.",
        "code",
        lambda one: one.refused,
    ),
    (
        "zeromq_connections_refused",
        "Connections that were refused.",
        "reason",
        lambda one: one.refused_connections,
    ),
    (
        "zeromq_peers_dropped",
        "Connections that were ended for what their peers sent, or did not send.",
        "reason",
        lambda one: one.dropped_peers,
    ),
)

WIRE_GAUGES: tuple[Row[WireMetrics], ...] = (
    ("zeromq_connections", "Connections open.", lambda one: one.connections),
    (
        "zeromq_peers",
        "Members whose address is known, so that they can be sent to.",
        lambda one: one.peers,
    ),
)


def total_families(metrics: Metrics) -> Iterator[Metric]:
    """What is counted over all services together."""
    yield gauge("services", "Services.", (), [((), len(metrics.services))])
    yield counter(
        "effects_fenced",
        "Results and checkpoints refused for their shards, of any service or none.",
        (),
        [((), metrics.fenced_effects)],
    )


def service_families(metrics: Metrics) -> Iterator[Metric]:
    """What is counted for each service."""
    names = sorted(metrics.services)[:MOST_LABELLED]
    labelled = [((name,), metrics.services[name]) for name in names]
    yield from counters(COUNTERS, ("service",), labelled)
    yield counter(
        "service_members_gone",
        "Members that have gone, by how they went.",
        ("service", "reason"),
        [
            ((*service, reason), count)
            for service, one in labelled
            for reason, count in one.departures.items()
        ],
    )
    swept = [(labels, one.gauges) for labels, one in labelled if one.gauges is not None]
    yield from gauges(GAUGES, ("service",), swept)


def wire_families(wire: WireMetrics) -> Iterator[Metric]:
    yield from counters_by_label(WIRE_COUNTERS_BY_LABEL, wire)
    yield from counters(WIRE_COUNTERS, (), [((), wire)])
    yield from gauges(WIRE_GAUGES, (), [((), wire)])
