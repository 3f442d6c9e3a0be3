"""What is set for pushed queues, and what an answer means for a task that was pushed."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota.core import limits
from rota.core.ids import TaskId
from rota.core.outbound.push import (
    ClosePush,
    DropPush,
    PushBusy,
    PushRefused,
    PushShown,
    PushSpec,
    PushSucceeded,
    PushTable,
    PutPush,
    body_of_task,
    reduce,
    verdict_of,
)
from rota.core.tasks.model import Lane, TaskOptions, TaskRecord, TaskState
from rota.errors import PushNotFound, TooMany

NOW_MS = 1_000


def verdict(status: int, body: bytes = b"", **changes: Any) -> Any:
    problem = None if status < 300 else f"answered {status}"
    fields = {"is_cut": False, "problem": problem, "retry_after_ms": None, **changes}
    return verdict_of(status, body, **fields)


def put(table: PushTable, queue: str = "fn", **changes: Any) -> PushShown:
    command = PutPush(queue=queue, spec=PushSpec(url="https://x/"), new_secret="made", **changes)
    shown = reduce(table, command, NOW_MS)
    assert isinstance(shown, PushShown)
    return shown


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"", b"null"),
        (b' {"a": 1} ', b'{"a": 1}'),
        (b"done", b'"done"'),
        (b"\xff", '"\ufffd"'.encode()),
        (b"{broken", b'"{broken"'),
    ],
)
def test_a_success_has_a_result_in_any_case(body: bytes, result: bytes) -> None:
    got = verdict(200, body)

    assert isinstance(got, PushSucceeded)
    assert msgspec.json.decode(got.result) == msgspec.json.decode(result)


def test_a_result_that_cannot_be_kept_fails_the_task_for_good() -> None:
    for got in (verdict(200, b"x", is_cut=True), verdict(200, b"[" * 200 + b"]" * 200)):
        assert isinstance(got, PushRefused)
        assert not got.error.retryable


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (410, False), (413, False), (422, False), (401, True), (404, True), (500, True)],
)
def test_a_status_says_whether_another_attempt_is_worth_it(status: int, retryable: bool) -> None:  # noqa: FBT001
    got = verdict(status)

    assert isinstance(got, PushRefused)
    assert (got.error.type, got.error.retryable) == (f"http_{status}", retryable)


def test_a_busy_server_is_left_alone_within_bounds() -> None:
    assert verdict(429, retry_after_ms=5_000) == PushBusy(5_000)
    assert verdict(503, retry_after_ms=0) == PushBusy(limits.MIN_PUSH_PAUSE_MS)
    assert verdict(503, retry_after_ms=10**15) == PushBusy(limits.MAX_PUSH_PAUSE_MS)
    assert isinstance(verdict(503), PushRefused)
    assert isinstance(verdict(500, retry_after_ms=5_000), PushRefused)


def test_a_body_has_the_task_and_its_payload_as_it_was() -> None:
    task = TaskRecord(
        id=TaskId(7),
        lane=Lane(queue="fn", name="add"),
        state=TaskState.RUNNING,
        payload=b'{"a":  1.0}',
        created_at_ms=5,
        attempt=2,
        deadline_ms=9,
    )
    body = body_of_task(task)

    assert b'"payload":{"a":  1.0}' in body
    decoded = msgspec.json.decode(body, type=dict[str, Raw])
    assert bytes(decoded["attempt"]) == b"2"
    assert bytes(decoded["deadline_ms"]) == b"9"
    assert "headers" not in decoded


def test_a_body_has_the_headers_of_its_task() -> None:
    task = TaskRecord(
        id=TaskId(7),
        lane=Lane(queue="fn", name="add"),
        state=TaskState.RUNNING,
        options=TaskOptions(headers={"traceparent": "00-1"}),
        created_at_ms=5,
    )

    body = msgspec.json.decode(body_of_task(task))

    assert body["headers"] == {"traceparent": "00-1"}


def test_a_changed_push_keeps_its_secret_and_is_open() -> None:
    table = PushTable(records={})
    assert put(table).has_new_secret
    reduce(table, ClosePush(queue="fn", until_ms=NOW_MS + 5), NOW_MS)
    again = put(table)
    given = put(table, secret="given")

    assert not again.has_new_secret
    assert again.record.closed_until_ms == 0
    assert (given.record.secret, given.has_new_secret) == ("given", True)


def test_closing_is_told_of_once_and_never_shortened() -> None:
    table = PushTable(records={})
    put(table)
    table.events.clear()
    for until_ms in (NOW_MS + 50, NOW_MS + 20, NOW_MS + 60):
        reduce(table, ClosePush(queue="fn", until_ms=until_ms), NOW_MS)
    reduce(table, ClosePush(queue="other", until_ms=NOW_MS + 50), NOW_MS)

    assert [(one.type, one.data) for one in table.events] == [
        ("queue-push-closed", {"until_ms": NOW_MS + 50})
    ]
    assert table.records["fn"].closed_until_ms == NOW_MS + 60


def test_a_queue_that_is_not_pushed_cannot_be_dropped_and_there_are_only_so_many() -> None:
    table = PushTable(records={})
    with pytest.raises(PushNotFound):
        reduce(table, DropPush(queue="fn"), NOW_MS)
    for number in range(limits.MAX_PUSHED_QUEUES):
        put(table, f"q{number}")

    with pytest.raises(TooMany):
        put(table, "one more")
    reduce(table, DropPush(queue="q0"), NOW_MS)
    put(table, "one more")
