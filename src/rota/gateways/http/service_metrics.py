"""What is Prometheus told of services, and of the socket their members speak to?

Gauges are as of the last sweep, which is twice a second. Each service has a label of its own up to
a limit, so that whoever makes services cannot make series without end.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from rota.engine.figures import Figures, ServiceFigures, WireFigures
from rota.engine.shard_changes import ServiceGauges
from rota.gateways.http.families import counter, gauge, single

MOST_LABELLED = 1_000  # services, the first ones by name

COUNTERS: tuple[tuple[str, str, Callable[[ServiceFigures], int]], ...] = (
    ("beats", "Heartbeats of members.", lambda one: one.beats),
    (
        "rebalances",
        "Rebalances that gave any shard another member to go to.",
        lambda one: one.rebalances,
    ),
    ("shards_moved", "Shards that a rebalance moved to another member.", lambda one: one.moved),
    ("shards_granted", "Shards given to members.", lambda one: one.granted),
    (
        "shards_forced",
        "Shards taken from members that may not know.",
        lambda one: one.forced,
    ),
    (
        "effects_fenced",
        "Results and checkpoints refused because their shard had moved on.",
        lambda one: one.fenced_effects,
    ),
)

GAUGES: tuple[tuple[str, str, Callable[[ServiceGauges], float]], ...] = (
    ("generation", "How often anything was assigned anew, ever.", lambda one: one.generation),
    ("members", "Members.", lambda one: one.members),
    ("shards", "Shards that the service has.", lambda one: one.shard_count),
    ("shards_unowned", "Shards that nobody owns.", lambda one: one.unowned),
    ("shards_moving", "Shards that their owners are to give up.", lambda one: one.revoking),
    (
        "oldest_revoke_age_seconds",
        "For how long the slowest owner has been asked to give up a shard.",
        lambda one: one.oldest_revoke_ms / 1000,
    ),
    (
        "imbalance",
        "Shards that the fullest member has more than the emptiest, for their weights.",
        lambda one: one.imbalance,
    ),
)


def service_families(figures: Figures) -> Iterator[Metric]:
    yield gauge("rota_services", "Services.", (), [((), len(figures.services))])
    yield counter(
        "rota_effects_fenced",
        "Results and checkpoints refused for their shards, of any service or none.",
        (),
        [((), figures.fenced_effects)],
    )
    labelled = {name: figures.services[name] for name in sorted(figures.services)[:MOST_LABELLED]}
    for name, text, count in COUNTERS:
        samples = [((service,), count(one)) for service, one in labelled.items()]
        yield counter(f"rota_service_{name}", text, ("service",), samples)
    yield _departures(labelled)
    swept = {name: one.gauges for name, one in labelled.items() if one.gauges is not None}
    for name, text, value in GAUGES:
        at_present = [((service,), value(one)) for service, one in swept.items()]
        yield gauge(f"rota_service_{name}", text, ("service",), at_present)
    yield gauge(
        "rota_service_lease_margin_seconds",
        "What is left of the lease of the member that has been silent for longest.",
        ("service",),
        [
            ((service,), one.lease_margin_ms / 1000)
            for service, one in swept.items()
            if one.lease_margin_ms is not None
        ],
    )


def _departures(services: Mapping[str, ServiceFigures]) -> Metric:
    return counter(
        "rota_service_members_gone",
        "Members that are no longer, by how they went.",
        ("service", "reason"),
        [
            ((service, reason), count)
            for service, one in services.items()
            for reason, count in one.departures.items()
        ],
    )


def wire_families(wire: WireFigures) -> Iterator[Metric]:
    yield counter("rota_zeromq_messages", "Messages of members.", ("type",), single(wire.received))
    yield counter(
        "rota_zeromq_messages_refused",
        "Messages that were not understood or not allowed.",
        ("code",),
        single(wire.refused),
    )
    yield counter("rota_zeromq_sent", "Messages sent to members.", (), [((), wire.sent)])
    yield counter(
        "rota_zeromq_dropped",
        "Messages that their peers did not take in time.",
        (),
        [((), wire.dropped)],
    )
    yield gauge("rota_zeromq_connections", "Connections open.", (), [((), wire.connections)])
    yield gauge(
        "rota_zeromq_peers",
        "Members that can be told something before they ask.",
        (),
        [((), wire.peers)],
    )
    yield counter(
        "rota_zeromq_connections_refused",
        "Connections that were turned away.",
        ("reason",),
        single(wire.refused_connections),
    )
