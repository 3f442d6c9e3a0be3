"""Every kind of command travels between coordinators and arrives as it was sent."""

from collections import Counter
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from rota.core import limits
from rota.core.access import AccessToken, Caller, Scope
from rota.core.commands import (
    AcknowledgeTasks,
    AddToken,
    AttemptLines,
    BeatWorker,
    CancelTasks,
    Command,
    CompleteJob,
    EpochClaim,
    ExpireAttempts,
    FailJob,
    KeepMinutes,
    KeptMinute,
    LeaseWork,
    LeaveWorker,
    PauseQueue,
    Progress,
    PruneHistory,
    QueueDueTasks,
    RegisterWorker,
    ReportLogs,
    ReportProgress,
    ReportResults,
    Result,
    RetryTasks,
    ReturnLeases,
    RevokeToken,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    SweepWorkers,
    TakeInbox,
    decode_command,
    encode_command,
)
from rota.core.dispatch.stuck_queues import NoteStuckQueues, StuckLane
from rota.core.events import LoggedEvent, PruneEvents
from rota.core.flows.commands import (
    ChangeSettings,
    CloseLimit,
    ConsumeLimit,
    DropLimit,
    LookAtBlocked,
    LookAtLimits,
    LookAtTenants,
    PutLimit,
    QueueChange,
    RecountLimits,
    WatchTargets,
)
from rota.core.flows.queue_settings import QueueRate
from rota.core.ids import TaskId
from rota.core.kv import DeleteValue, PutValue, SweepValues
from rota.core.locks import AcquireLock, LeaveLockQueue, ReleaseLock, RenewLock, SweepLocks
from rota.core.outbound.push import ClosePush, DropPush, PushSpec, PutPush
from rota.core.replicas import BeatReplica, Replica
from rota.core.schedules.commands import (
    BackfillSchedule,
    CodeSchedule,
    DeleteSchedule,
    FireSchedules,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    SyncSchedules,
)
from rota.core.sessions import ClearNotifications, SessionNotification
from rota.core.shards.commands import (
    BeatMember,
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
    SaveCheckpoint,
    SweepServices,
)
from rota.core.tasks.keys import KeySpace
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import Backoff, NewTask, TaskError
from rota.core.webhooks.commands import (
    DeleteWebhook,
    DeliveryReport,
    PutWebhook,
    QueueDeliveries,
    ReportDeliveries,
    TakenEvents,
)
from rota.core.webhooks.model import WebhookSpec
from rota.core.workers.model import WorkerState
from rota.core.workflow.commands import (
    AddBranches,
    AddSiblings,
    AdvanceRuns,
    CheckArtifact,
    FireRunTimers,
    ForkRun,
    LookAtOperations,
    LookAtReply,
    LookAtRun,
    LookAtStream,
    PruneRuns,
    PutCode,
    PutWorkflow,
    RecordWaits,
    ReportedOperations,
    ReportOperations,
    SignalRun,
    StageArtifact,
    StartRun,
    SteerRun,
    SteerScope,
)
from rota.core.workflow.definition.parser import read
from rota.core.workflow.functions.model import CallRequest, CodeDefinition, Operation
from rota.errors import Invalid, UnknownCommand
from tests.engine.graphs import PARENT

CALLER = Caller(
    name="ann",
    scopes=(Scope.ADMIN,),
    token_id="t1",
    queues=("mail",),
    worker_id="w1",
    expires_at_ms=99,
)
DEFINITION, _ = read(PARENT)
assert DEFINITION is not None
TASK = TaskId(2**62)
HUGE = 10**40  # JSON has such a number, MessagePack has not
DOCUMENT = {"items": [1, 2.5, None, "\u00fc"], "huge": HUGE}
CODE = CodeDefinition(
    name="order", fingerprint="f" * 16, source="def order(ctx): ...", queue="mail"
)
OPERATIONS = [
    Operation(path="price#1", kind="step", state="done", result=DOCUMENT, arguments="a", line=3),
    Operation(
        path="x/mail[k]",
        kind="call",
        state="pending",
        request=CallRequest(task="send", payload=DOCUMENT, backoff=Backoff()),
    ),
]

# One example of each kind, with every field set to something else than its default.
EXAMPLES: list[Command] = [
    SubmitTasks(
        [
            NewTask(
                name="send",
                payload=Raw(b'{"to": "ann", "huge": 1e999}'),
                queue="mail",
                priority=-3,
                requires=("gpu",),
                delay_ms=5,
                timeout_ms=6,
                max_attempts=9,
                backoff=Backoff(),
                key="k" * limits.MAX_KEY_LENGTH,
                labels={"a": "b"},
            ),
            NewTask(name="empty"),
        ],
        session_id="s1",
        key_space=KeySpace.SESSION,
    ),
    CancelTasks((TASK,)),
    RetryTasks((TASK,)),
    AcknowledgeTasks(ids=(TASK,), by="ops", reason="known"),
    PauseQueue("mail", paused=True),
    RegisterWorker(
        worker_id="w1",
        node_id="n1",
        incarnation=3,
        capabilities=("gpu",),
        max_concurrent_tasks=4,
        tasks=("send",),
        queues=("mail",),
        heartbeat_interval_ms=7,
        group="g",
        labels={"zone": "a"},
        by=CALLER,
    ),
    BeatWorker(worker_id="w1", incarnation=3, running=(TASK,), load={"cpu": 0.5}, by=CALLER),
    LeaseWork(worker_id="w1", incarnation=3, most=7, wait_ms=8, by=CALLER),
    ReportResults(
        worker_id="w1",
        incarnation=3,
        results=[
            Result(TASK, 4, result=b'{"n": 1}', claim=EpochClaim("s", 5, 6)),
            Result(TASK, 4, ok=False, error=TaskError(type="T", message="m"), retry_in_ms=1),
        ],
        by=CALLER,
    ),
    ReportProgress(
        worker_id="w1", incarnation=None, items=[Progress(TASK, 4, b"1", b"2")], by=CALLER
    ),
    ReportLogs(
        worker_id="w1",
        incarnation=None,
        items=[
            AttemptLines(TASK, 4, [LogLine(5, "info", "shop", "paid", b'{"n": 1}')], 3, 7),
            AttemptLines(TASK, 4),
        ],
        by=CALLER,
    ),
    ReturnLeases(worker_id="w1", incarnation=3, leases=((TASK, 4),)),
    LeaveWorker(worker_id="w1", incarnation=3, by=CALLER),
    SetWorkerState(worker_id="w1", state=WorkerState.DRAINING),
    StartJob(task_id=TASK, holder="h", by=CALLER),
    CompleteJob(task_id=TASK, result=Raw(b'{"n": 1}'), by=CALLER),
    FailJob(task_id=TASK, error=TaskError(type="T", message="m"), by=CALLER),
    AddToken(
        AccessToken(
            id="t1", hash="h", name="n", scopes=(Scope.ADMIN,), queues=("mail",), created_at_ms=1
        )
    ),
    RevokeToken("t1"),
    QueueDueTasks(),
    ExpireAttempts(),
    SweepWorkers(),
    TakeInbox(max_payload_bytes=5),
    PruneHistory(finished_before_ms=5),
    PutWorkflow(DEFINITION),
    StartRun(workflow="w", version=2, input=DOCUMENT, key="k", timeout_ms=5),
    ForkRun(run_id=TASK, from_node="a", state=DOCUMENT),
    SteerRun(run_id=TASK, action="cancel", reason="r"),
    SteerScope(run_id=TASK, scope=1, action="complete", reason="r"),
    AddBranches(run_id=TASK, scope=1, items=[DOCUMENT], key="k", is_last=True),
    AddSiblings(task_id=TASK, fence=1, fan_out="f", items=[DOCUMENT], key="k"),
    SignalRun(run_id=TASK, name="n", payload=DOCUMENT),
    LookAtRun(TASK),
    PutCode(definition=CODE, by=CALLER),
    ReportOperations(
        worker_id="w",
        incarnation=3,
        items=[ReportedOperations(TASK, 2, 1, OPERATIONS)],
        by=CALLER,
    ),
    LookAtOperations(run_id=TASK, after=3, limit=10, by=CALLER),
    LookAtStream(run_id=TASK, name="log", after=3, limit=10),
    LookAtReply(run_id=TASK, key="k"),
    FireRunTimers(),
    AdvanceRuns(),
    RecordWaits(),
    PruneRuns(5),
    StageArtifact(
        run_id=TASK,
        task_id=1,
        fence=2,
        name="n",
        media_type="m",
        size=3,
        content=b"abc",
        file="f",
        by=CALLER,
    ),
    CheckArtifact(run_id=TASK, task_id=1, fence=2, size=3, by=CALLER),
    RegisterMember(
        service="s",
        worker_id="w1",
        shard_count=9,
        protocol=2,
        incarnation="7",
        weight=500,
        max_shards=3,
        seq=4,
        by=CALLER,
    ),
    BeatMember(
        service="s",
        worker_id="w1",
        shard_count=9,
        holds=(1, 2),
        protocol=2,
        incarnation="7",
        generation=5,
        seq=6,
        draining=True,
        by=CALLER,
    ),
    LeaveMember(service="s", worker_id="w1", incarnation="7", by=CALLER),
    DrainMember(service="s", worker_id="w1", draining=False),
    ConfigureService(service="s", shard_count=4, pinned=True, min_protocol=2),
    SweepServices(deaf_until_ms=5),
    SaveCheckpoint(
        service="s", shard=1, epoch=2, value=Raw(b'{"at": 3}'), worker_id="w1", by=CALLER
    ),
    PutValue(
        key="k", value=Raw(b'{"v": 1}'), ttl_ms=1, if_version=2, by_operator=True, owner="ann"
    ),
    DeleteValue(key="k", if_version=2),
    SweepValues(),
    PutSchedule(name="clean", document=b'{"huge": 1e999}', paused=True, pinned=False, by=CALLER),
    SyncSchedules(source="shop", schedules=(CodeSchedule("clean", b"{}"),), by=CALLER),
    DeleteSchedule(name="clean", by=CALLER),
    PauseSchedule(name="clean", note="n", by=CALLER),
    ResumeSchedule(name="clean", by=CALLER),
    RunSchedule(name="clean", by=CALLER),
    BackfillSchedule(
        name="clean", from_ms=1, to_ms=2, overlap="queue_all", is_dry_run=True, by=CALLER
    ),
    FireSchedules(),
    AcquireLock(name="l", owner="ann", ttl_ms=1, wait_ms=2),
    RenewLock(name="l", owner="ann", fence=1, ttl_ms=2),
    ReleaseLock(name="l", owner="ann", fence=1),
    LeaveLockQueue(name="l", owner="ann", asked=1, is_gone=False),
    SweepLocks(),
    ClearNotifications((SessionNotification(seq=1, session_id="s", task_id=TASK),)),
    PruneEvents(before_ms=1, most=2),
    KeepMinutes(
        minutes=(KeptMinute(started_at_ms=1, queue="mail", slots=b"[]"),), forget_before_ms=2
    ),
    BeatReplica(
        replica=Replica(
            name="a",
            url="http://a",
            host="h",
            version="1",
            started_at_ms=1,
            seen_ms=2,
        ),
        is_leaving=True,
    ),
    PutLimit(key="a/b", limit=3, per_ms=1_000, burst=2, mode="window", pinned=False),
    DropLimit(key="a/b"),
    ConsumeLimit(key="a/b", cost=2),
    CloseLimit(key="a/b", for_ms=5),
    LookAtLimits(keys=("a", "b")),
    LookAtTenants(queue="mail", most=5),
    LookAtBlocked(),
    RecountLimits(),
    WatchTargets(),
    NoteStuckQueues(
        stuck=(StuckLane(queue="mail", name="send", queued=3, code="no_workers", text="t"),),
        freed=("other",),
    ),
    PutWebhook(
        name="ops",
        spec=WebhookSpec(url="https://x/", queues=("mail",), format="slack"),
        secret="s",
        new_secret="n",
        new_uid="u",
    ),
    DeleteWebhook(name="ops"),
    PutPush(
        queue="fn",
        spec=PushSpec(url="https://x/", headers={"a": "b"}, concurrency=3),
        secret="s",
        new_secret="n",
    ),
    DropPush(queue="fn"),
    ClosePush(queue="fn", until_ms=7),
    QueueDeliveries(
        taken=(
            TakenEvents(
                webhook="ops",
                uid="u",
                cursor=7,
                events=(
                    LoggedEvent(
                        seq=7, at_ms=1, type="task-failed", subject="t", data={"queue": "mail"}
                    ),
                ),
                has_gap=True,
            ),
        )
    ),
    ReportDeliveries(
        reports=(
            DeliveryReport(
                webhook="ops", uid="u", seq=7, attempt=1, code=500, error="e", retry_after_ms=5
            ),
        )
    ),
    ChangeSettings(
        queue="mail",
        change=QueueChange(max_running=3, rate=QueueRate(limit=5), weights={"t": 2.0}),
    ),
]


def test_there_is_one_example_of_every_kind() -> None:
    assert Counter(map(type, EXAMPLES)) == Counter(get_args(Command))


def test_every_kind_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(Command)]

    assert all(isinstance(tag, str) for tag in tags)
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_was_sent(command: Command) -> None:
    encoded = encode_command(command)

    assert decode_command(encoded) == command


@pytest.mark.parametrize(
    "command",
    [
        FailJob(task_id=TASK, error=TaskError(details=DOCUMENT)),
        ReportResults(
            worker_id="w1",
            incarnation=3,
            results=[Result(TASK, 4, ok=False, result=b"\xff", error=TaskError(details=DOCUMENT))],
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_an_error_arrives_with_numbers_that_only_json_has(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("codec", [msgspec.msgpack, msgspec.json])
def test_a_kind_that_is_not_known_is_refused_by_its_name(codec: Any) -> None:
    with pytest.raises(UnknownCommand, match="'Unheard'") as refusal:
        decode_command(codec.encode({"type": "Unheard"}))

    assert refusal.value.facts["command"] == "Unheard"


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc1",
        b"{",
        b"\x90",
        b"\x81\xa4type\xa1\x80",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"type": "PauseQueue"}),
    ],
)
def test_a_command_that_is_not_well_formed_is_refused(encoded: bytes) -> None:
    with pytest.raises(Invalid):
        decode_command(encoded)


def test_documents_that_a_gateway_left_raw_travel_as_they_are() -> None:
    done = Result(TaskId(1), 1, result=Raw(b"42"))
    half = Progress(TaskId(1), 1, progress=Raw(b"0.5"), partial=Raw(b"[1]"))

    reported = decode_command(
        encode_command(ReportResults(worker_id="w", incarnation=1, results=[done]))
    )
    progressed = decode_command(
        encode_command(ReportProgress(worker_id="w", incarnation=1, items=[half]))
    )

    assert isinstance(reported, ReportResults)
    assert reported.results[0].result == b"42"
    assert isinstance(progressed, ReportProgress)
    assert (progressed.items[0].progress, progressed.items[0].partial) == (b"0.5", b"[1]")
