"""Every frame between coordinators arrives as it was sent, with the same types and values."""

import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from rota import errors
from rota.core.commands import Command, PauseQueue, SubmitTasks
from rota.core.decisions import AddTask, TellCancelled
from rota.core.flows.commands import (
    BlockedLane,
    BlockedLanes,
    LimitsRecounted,
    LimitState,
    LimitStates,
    TenantState,
    TenantStates,
)
from rota.core.flows.model import LimitRecord
from rota.core.flows.queue_settings import QueueRate, QueueSettings
from rota.core.ids import TaskId
from rota.core.kv import KvEntry
from rota.core.locks import LockAnswer
from rota.core.outbound.push import PushRecord, PushShown, PushSpec
from rota.core.replies import (
    Beat,
    Changed,
    CommandBase,
    Done,
    Granted,
    JobChanged,
    Outcomes,
    Registered,
    SubmissionStatus,
    SubmissionStatuses,
    Submitted,
    Taken,
)
from rota.core.schedules.commands import FiringShown, ScheduleShown, SchedulesSynced
from rota.core.schedules.model import (
    FiredItem,
    Firing,
    SchedulePause,
    ScheduleRecord,
    ScheduleState,
    WaitingFiring,
)
from rota.core.shards.members import Assignment
from rota.core.tasks.keys import KeySpace
from rota.core.tasks.model import (
    Backoff,
    EndedAttempt,
    Ending,
    Lane,
    NewTask,
    TaskError,
    TaskOptions,
    TaskRecord,
    TaskState,
)
from rota.core.webhooks.commands import WebhookShown
from rota.core.webhooks.model import WebhookRecord, WebhookSpec, WebhookState
from rota.core.workers.model import Health, WorkerRecord, WorkerState
from rota.core.workflow.commands import (
    ArtifactStaged,
    OperationsNoted,
    OperationsShown,
    ReplyShown,
    RunShown,
    ScopeExtended,
    StreamShown,
    WorkflowKept,
)
from rota.core.workflow.records import Artifact, RunRecord, Version
from rota.core.workflow.states import RunState
from rota.engine.dispatch.lease_rows import GrantedRows, granted_rows
from rota.engine.replicas.link.codec import FollowerCodec, GarbledMessage, LeaderCodec, join_frames
from rota.engine.replicas.link.errors import PackedError, as_rota_error, pack_error, unpack_error
from rota.engine.replicas.link.frames import (
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    LeaderFrame,
    Refused,
    Replied,
    Resigned,
    Resigning,
    encode_ids,
)
from rota.engine.replicas.link.replies import REPLY_TAGS, CommandReply, CompactSubmitted
from rota.errors import (
    Internal,
    InvalidWorkflow,
    Overloaded,
    RotaError,
    StaleLease,
    TaskNotFound,
    TooLarge,
    Unavailable,
    UnknownCommand,
)
from tests.core.test_commands import EXAMPLES

TASK = TaskId(2**62)
HUGE = 10**40  # JSON has such a number, MessagePack has not
DOCUMENT = {"items": [1, 2.5, None, "ü"], "huge": HUGE}
ERROR = TaskError(type="T", message="m", retryable=False, details={"traceback": ["line", 1, None]})

RECORD = TaskRecord(
    id=TASK,
    lane=Lane("mail", "send", ("gpu",)),
    state=TaskState.RUNNING,
    priority=-3,
    payload=b'{"to": "ann", "huge": 1e999}',
    options=TaskOptions(max_attempts=9, backoff=Backoff(jitter=True), labels={"a": "b"}),
    key="k",
    created_at_ms=1,
    due_at_ms=2,
    attempt=3,
    fence=4,
    worker_id="w1",
    incarnation=5,
    started_at_ms=6,
    deadline_ms=7,
    finished_at_ms=8,
    result=b"\xff\x00",
    error=ERROR,
    progress=b"1",
    partial=b"2",
    log=(
        EndedAttempt(
            attempt=1,
            fence=1,
            ending=Ending.LOST,
            ended_at_ms=3,
            next_state=TaskState.QUEUED,
            error=ERROR,
        ),
    ),
    run=9,
    token=10,
)
SMALL_RECORD = TaskRecord(
    id=TASK, lane=Lane("mail", "send"), state=TaskState.QUEUED, created_at_ms=1
)
HUGE_RECORD = msgspec.structs.replace(
    RECORD, error=TaskError(details=DOCUMENT), options=TaskOptions(labels=["a", "b"])
)
RUN = RunRecord(
    id=TASK,
    workflow="w",
    version=2,
    state=RunState.FAILED,
    input={"a": [1, 2.0]},
    context={"x": None},
    output="done",
    error={"type": "T"},
    key="k",
    created_at_ms=1,
)
ASSIGNMENT = Assignment(
    service="s",
    worker_id="w1",
    incarnation="7",
    protocol=2,
    shards=(1, 2),
    epochs=(3, 4),
    revoking=(2,),
    generation=5,
    changed_in=4,
    lease_ms=15_000,
    heartbeat_interval_ms=5_000,
    seq=6,
    status="fenced",
    reason="r",
    is_pending=True,
)
LOCK = LockAnswer(
    name="l",
    owner="ann",
    acquired=True,
    fence=1,
    asked=2,
    expires_at_ms=3,
    holder="bob",
    position=4,
)
FIRING = Firing(
    number=1,
    nominal_ms=2,
    fired_at_ms=3,
    outcome="skipped_missed",
    id=TASK,
    is_run=True,
    is_manual=True,
    count=4,
    reason="r",
)
SCHEDULE = ScheduleRecord(
    name="clean",
    document=b'{"huge": 1e999}',
    state=ScheduleState(
        created_at_ms=1,
        updated_at_ms=2,
        next_nominal_ms=3,
        open=(FiredItem(TASK, 4, is_run=True),),
        waiting=(WaitingFiring(5, 6, is_manual=True),),
        pause=SchedulePause(at_ms=7, by="ann", note="n"),
        source="shop",
    ),
)

LIMIT = LimitState(
    record=LimitRecord(
        key="k",
        kind="rate",
        limit=3,
        per_ms=1_000,
        burst=2,
        mode="window",
        is_pinned=True,
        owner="ann",
        declared={"send": (3, 1_000, 2, 1)},
        changed_at_ms=5,
        starts_ms=[1, 2],
    ),
    running=1,
    waiting=2,
    opens_at_ms=3,
)

PUSH = PushRecord(queue="fn", spec=PushSpec(url="https://x/"), secret="s", changed_at_ms=1)
WEBHOOK = WebhookRecord(
    name="ops",
    spec=WebhookSpec(url="https://x/"),
    secret="s",
    cursor=2**62,
    state=WebhookState(uid="u", created_at_ms=1, updated_at_ms=2),
)
REPLIES: list[CommandReply] = [
    SubmissionStatuses([SubmissionStatus(task=RECORD, position=3, is_duplicate=True)]),
    SubmissionStatuses([SubmissionStatus(task=HUGE_RECORD)]),
    Registered(
        WorkerRecord(
            id="w1",
            incarnation=2,
            node_id="n1",
            capabilities=("gpu",),
            tasks=("send",),
            queues=("mail",),
            group="g",
            labels=["a"],
            state=WorkerState.QUARANTINED,
            last_heartbeat_ms=1,
            started_at_ms=2,
            load={"cpu": 0.5, "depth": 3},
            owner="ann",
        ),
        lease_ms=3,
    ),
    Beat(
        health=Health.DEGRADED,
        state=WorkerState.DRAINING,
        cancel=(TASK,),
        lost=(TASK,),
        heartbeat_interval_ms=1,
        lease_ms=2,
    ),
    Granted([RECORD, SMALL_RECORD]),
    Granted([RECORD, HUGE_RECORD]),
    Granted([]),
    Outcomes(["accepted", "duplicate", "stale", "stale_epoch", "unknown"]),
    Done(),
    Done(7),
    Taken(count=3, duplicates=1, refused=(("k", ERROR), (None, ERROR))),
    JobChanged(RECORD),
    WorkflowKept(Version(name="w", version=1, hash="h", created_at_ms=2), is_new=True),
    RunShown(RUN, {"a": [1, {"b": None}]}, is_duplicate=True),
    RunShown(RUN, DOCUMENT),
    OperationsNoted(["accepted"], {0: "cancelled"}),
    OperationsShown(entries=[b'{"a": 1}'], next_after=2, reported=3, restarts=4),
    StreamShown(values=[b"1", b'"two"'], next_after=2, is_ended=True),
    ReplyShown(value=b'{"a": 1}', is_ended=False),
    ReplyShown(is_ended=True),
    ScopeExtended(run_id=1, scope=2, first_index=3, count=4, total=5, is_duplicate=True),
    ArtifactStaged(
        Artifact(
            id=1,
            run=2,
            name="n",
            task=3,
            fence=4,
            media_type="m",
            size=5,
            file="f",
            created_at_ms=6,
        )
    ),
    ASSIGNMENT,
    KvEntry(key="k", value=b'{"v": 1}', version=2, updated_at_ms=3, expires_at_ms=4, owner="ann"),
    LOCK,
    LIMIT,
    LimitStates([LIMIT]),
    TenantStates([TenantState(key="a", weight=2.0, waiting=3, running=1, share=0.5)], total=1),
    BlockedLanes([BlockedLane(lane=Lane("mail", "send", ("gpu",)), limit=LIMIT, keys=2)]),
    LimitsRecounted(limits=1, slots=2, flows=3, differences=["limit 'a' differs"]),
    QueueSettings(max_running=1, max_queued=2, rate=QueueRate(limit=3), weights={"a": 0.5}),
    ScheduleShown(SCHEDULE, is_new=True),
    FiringShown(FIRING),
    SchedulesSynced(changed=("a",), unchanged=("b",), pinned=("c",), orphaned=("d",)),
    PushShown(record=PUSH, is_new=True),
    WebhookShown(record=WEBHOOK, is_new=True, has_new_secret=True),
]
FOLLOWER_FRAMES: list[FollowerFrame] = [
    Forward(1, PauseQueue("mail", paused=True), can_wait=True),
    Forward(1, PauseQueue("mail", paused=True), is_subscription=True),
    Abandon(2),
    Resigned(),
]
LEADER_FRAMES: list[LeaderFrame] = [
    Replied(1, Done(2)),
    Replied(3, Granted([RECORD])),
    Replied(3, Granted([HUGE_RECORD])),
    Replied(3, granted_rows([RECORD, RECORD])),
    Committed(
        now_ms=1,
        last_seq=2,
        ended=Raw(encode_ids([TASK])),
        pushes=[ASSIGNMENT],
        sessions=["s1"],
        cancelled=[TellCancelled(3, TASK)],
        granted_locks=[LOCK],
        submitted={"mail": 4},
        finished=[("mail", TaskState.FAILED, 5)],
    ),
    Committed(now_ms=1, last_seq=2),
    Resigning(),
]


class Ends:
    """Both codecs of one connection."""

    def __init__(self) -> None:
        self.follower = FollowerCodec()
        self.leader = LeaderCodec()

    def to_leader(self, *sent: FollowerFrame) -> list[FollowerFrame]:
        frames, answers = self.leader.decode(join_frames([self.follower.encode(f) for f in sent]))
        assert not answers
        return frames

    def to_follower(self, *sent: LeaderFrame) -> list[LeaderFrame]:
        encoded = [self.leader.encode(frame) for frame in sent]
        frames, answers = self.follower.decode(join_frames([one for one in encoded if one]))
        assert not answers
        return frames


def reply_types() -> Iterator[type[Struct]]:
    """The types that the commands name as their replies."""
    for kind in get_args(Command):
        base = next(one for one in kind.__orig_bases__ if get_origin(one) is CommandBase)
        (named,) = get_args(base)
        yield from get_args(named) or (named,)


def every_error() -> list[type[RotaError]]:
    return [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, RotaError) and one.__module__ == errors.__name__
    ]


# --- commands and replies -------------------------------------------------------------------------


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_every_command_arrives_as_it_was_sent(command: Command) -> None:
    frame = Forward(2**53, command, can_wait=True)

    assert Ends().to_leader(frame) == [frame]


def test_every_reply_of_every_command_has_a_tag() -> None:
    sent_compactly: dict[type[Struct], type[Struct]] = {Submitted: CompactSubmitted}

    of_commands = {sent_compactly.get(kind, kind) for kind in reply_types()}
    assert of_commands | {GrantedRows} == REPLY_TAGS.keys()
    assert len(set(REPLY_TAGS.values())) == len(REPLY_TAGS)


def test_every_kind_of_reply_is_tried() -> None:
    tried = {type(reply) for reply in REPLIES} | {Submitted, Changed}

    assert tried == set(reply_types())


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_every_reply_arrives_as_it_was_sent(reply: CommandReply) -> None:
    (received,) = Ends().to_follower(Replied(1, reply))

    assert received == Replied(1, reply)


def test_refusals_inside_a_reply_arrive_as_errors() -> None:
    refused = {TASK: TaskNotFound("00ff"), TaskId(1): StaleLease("00fe", "because")}
    (received,) = Ends().to_follower(Replied(1, Changed((TASK,), refused)))

    assert isinstance(received, Replied)
    assert isinstance(received.reply, Changed)
    assert received.reply.changed == (TASK,)
    assert list(received.reply.refused) == [TASK, TaskId(1)]
    for task_id, error in refused.items():
        assert_same(received.reply.refused[task_id], error)


# --- submissions ----------------------------------------------------------------------------------


def submission(*tasks: NewTask, key_space: KeySpace = KeySpace.CALLER) -> SubmitTasks:
    return SubmitTasks(list(tasks), key_space=key_space)


def test_a_submission_is_answered_without_its_payloads_and_arrives_whole() -> None:
    ends = Ends()
    payload = Raw(b'"%b"' % (b"x" * 10_000))
    sent = submission(NewTask(name="a", payload=payload), NewTask(name="b", key="k"))
    (frame,) = ends.to_leader(Forward(1, sent))
    assert isinstance(frame, Forward)
    assert isinstance(frame.command, SubmitTasks)
    first, second = frame.command.tasks
    reply = Submitted([AddTask(TASK, first, 5, 6), AddTask(TaskId(1), second, 5)])

    encoded = ends.leader.encode(Replied(1, reply))
    assert encoded is not None
    assert len(encoded) < 100
    received, _ = ends.follower.decode(join_frames([encoded]))

    assert received == [Replied(1, reply)]
    assert isinstance(received[0], Replied)
    assert isinstance(received[0].reply, Submitted)
    added = received[0].reply.items[0]
    assert isinstance(added, AddTask)
    assert added.task is sent.tasks[0]


def test_an_existing_task_and_a_stored_key_arrive_as_they_are() -> None:
    ends = Ends()
    sent = submission(NewTask(name="a", key="k"), NewTask(name="b", key="k2"))
    ends.to_leader(Forward(1, sent))
    kept = msgspec.structs.replace(sent.tasks[1], key="session:k2")
    for existing in (RECORD, HUGE_RECORD):
        reply = Submitted([existing, AddTask(TASK, kept, 5)])

        assert ends.to_follower(Replied(1, reply)) == [Replied(1, reply)]
        ends.to_leader(Forward(1, sent))


def test_the_reply_to_an_abandoned_submission_is_not_delivered() -> None:
    reply = Submitted([AddTask(TASK, NewTask(name="a"), 5)])
    known, crossing = Ends(), Ends()
    known.to_leader(Forward(1, submission(NewTask(name="a"))), Abandon(1))
    crossing.to_leader(Forward(1, submission(NewTask(name="a"))))
    crossing.follower.encode(Abandon(1))

    assert known.leader.encode(Replied(1, reply)) is None
    assert crossing.to_follower(Replied(1, reply), Resigning()) == [Resigning()]


def test_codecs_keep_nothing_of_what_has_been_answered() -> None:
    ends = Ends()
    ends.to_leader(*(Forward(n, submission(NewTask(name="a"))) for n in range(3)))
    ends.to_follower(
        Replied(0, Submitted([AddTask(TASK, NewTask(name="a"), 5)])), Refused(1, Internal("no"))
    )
    ends.to_leader(Abandon(2))

    assert ends.follower._submissions == ends.leader._submissions == {}


# --- other frames ---------------------------------------------------------------------------------


def test_frames_of_followers_arrive_as_they_were_sent() -> None:
    assert {type(frame) for frame in FOLLOWER_FRAMES} == set(get_args(FollowerFrame))
    assert Ends().to_leader(*FOLLOWER_FRAMES) == FOLLOWER_FRAMES


def test_frames_of_the_leader_arrive_as_they_were_sent() -> None:
    kinds = {type(frame) for frame in LEADER_FRAMES} | {Refused}

    assert kinds == set(get_args(LeaderFrame))
    assert Ends().to_follower(*LEADER_FRAMES) == LEADER_FRAMES


def test_a_frame_over_the_limit_of_a_message_is_not_sent_and_leaves_nothing_behind() -> None:
    follower, leader = FollowerCodec(most_bytes=100), LeaderCodec(most_bytes=100)
    large = NewTask(name="a", payload=Raw(b'"%b"' % (b"x" * 100)))

    with pytest.raises(TooLarge):
        follower.encode(Forward(1, submission(large)))
    with pytest.raises(TooLarge):
        leader.encode(Replied(1, Granted([RECORD])))
    assert follower._submissions == {}


@pytest.mark.parametrize(
    "message",
    [b"", b"\xc1", b"\x93", b"\x91\x91\xa1?", b"\xdd\xff\xff\xff\xff", b"\x91\x91\xa1\x80"],
)
def test_a_message_that_is_not_one_is_an_error(message: bytes) -> None:
    with pytest.raises(GarbledMessage):
        FollowerCodec().decode(message)
    with pytest.raises(GarbledMessage):
        LeaderCodec().decode(message)


def test_an_end_does_not_take_its_own_frames() -> None:
    with pytest.raises(GarbledMessage):
        LeaderCodec().decode(join_frames([msgspec.msgpack.encode(Resigning())]))
    with pytest.raises(GarbledMessage):
        FollowerCodec().decode(join_frames([msgspec.msgpack.encode(Abandon(1))]))


# --- what only one of two versions knows ----------------------------------------------------------


def test_an_unknown_command_is_refused_by_its_name_and_the_others_are_taken() -> None:
    ends = Ends()
    unknown = msgspec.msgpack.encode(["f", 7, msgspec.msgpack.encode({"type": "Unheard"})])
    known = ends.follower.encode(Forward(8, PauseQueue("mail", paused=True)))

    frames, answers = ends.leader.decode(join_frames([unknown, known]))
    (refused,), _ = ends.follower.decode(join_frames(answers))

    assert frames == [Forward(8, PauseQueue("mail", paused=True))]
    assert isinstance(refused, Refused)
    assert refused.number == 7
    assert_same(refused.error, UnknownCommand("Unheard"))


def test_a_reply_that_is_not_known_is_an_error_of_its_command_alone() -> None:
    unknown = msgspec.msgpack.encode(["r", 7, "unheard", b"\x80"])
    broken = msgspec.msgpack.encode(["r", 8, "granted", b"\x80"])
    not_text = msgspec.msgpack.encode(["r", 9, "lock", b"\x81\xa4name\xa1\x80"])

    frames, _ = FollowerCodec().decode(join_frames([unknown, broken, not_text]))

    assert [frame.number for frame in frames if isinstance(frame, Refused)] == [7, 8, 9]


def test_fields_that_a_newer_peer_adds_are_passed_over() -> None:
    newer = msgspec.msgpack.encode(["a", 1, "more"])

    assert LeaderCodec().decode(join_frames([newer]))[0] == [Abandon(1)]


# --- errors ---------------------------------------------------------------------------------------


def assert_same(received: RotaError, sent: RotaError) -> None:
    assert type(received) is type(sent)
    assert str(received) == str(sent)
    assert vars(received) == vars(sent)
    assert (received.code, received.status) == (sent.code, sent.status)
    assert received.title == sent.title


def built(kind: type[RotaError]) -> RotaError:
    """An error of this class, made from anything that its constructor takes."""
    given: dict[str, Any] = {}
    for name, one in inspect.signature(kind).parameters.items():
        if one.kind is not inspect.Parameter.VAR_KEYWORD:
            given[name] = 7 if one.annotation in (int, "int") else f"a {name}"
    return kind(**given)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_the_class_that_was_raised(kind: type[RotaError]) -> None:
    error = built(kind)

    (received,) = Ends().to_follower(Refused(1, error))

    assert isinstance(received, Refused)
    assert_same(received.error, error)


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("busy", retry_after_s=9, limit="max_waiting"),
        Unavailable("gone", retry_after_s=3),
        InvalidWorkflow("bad", problems=[{"path": "a.b", "text": "ü"}]),
        RotaError("odd", number=HUGE, nothing=None, detail_of=["a", 1.5]),
    ],
    ids=lambda error: error.code,
)
def test_the_facts_of_an_error_arrive(error: RotaError) -> None:
    assert_same(unpack_error(pack_error(error)), error)


def test_an_error_that_only_a_newer_peer_knows_keeps_what_clients_match_on() -> None:
    error = unpack_error(PackedError("fresh", 418, "a text", '{"tea": "green"}'))

    assert isinstance(error, RotaError)
    assert (error.code, error.status, error.detail) == ("fresh", 418, "a text")
    assert error.facts == {"tea": "green"}
    assert_same_as_sent_on = unpack_error(pack_error(error))
    assert (assert_same_as_sent_on.code, assert_same_as_sent_on.status) == ("fresh", 418)


def test_a_failure_of_the_leader_is_told_without_its_text() -> None:
    failure = as_rota_error(RuntimeError("password=hunter2"))
    (received,) = Ends().to_follower(Refused(1, RuntimeError("password=hunter2")))  # type: ignore[arg-type]  # what a careless caller sends

    assert isinstance(received, Refused)
    assert_same(received.error, failure)
    assert isinstance(failure, Internal)
    assert "hunter2" not in str(received.error)


# --- anything -------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
task_errors = st.builds(TaskError, type=texts, message=texts, details=json_values)
records = st.builds(
    TaskRecord,
    id=st.integers(0, 2**63 - 1),
    lane=st.builds(Lane, texts, texts, st.lists(texts, max_size=2).map(tuple)),
    state=st.sampled_from(TaskState),
    payload=st.binary(max_size=50),
    key=st.none() | texts,
    created_at_ms=st.integers(0, 2**53),
    result=st.none() | st.binary(max_size=50),
    error=st.none() | task_errors,
)


@given(st.lists(records, max_size=4))
def test_any_tasks_arrive_as_they_were_sent(tasks: list[TaskRecord]) -> None:
    frames: list[LeaderFrame] = [
        Replied(1, Granted(tasks)),
        *(Replied(3, JobChanged(task)) for task in tasks),
    ]

    assert Ends().to_follower(*frames) == frames


@given(texts, st.dictionaries(texts, json_values, max_size=4))
def test_any_facts_arrive(detail: str, facts: dict[str, Any]) -> None:
    error = RotaError(detail)
    error.facts = facts

    assert_same(unpack_error(pack_error(error)), error)


@given(st.binary(max_size=200))
@example(b"\x91\x91\xa3\x00\x00\x80")  # a tag that is no text
@example(b"\x91" * 100_000)
def test_any_bytes_are_frames_or_an_error(message: bytes) -> None:
    for codec in (FollowerCodec(), LeaderCodec()):
        with suppress(GarbledMessage):
            codec.decode(message)
