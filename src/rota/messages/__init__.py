"""The wire messages: one schema for the gateways, the SDK and the reference.

One file per noun; every name below can be imported from here. Requests refuse unknown fields and
name them. Answers may get more fields.
"""

from rota.core.tasks.model import Name, NewTask, TaskState
from rota.core.workflow.states import RunState
from rota.messages.base import (
    Answer,
    Fence,
    IdText,
    Incarnation,
    NoFields,
    Request,
    Value,
    WaitMs,
)
from rota.messages.dashboard import (
    BacklogPage,
    BacklogView,
    FailurePage,
    FailureView,
    LeaderView,
    LimitView,
    LoggedOut,
    LoginRequest,
    Me,
    Overview,
    Redrive,
    ReplicaView,
    RunActivity,
    RunActivityPage,
    SettingView,
    ShardCounts,
    StoreView,
    SystemView,
    WhyView,
)
from rota.messages.events import EventPage, EventView
from rota.messages.jobs import (
    JobAnswer,
    JobEvent,
    JobFailure,
    JobRefusal,
    JobStart,
    JobView,
)
from rota.messages.operations import (
    Check,
    HealthAnswer,
    NewTokenAnswer,
    Problem,
    TokenPage,
    TokenRequest,
    TokenRevoked,
    TokenView,
)
from rota.messages.shards import (
    AssignmentData,
    CheckpointRequest,
    CheckpointView,
    MemberDrain,
    MemberHeartbeat,
    MemberLeft,
    MemberRegistration,
    MemberView,
    ServiceChange,
    ServicePage,
    ServiceSummary,
    ServiceView,
)
from rota.messages.tasks import (
    QueuePage,
    QueueView,
    TaskCount,
    TaskPage,
    TaskSelection,
    TaskView,
)
from rota.messages.workers import (
    BreakerView,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseAnswer,
    LeaseRequest,
    LeaseView,
    ProgressItem,
    ProgressReport,
    ResultAnswer,
    ResultItem,
    ResultOutcome,
    ResultReport,
    ScalePage,
    ScaleView,
    ScoreView,
    WorkerLeft,
    WorkerMetrics,
    WorkerPage,
    WorkerRegistration,
    WorkerView,
)
from rota.messages.workflows import (
    ArtifactPage,
    ArtifactView,
    ForkRequest,
    GraphJoin,
    GraphNode,
    GraphTransition,
    JournalEntryView,
    JournalPage,
    RunCancellation,
    RunContext,
    RunGraph,
    RunPage,
    RunRequest,
    RunTokenPage,
    RunTokenView,
    RunView,
    SignalRequest,
    TokenAttempt,
    WorkflowCheck,
    WorkflowDetail,
    WorkflowPage,
    WorkflowProblem,
    WorkflowView,
)
