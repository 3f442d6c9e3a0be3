"""Metrics of a coordinator among those that share its store, and of the links between them."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rota.engine.metrics.links import LinkTraffic
from rota.engine.replicas.membership import ReplicaFigures
from rota.gateways.http.prometheus.families import Row, counter, gauges

GAUGES: tuple[Row[ReplicaFigures], ...] = (
    ("leader", "1 when this coordinator leads its store.", lambda one: int(one.is_leader)),
    (
        "leader_epoch",
        "Epoch of the leader that this coordinator last knew; absent on SQLite.",
        lambda one: one.epoch,
    ),
    ("followers", "Coordinators that follow this one.", lambda one: one.followers),
    ("commands_held", "Commands that wait for a leader.", lambda one: one.held_commands),
)


def replica_families(replica: ReplicaFigures, links: LinkTraffic) -> Iterator[Metric]:
    yield from gauges(GAUGES, (), [((), replica)])
    yield counter(
        "leader_changes",
        "Changes of the leader that this coordinator has seen.",
        (),
        [((), replica.changes)],
    )
    yield counter(
        "link_frames",
        "Commands, replies and notifications over links to other coordinators.",
        ("direction",),
        [(("in",), links.frames_in), (("out",), links.frames_out)],
    )
    yield counter(
        "link_bytes",
        "Bytes over links to other coordinators.",
        ("direction",),
        [(("in",), links.bytes_in), (("out",), links.bytes_out)],
    )
