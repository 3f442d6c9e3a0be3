"""In-memory metrics of this coordinator: totals, rates and latencies."""

from collections import Counter
from dataclasses import dataclass, field

from rota.engine.commit.request import NOTHING_COUNTED, BatchCounts
from rota.engine.metrics.activity import Activity
from rota.engine.metrics.links import LinkMetrics
from rota.engine.metrics.outbound import OutboundMetrics
from rota.engine.metrics.rates import QueueRates
from rota.engine.metrics.time_series import TimeSeries
from rota.engine.shards.changes import ServiceChanges, ServiceGauges
from rota.engine.working_set.working_set import WorkingSet


@dataclass
class ServiceMetrics:
    """Counters of a service since the start of this process, and gauges of its last sweep."""

    beats: int = 0
    rebalances: int = 0
    moved: int = 0  # shards that got another target
    granted: int = 0
    forced: int = 0  # shards taken from owners that may not know of it
    departures: Counter[str] = field(default_factory=Counter)  # of members, by reason
    fenced_effects: int = 0  # results and checkpoints refused for their epochs
    gauges: ServiceGauges | None = None  # None: not swept yet
    # Since when shards have no owner although a member has room; None: there are no such shards.
    stranded_since_ms: int | None = None

    def note(self, changes: ServiceChanges) -> None:
        self.beats += changes.beats
        self.granted += changes.granted
        self.forced += changes.forced
        self.rebalances += len(changes.rebalances)
        self.moved += sum(one.moved for one in changes.rebalances)
        self.departures.update([str(one.reason) for one in changes.removed])

    def note_gauges(self, gauges: ServiceGauges) -> None:
        self.gauges = gauges
        if not gauges.stranded:
            self.stranded_since_ms = None
        elif self.stranded_since_ms is None:
            self.stranded_since_ms = gauges.swept_ms


@dataclass
class WireMetrics:
    """The ZeroMQ gateway: messages since the start of this process, and open connections."""

    received: Counter[str] = field(default_factory=Counter)  # messages by type
    refused: Counter[str] = field(default_factory=Counter)  # messages by the code of the refusal
    sent: int = 0
    dropped: int = 0  # messages that their receivers did not take in time
    connections: int = 0  # open now
    peers: int = 0  # members that the gateway can send to without a request
    refused_connections: Counter[str] = field(default_factory=Counter)  # by reason
    dropped_peers: Counter[str] = field(default_factory=Counter)  # connections, by reason


@dataclass
class Metrics:
    """Counters since the start of this process, and current gauges."""

    submitted: Counter[str] = field(default_factory=Counter)  # by queue
    finished: Counter[tuple[str, str]] = field(default_factory=Counter)  # by queue and state
    requeued: Counter[str] = field(default_factory=Counter)  # by how the attempt ended
    leased: int = 0
    refused_results: Counter[str] = field(default_factory=Counter)  # by outcome
    inbox: Counter[str] = field(default_factory=Counter)  # tasks taken from the inbox, by outcome
    firings: Counter[tuple[str, str]] = field(default_factory=Counter)  # by queue and outcome
    firing_delay_ms: Counter[str] = field(default_factory=Counter)  # of all firings, by queue
    refusals: Counter[str] = field(default_factory=Counter)  # by the kind of limit, or the error
    next_firing_ms: int | None = None  # when the next schedule is due; None: no schedule is
    evicted_workers: int = 0
    held_sweeps: Counter[str] = field(default_factory=Counter)  # by reason
    forgotten: int = 0
    events: int = 0  # public events written
    watchers: int = 0  # of the event stream, now
    batches: int = 0
    batched_events: int = 0
    failed_batches: int = 0
    commit_seconds: float = 0.0
    overloads: int = 0
    store_disk_free_bytes: int | None = None  # None: not known here
    is_store_disk_low: bool = False  # less than the setting `store_disk_low_bytes`
    waiting: int = 0  # changes waiting for their commit
    waiting_leases: int = 0  # lease calls waiting for work
    working_set: WorkingSet = field(default_factory=WorkingSet)  # what the writer holds in memory
    duty_runs_ms: dict[str, int] = field(default_factory=dict)  # when each duty last ran
    services: dict[str, ServiceMetrics] = field(default_factory=dict)
    fenced_effects: int = 0  # of all services, unknown ones included
    wire: WireMetrics = field(default_factory=WireMetrics)
    links: LinkMetrics = field(default_factory=LinkMetrics)
    outbound: OutboundMetrics = field(default_factory=OutboundMetrics)
    activity: Activity = field(default_factory=Activity)

    @property
    def rates(self) -> dict[str, QueueRates]:
        """The rates by queue."""
        return self.activity.rates

    @property
    def series(self) -> TimeSeries:
        """The charts."""
        return self.activity.series

    def note_counts(self, counts: BatchCounts, now_ms: int) -> None:
        """Count the tasks that a commit submitted and finished."""
        if counts is NOTHING_COUNTED:
            return
        for queue, count in counts.submitted.items():
            self.submitted[queue] += count
        for queue_and_state, count in counts.finished.items():
            self.finished[queue_and_state] += count
        self.note_rates(counts, now_ms)

    def note_rates(self, counts: BatchCounts, now_ms: int) -> None:
        """Add a commit, also of the leader's, to rates and charts; the leader alone counts it."""
        self.activity.note(counts, now_ms)

    def forget_leading(self) -> None:
        """Forget what only the leader measures, because another coordinator leads."""
        self.waiting_leases = 0
        self.duty_runs_ms = {}
        self.services = {}
        self.next_firing_ms = None

    def service(self, name: str) -> ServiceMetrics:
        known = self.services.get(name)
        if known is None:
            known = self.services[name] = ServiceMetrics()
        return known
