import msgspec
import pytest

from rota.core.access import Caller, Scope
from rota.core.events import (
    EVENT_KINDS,
    EVERYTHING,
    EventFilter,
    LoggedEvent,
    error_in_short,
    healths_now,
    matches,
    may_see,
    sees_everything,
    types_of,
)
from rota.core.limits import MAX_EVENT_TEXT
from rota.core.tasks.model import TaskError
from rota.core.workers.model import Health, HealthPolicy, WorkerRecord
from rota.errors import Invalid

NOW_MS = 1_800_000_000_000


def noted(kind: str, subject: str = "s", **data: object) -> LoggedEvent:
    return LoggedEvent(seq=1, at_ms=NOW_MS, type=kind, subject=subject, data=data)


# --- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_type_is_a_noun_and_what_became_of_it_with_a_meaning(kind: str) -> None:
    assert "-" in kind
    assert kind == kind.lower()
    assert EVENT_KINDS[kind].meaning.endswith(".")
    assert EVENT_KINDS[kind].subject


def test_types_are_named_one_by_one_or_by_their_beginning() -> None:
    several = types_of(["token-*", "task-failed"])

    assert types_of(["task-failed"]) == frozenset({"task-failed"})
    assert several == frozenset({"token-created", "token-revoked", "task-failed"})
    assert types_of(["*"]) == frozenset(EVENT_KINDS)


def test_no_type_named_is_all_of_them() -> None:
    assert types_of([]) is None


@pytest.mark.parametrize("pattern", ["task-exploded", "nothing-*", "", "task-fail", "TASK-FAILED"])
def test_a_type_that_can_never_come_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="no events of type") as refused:
        types_of([pattern])

    assert refused.value.facts["field"] == "type"


# --- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (EVERYTHING, True),
        (EventFilter(types=frozenset({"task-failed"})), True),
        (EventFilter(types=frozenset({"task-started"})), False),
        (EventFilter(subject="abc"), True),
        (EventFilter(subject="ab"), False),
        (EventFilter(prefix="ab"), True),
        (EventFilter(prefix="b"), False),
        (EventFilter(types=frozenset({"task-failed"}), subject="abc", prefix="a"), True),
        (EventFilter(types=frozenset({"task-failed"}), subject="abc", prefix="x"), False),
    ],
)
def test_a_filter_lets_through_what_fits_all_its_fields(
    wanted: EventFilter, *, is_wanted: bool
) -> None:
    assert matches(wanted, noted("task-failed", "abc")) is is_wanted


# --- sight --------------------------------------------------------------------------------------

READER = Caller(name="r", scopes=(Scope.READ,))
ADMIN = Caller(name="a", scopes=(Scope.ADMIN,))
OF_QUEUE = Caller(name="q", scopes=(Scope.READ,), queues=("mail",), services=())
OF_SERVICE = Caller(name="s", scopes=(Scope.READ,), queues=(), services=("cart",))


@pytest.mark.parametrize(
    ("caller", "event", "sees"),
    [
        (READER, noted("task-failed", queue="mail"), True),
        (READER, noted("run-failed"), True),
        (READER, noted("member-left", "cart"), True),
        (READER, noted("token-created"), False),
        (ADMIN, noted("token-created"), True),
        (OF_QUEUE, noted("task-failed", queue="mail"), True),
        (OF_QUEUE, noted("task-failed", queue="other"), False),
        (OF_QUEUE, noted("task-failed"), False),
        (OF_QUEUE, noted("queue-paused", "mail"), True),
        (OF_QUEUE, noted("queue-paused", "other"), False),
        (OF_QUEUE, noted("worker-registered"), True),
        (OF_QUEUE, noted("worker-registered", queues=("mail", "other")), True),
        (OF_QUEUE, noted("worker-registered", queues=("other",)), False),
        (OF_QUEUE, noted("run-failed"), False),
        (OF_QUEUE, noted("memory-set"), False),
        (OF_QUEUE, noted("member-left", "cart"), False),
        (OF_SERVICE, noted("shards-rebalanced", "cart"), True),
        (OF_SERVICE, noted("shards-rebalanced", "other"), False),
        (OF_SERVICE, noted("task-failed", queue="mail"), False),
    ],
)
def test_a_caller_is_told_what_it_could_find_out_by_asking(
    caller: Caller, event: LoggedEvent, *, sees: bool
) -> None:
    assert may_see(caller, event) is sees


def test_whoever_sees_everything_is_refused_nothing() -> None:
    assert sees_everything(ADMIN)
    assert all(may_see(ADMIN, noted(kind)) for kind in EVENT_KINDS)
    assert not any(map(sees_everything, (READER, OF_QUEUE, OF_SERVICE)))


# --- what they say ------------------------------------------------------------------------------


def test_an_error_is_told_in_short() -> None:
    error = TaskError(type="Boom", message="x" * 20_000, details={"trace": "…"})

    assert error_in_short(error) == {"type": "Boom", "message": "x" * MAX_EVENT_TEXT}


def worker(worker_id: str, silent_ms: int) -> WorkerRecord:
    return WorkerRecord(
        id=worker_id,
        incarnation=1,
        node_id="n1",
        heartbeat_interval_ms=5_000,
        last_heartbeat_ms=NOW_MS - silent_ms,
        started_at_ms=NOW_MS - 60_000,
    )


def healths(*workers: WorkerRecord, resumed_ms_ago: int = 60_000) -> dict[str, Health]:
    return healths_now(
        {one.id: one for one in workers},
        resumed_at_ms=NOW_MS - resumed_ms_ago,
        now_ms=NOW_MS,
        policy=HealthPolicy(),
    )


def test_only_the_workers_that_are_not_healthy_are_remembered() -> None:
    found = healths(worker("a", 10_000), worker("b", 10_001), worker("c", 15_001))

    assert found == {"b": Health.DEGRADED, "c": Health.UNHEALTHY}


def test_nobody_is_blamed_for_silence_while_the_coordinator_was_away() -> None:
    assert healths(worker("a", 50_000), resumed_ms_ago=10_000) == {}
    assert healths(worker("a", 50_000), resumed_ms_ago=10_001) == {"a": Health.DEGRADED}


def test_a_beat_from_the_future_speaks_for_a_worker() -> None:
    assert healths(worker("a", -5_000)) == {}


def test_a_notice_in_the_log_is_written_as_it_is_read() -> None:
    event = noted("task-failed", "abc", queue="mail", attempt=3)

    assert msgspec.json.decode(msgspec.json.encode(event), type=LoggedEvent) == event
