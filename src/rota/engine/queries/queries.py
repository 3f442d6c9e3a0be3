"""Everything that can be read from committed state, by noun."""

from rota.core.access import AccessToken
from rota.core.shards.members import ShardPolicy
from rota.engine.clock import Clock
from rota.engine.events.log import EventLog
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.autoscaling import AutoscalingQueries
from rota.engine.queries.dashboard import DashboardQueries
from rota.engine.queries.failures import FailureQueries
from rota.engine.queries.kv import KvQueries, LockQueries
from rota.engine.queries.queues import LimitQueries, QueueQueries
from rota.engine.queries.reader import StoreReader
from rota.engine.queries.schedules import ScheduleQueries
from rota.engine.queries.services import ServiceQueries
from rota.engine.queries.sessions import SessionQueries
from rota.engine.queries.tasks import TaskQueries
from rota.engine.queries.workers import WorkerQueries
from rota.engine.queries.workflows import RunQueries, WorkflowQueries
from rota.engine.webhooks.queries import WebhookQueries
from rota.store.access import TokenStore
from rota.store.database import Database
from rota.store.tasks.lanes import Lanes


class Queries:
    """The reads of a coordinator: `queries.tasks.by_id(...)`, `queries.workers.all()`."""

    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        metrics: Metrics,
        *,
        clock: Clock,
        steady_clock: Clock,
        inline: bool,
        shard_policy: ShardPolicy,
    ) -> None:
        self.reader = reader = StoreReader(database, lanes, inline=inline)
        self.tasks = TaskQueries(reader)
        self.failures = FailureQueries(reader)
        self.queues = QueueQueries(reader, metrics, clock=clock)
        self.limits = LimitQueries(reader)
        self.workers = WorkerQueries(reader)
        self.workflows = WorkflowQueries(reader)
        self.runs = RunQueries(reader)
        self.waits = self.runs.waits
        self.schedules = ScheduleQueries(reader, metrics, clock=clock)
        self.services = ServiceQueries(reader, steady_clock=steady_clock, shard_policy=shard_policy)
        self.kv = KvQueries(reader, clock=clock)
        self.locks = LockQueries(reader, steady_clock=steady_clock)
        self.sessions = SessionQueries(reader)
        self.events = EventLog(reader)
        self.webhooks = WebhookQueries(reader)
        self.dashboard = DashboardQueries(reader, clock=clock, health=shard_policy.health)
        self.autoscaling = AutoscalingQueries(reader, metrics, clock=clock)

    async def tokens(self) -> list[AccessToken]:
        """Return all access tokens; the store has only their hashes."""
        return await self.reader.read(lambda tx: TokenStore(tx).all())

    def close(self) -> None:
        self.reader.close()
