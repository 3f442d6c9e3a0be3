"""Messages of a streaming worker and its coordinator: one socket, batches both ways.

A stream uses the session gateway's socket under the MessagePack subprotocol, in the same envelopes:
the worker addresses `coordinator:main`, and a reply has the number of the envelope that it answers
in `replyTo`. To be quick, it differs from the rest of the wire in three things. A task is named by
its number (elsewhere its id is the sixteen hexadecimal digits of that number). Leases and results
are arrays instead of objects. Payloads and results are JSON texts in binary fields.

The worker opens a stream (`stream_open` registers it, `stream_resume` goes on with a registration
that it has, from any socket), and reports how many tasks it has room for (`stream_credit`, or along
with its results). The coordinator pushes `stream_leases` when there is work for it, and
`stream_cancel` when a task that it runs has been cancelled. The worker sends `stream_results`; an
answered result is committed. It sends what handlers log (`stream_logs`), and heartbeats
(`stream_beat`): an open stream alone does not keep it registered. When its registration is over,
the coordinator sends `stream_ended`, and the worker registers again.
"""

from typing import Annotated

from msgspec import Meta, Struct

from rota.core import limits
from rota.core.commands import AttemptLines, FenceNumber, Progress, Result, TaskNumber
from rota.core.replies import OutcomeName
from rota.core.tasks.headers import Headers
from rota.core.tasks.model import Labels, Name
from rota.core.workers.model import Health, WorkerState
from rota.messages.base import Answer, Incarnation, Request

MAIN = "coordinator:main"  # the address of the coordinator in a stream

OPEN = "stream_open"
RESUME = "stream_resume"
CREDIT = "stream_credit"
RESULTS = "stream_results"
PROGRESS = "stream_progress"
LOGS = "stream_logs"
OPERATIONS = "stream_operations"
BEAT = "stream_beat"
LEASES = "stream_leases"
CANCEL = "stream_cancel"
ENDED = "stream_ended"

Room = Annotated[int, Meta(ge=0, le=limits.MAX_CONCURRENT_TASKS)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
TaskNumbers = Annotated[list[TaskNumber], Meta(max_length=limits.MAX_CONCURRENT_TASKS)]


# --- payloads of workers ------------------------------------------------------------------------


class StreamResume(Request, frozen=True, kw_only=True):
    worker_id: Name
    incarnation: Incarnation
    # Tasks it has. Others that were leased to it never arrived, and go to other workers.
    running: TaskNumbers = []


class StreamCredit(Request, frozen=True, kw_only=True):
    free: Room  # tasks it has room for now
    taken: Count  # leases it has had over this stream, in all; those under way take up room too


class StreamResults(Request, frozen=True, kw_only=True):
    results: Annotated[list[Result], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]
    free: Room | None = None  # as a credit, to be counted after these results
    taken: Count = 0


class StreamProgress(Request, frozen=True, kw_only=True):
    items: Annotated[list[Progress], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class StreamLogs(Request, frozen=True, kw_only=True):
    items: Annotated[list[AttemptLines], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class StreamedOperations(Struct, frozen=True, array_like=True):
    """What a function has done since its last report."""

    task_id: TaskNumber
    fence: FenceNumber
    after: Count  # entries that functions of this run had reported before these
    operations: bytes  # JSON, a list of operations


class StreamOperations(Request, frozen=True, kw_only=True):
    items: Annotated[list[StreamedOperations], Meta(max_length=limits.MAX_RESULTS_PER_REPORT)]


class StreamBeat(Request, frozen=True, kw_only=True):
    running: TaskNumbers | None = None  # the tasks it has; absent: it does not say
    # Figures of its own, shown with the worker.
    load: Annotated[dict[Name, float], Meta(max_length=64)] | None = None


# --- payloads of the coordinator ----------------------------------------------------------------


class StreamOpened(Answer, frozen=True, kw_only=True):
    worker_id: str
    incarnation: int
    heartbeat_interval_ms: int
    lease_ms: int  # silence after which its tasks go to other workers
    max_frame_bytes: int = 1024 * 1024  # of what it may send at once
    cancel: list[int] = []  # as in the answer to a heartbeat, after a reconnect
    lost: list[int] = []


class StreamedLease(Struct, frozen=True, gc=False, array_like=True):
    """A task for the worker. Fields that most tasks do not have come last, and are left out."""

    task_id: int
    fence: int
    name: str
    payload: bytes  # JSON
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    created_at_ms: int
    deadline_ms: int | None = None
    timeout_ms: int | None = None
    key: str | None = None
    labels: Labels | None = None
    run_id: str | None = None
    headers: Headers | None = None


class StreamLeases(Answer, frozen=True, kw_only=True):
    leases: list[StreamedLease]


class StreamNoted(Answer, frozen=True, kw_only=True):
    """The results, the progress, or the log lines of one message are committed."""

    count: int  # of all in the message
    refused: list[tuple[int, OutcomeName]] = []  # those that were not accepted, and why


class StreamOperationsNoted(Answer, frozen=True, kw_only=True):
    """The operations of one message are committed."""

    count: int  # of all items in the message
    refused: list[tuple[int, OutcomeName]] = []  # tasks whose items were not accepted, and why
    cancelled: list[tuple[int, str]] = []  # tasks whose functions are to stop and undo, and why


class StreamBeatAnswer(Answer, frozen=True, kw_only=True):
    health: Health
    state: WorkerState
    cancel: list[int] = []  # tasks to stop: they were cancelled
    lost: list[int] = []  # tasks that are no longer its own
    heartbeat_interval_ms: int
    lease_ms: int


class StreamCancel(Answer, frozen=True, kw_only=True):
    task_ids: list[int]


class StreamEnded(Answer, frozen=True, kw_only=True):
    error: str
    code: str
