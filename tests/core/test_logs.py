"""Logs of attempts: what is kept within which bounds, and from whom."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.access import Caller, Scope
from rota.core.commands import AttemptLines, ExpireAttempts, ReportLogs
from rota.core.decisions import ForgetLogs, KeepLines
from rota.core.ids import TaskId
from rota.core.replies import Outcomes
from rota.core.tasks.logs import (
    LEVELS,
    LINE_OVERHEAD_BYTES,
    LogLine,
    LogUsage,
    TaskLogs,
    begin,
    has_room,
    shortened,
    shortened_text,
    size_of,
    take,
)
from rota.errors import Forbidden, RotaError, StaleIncarnation, WorkerNotFound
from tests.core.snapshots import (
    NO_WAIT,
    NOW_MS,
    Situation,
    add_running,
    add_task,
    add_worker,
    done,
    reduce,
    report,
    situation,
)

OF_MAIL = Caller(name="mail", scopes=(Scope.WORKER,), queues=("mail",), services=())
OF_FILM = Caller(name="film", scopes=(Scope.WORKER,), queues=("film",), services=())
EMPTY = LogUsage(attempt=1, last=0)


def line(message: str = "m", *, level: Any = "info", **changes: Any) -> LogLine:
    return LogLine(NOW_MS, level, "shop", message, **changes)


lines_of_any_kind = st.lists(
    st.builds(
        LogLine,
        st.integers(0, limits.MAX_LOG_TIME_MS),
        st.sampled_from(LEVELS),
        st.text(max_size=300),
        st.one_of(st.text(max_size=50), st.text(max_size=20).map(lambda text: text * 2_000)),
        st.one_of(st.none(), st.binary(max_size=4_000)),
    ),
    max_size=40,
)


# --- bounds -------------------------------------------------------------------------------------


@given(
    st.lists(lines_of_any_kind, max_size=8),
    st.integers(0, limits.MAX_LOG_LINES),
    st.integers(0, limits.MAX_LOG_BYTES),
)
def test_the_log_of_an_attempt_stays_within_its_bounds_and_counts_every_line(
    reports: list[list[LogLine]], lines: int, size: int
) -> None:
    before = usage = LogUsage(attempt=1, last=lines, lines=lines, size=size)
    kept: list[LogLine] = []

    for lines_sent in reports:
        more, usage = take(usage, lines_sent, first=0, left_out=0)
        kept += more

    assert usage.lines <= limits.MAX_LOG_LINES
    assert usage.size <= max(size, limits.MAX_LOG_BYTES)
    assert usage.lines - before.lines == len(kept) == usage.last - before.last
    assert usage.size - before.size == sum(map(size_of, kept))
    assert len(kept) + usage.cut == sum(map(len, reports)) == usage.sent
    for one in kept:
        assert len(one.message.encode()) <= limits.MAX_LOG_MESSAGE_BYTES
        assert len(one.logger) <= limits.MAX_NAME_LENGTH
        assert len(one.fields or b"") <= limits.MAX_LOG_FIELDS_BYTES


@given(st.data(), st.integers(0, 60))
def test_reports_that_are_repeated_add_nothing(data: st.DataObject, count: int) -> None:
    """A worker sends again what was not answered, together with what has come since."""
    lines = [line(f"line {number}") for number in range(count)]
    usage, kept, known = EMPTY, [], 0
    while known < count:
        begins = data.draw(st.integers(0, known))
        ends = data.draw(st.integers(known + 1, count))
        more, usage = take(usage, lines[begins:ends], first=begins + 1, left_out=begins)
        kept += more
        known = ends
    again, after = take(usage, lines, first=1, left_out=0)

    assert kept == lines
    assert (again, after) == ([], usage)


@given(st.text(max_size=20_000), st.integers(200, 10_000))
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    short = shortened_text(text, most)

    assert len(short.encode()) <= most
    if len(text.encode()) <= most:
        assert short == text
    else:
        assert short[:10] == text[:10]
        assert short[-10:] == text[-10:]
        assert f"{len(text.encode())} bytes, the middle is left out" in short


def test_a_line_within_the_limits_is_kept_as_it_is() -> None:
    small = line("m" * limits.MAX_LOG_MESSAGE_BYTES, fields=b"{}")

    assert shortened(small) is small


def test_fields_that_are_too_large_leave_their_size() -> None:
    large = line(fields=b'{"a": "%s"}' % (b"x" * limits.MAX_LOG_FIELDS_BYTES))

    assert shortened(large).fields == b'{"left_out_bytes":2057}'


def test_a_part_of_the_room_is_for_warnings_and_errors() -> None:
    info_room = limits.MAX_LOG_LINES - limits.MAX_LOG_LINES // limits.RESERVED_LOG_PART

    kept, full = take(EMPTY, [line()] * 2_000, first=0, left_out=0)
    errors, after = take(full, [line(level="error")] * 2_000, first=0, left_out=0)

    assert len(kept) == info_room
    assert len(errors) == limits.MAX_LOG_LINES - info_room
    assert after.cut == 4_000 - limits.MAX_LOG_LINES
    assert not has_room(line(level="warning"), lines=after.lines, size=after.size)


def test_large_lines_fill_a_log_before_its_lines_do() -> None:
    large = line("m" * (8 * 1024 - LINE_OVERHEAD_BYTES - len("shop")))

    kept, usage = take(EMPTY, [large] * 100, first=0, left_out=0)

    assert len(kept) == (256 - 32) // 8
    assert (usage.size, usage.cut) == (224 * 1024, 100 - len(kept))


def test_what_the_worker_has_not_sent_is_counted_once() -> None:
    _, first = take(EMPTY, [line()], first=1, left_out=4)
    _, second = take(first, [line()], first=2, left_out=6)
    _, late = take(second, [line()], first=1, left_out=4)

    assert (first.dropped, second.dropped, late.dropped) == (4, 6, 6)


def test_only_the_newest_attempts_of_a_task_keep_their_logs() -> None:
    logs = TaskLogs(attempts={})
    for fence in range(1, limits.MAX_LOGS_PER_TASK + 1):
        usage, forgotten = begin(logs, fence, attempt=1)
        assert forgotten is None
        logs.attempts[fence] = take(usage, [line()], first=0, left_out=0)[1]

    known, kept_all = begin(logs, 5, attempt=1)
    usage, forgotten = begin(logs, 99, attempt=2)

    assert (known.last, kept_all) == (5, None)
    assert (usage.last, forgotten) == (limits.MAX_LOGS_PER_TASK, 2)


# --- from whom ----------------------------------------------------------------------------------


def sent(
    snapshot: Situation, *items: AttemptLines, worker_id: str = "w1", **changes: Any
) -> tuple[list[Any], list[str]]:
    command = ReportLogs(worker_id=worker_id, **{"incarnation": None, "items": [*items], **changes})
    decisions, reply = reduce(snapshot, command)
    assert isinstance(reply, Outcomes)
    return decisions, [*reply.outcomes]


def test_lines_of_a_held_task_are_kept_and_the_rest_is_refused() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, fence=2, attempt=3)
    add_running(snapshot, 4, worker=add_worker(snapshot, "w2"))
    add_task(snapshot, 2)

    decisions, outcomes = sent(
        snapshot,
        AttemptLines(TaskId(1), 2, [line("a")]),
        AttemptLines(TaskId(1), 1, [line("old fence")]),
        AttemptLines(TaskId(2), 0, [line("not started")]),
        AttemptLines(TaskId(3), 1, [line("no task")]),
        AttemptLines(TaskId(4), 1, [line("of another worker")]),
        incarnation=worker.incarnation,
    )

    assert outcomes == ["accepted", "stale", "stale", "unknown", "stale"]
    (kept,) = decisions
    assert kept == KeepLines(TaskId(1), 2, [line("a")], kept.usage)
    assert (kept.usage.attempt, kept.usage.last, kept.usage.lines) == (3, 1, 1)


def test_lines_of_one_batch_are_numbered_in_order() -> None:
    snapshot = situation()
    add_running(snapshot, worker=add_worker(snapshot))

    first, _ = sent(snapshot, AttemptLines(TaskId(1), 1, [line("a"), line("b")]))
    second, _ = sent(snapshot, AttemptLines(TaskId(1), 1, [line("c")]))
    nothing, outcomes = sent(snapshot, AttemptLines(TaskId(1), 1, [line("c")], first=3))

    assert [one.usage.last for one in (*first, *second)] == [2, 3]
    assert (nothing, outcomes) == ([], ["accepted"])


def test_the_first_lines_of_an_attempt_forget_the_logs_of_the_oldest() -> None:
    snapshot = situation()
    add_running(snapshot, worker=add_worker(snapshot), fence=50, attempt=2)
    old = {fence: LogUsage(attempt=1, last=fence, lines=1) for fence in range(1, 21)}
    snapshot.logs[TaskId(1)] = TaskLogs(attempts=old)

    decisions, _ = sent(snapshot, AttemptLines(TaskId(1), 50, [line()]))

    forgotten, kept = decisions
    assert forgotten == ForgetLogs(TaskId(1), 2)
    assert kept.usage.last == 21
    assert len(snapshot.logs[TaskId(1)].attempts) == limits.MAX_LOGS_PER_TASK


@pytest.mark.parametrize(
    "changes",
    [{}, {"snooze_ms": 5}, {"ok": False, "result": None}],
    ids=["finished", "snoozed", "failed"],
)
def test_lines_may_come_with_the_end_of_their_attempt(changes: dict[str, Any]) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, attempt=2, backoff=NO_WAIT)
    reduce(snapshot, report(worker, done(lease, **changes)))
    decisions, outcomes = sent(snapshot, AttemptLines(lease.id, lease.fence, [line("last words")]))

    assert outcomes == ["accepted"]
    assert decisions[0].usage.attempt == 2


@pytest.mark.parametrize(
    ("late_ms", "outcome"), [(0, "accepted"), (10_000, "accepted"), (10_001, "stale")]
)
def test_lines_may_come_for_a_moment_after_the_end_of_their_attempt(
    late_ms: int, outcome: str
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, worker=worker, deadline_ms=NOW_MS, max_attempts=1)
    snapshot.overdue = [TaskId(1)]
    reduce(snapshot, ExpireAttempts())
    later = situation(now_ms=NOW_MS + late_ms)
    later.workers, later.tasks = snapshot.workers, snapshot.tasks

    _, outcomes = sent(later, AttemptLines(TaskId(1), 1, [line("still here")]))

    assert outcomes == [outcome]


def test_late_lines_are_refused_from_other_workers_and_later_holders_of_the_id() -> None:
    snapshot = situation()
    lease = add_running(snapshot, worker=add_worker(snapshot))
    reduce(snapshot, report(snapshot.workers["w1"], done(lease)))
    snapshot.finished.clear()
    log = AttemptLines(lease.id, lease.fence, [line()])

    add_worker(snapshot, "w2")
    _, of_another = sent(snapshot, log, worker_id="w2")
    add_worker(snapshot, "w1", started_at_ms=NOW_MS + 1)
    _, of_a_later_one = sent(snapshot, log)

    assert (of_another, of_a_later_one) == (["stale"], ["stale"])


def test_lines_under_a_newer_lease_are_refused_for_the_attempt_before() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, worker=worker, fence=3)

    _, outcomes = sent(snapshot, AttemptLines(TaskId(1), 2, [line()]))

    assert outcomes == ["stale"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"worker_id": "w9"}, WorkerNotFound),
        ({"incarnation": 99}, StaleIncarnation),
        ({"by": OF_FILM}, Forbidden),
    ],
)
def test_an_unknown_or_replaced_worker_is_refused(
    changes: dict[str, Any], error: type[RotaError]
) -> None:
    snapshot = situation()
    add_running(snapshot, worker=add_worker(snapshot, owner=OF_MAIL.binding))

    with pytest.raises(error):
        sent(snapshot, AttemptLines(TaskId(1), 1, [line()]), **changes)
