"""The rows of the inbox: read, accepted, or turned into failed tasks."""

import msgspec
import pytest
from msgspec import Raw

from rota.core import limits
from rota.core.decisions import AddTask, FinishTask
from rota.core.tasks.inbox import UNACCEPTED, InboxItem, read_item
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import Lane, NewTask, TaskState, lane_of
from rota.core.tasks.submission import inbox_rows
from tests.core.snapshots import add_task, situation

MOST_BYTES = 1_000


def content(name: str = "work", **options: object) -> bytes:
    return msgspec.json.encode({"name": name, **options})


def item(key: str, name: str = "work", **options: object) -> InboxItem:
    return read_item(key, content(name, **options), most_bytes=MOST_BYTES)


def test_a_row_is_read_as_the_task_that_was_written() -> None:
    new = NewTask(name="work", payload=Raw(b'{"a":1}'), queue="q", priority=3, key="k")

    read = read_item("k", msgspec.json.encode(new), most_bytes=MOST_BYTES)

    assert read == InboxItem(new)


def test_a_task_that_says_no_key_has_that_of_its_row() -> None:
    assert item("k").task.key == "k"
    assert read_item("k", content(key="own"), most_bytes=MOST_BYTES).task.key == "own"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (b"no json", "malformed"),
        (b"\xff", "malformed"),
        (b"[1]", "invalid"),
        (b"{}", "invalid"),
        (content(priority="high"), "invalid"),
        (content(delay_ms=1, run_at_ms=1), "invalid"),
        (content(headers={f"h{number}": "v" * 512 for number in range(5)}), "invalid"),
        (content(payload="x" * MOST_BYTES), "too_large"),
        (content(payload=msgspec.Raw(b"[" * 100 + b"]" * 100)), "invalid"),
    ],
)
def test_a_row_that_cannot_be_accepted_is_a_task_with_its_error(row: bytes, code: str) -> None:
    read = read_item("k", row, most_bytes=MOST_BYTES)

    assert read.error is not None
    assert (read.error.type, read.error.retryable) == (code, False)
    assert read.task.key == "k"


def test_a_bad_row_keeps_as_much_of_its_name_as_can_be_read() -> None:
    bad = item("k", "orders", queue="q", priority="high", payload=1)
    unnamed = read_item("k", b'{"name": 3}', most_bytes=MOST_BYTES)

    assert (bad.task.name, bad.task.queue, bytes(bad.task.payload)) == ("orders", "q", b"1")
    assert (unnamed.task.name, unnamed.task.queue) == (UNACCEPTED.name, UNACCEPTED.queue)


def test_an_overlong_key_is_refused_and_cut() -> None:
    long = item("k" * (limits.MAX_KEY_LENGTH + 1))

    assert long.error is not None
    assert long.task.key == "k" * limits.MAX_KEY_LENGTH


def test_good_rows_become_tasks_in_their_order_and_bad_ones_fail_at_once() -> None:
    snapshot = situation()
    snapshot.inbox = [item("a"), read_item("bad", b"{}", most_bytes=MOST_BYTES), item("b")]

    decisions, taken = inbox_rows.take_inbox(snapshot, snapshot.context)

    added = [one for one in decisions if isinstance(one, AddTask)]
    ended = [one for one in decisions if isinstance(one, FinishTask)]
    assert [one.task.key for one in added] == ["a", "bad", "b"]
    assert [(one.id, one.state) for one in ended] == [(added[1].id, TaskState.FAILED)]
    assert (taken.count, taken.duplicates) == (3, 0)
    assert [key for key, _ in taken.refused] == ["bad"]
    assert snapshot.inbox == []


def test_a_key_that_is_known_or_comes_twice_makes_one_task() -> None:
    snapshot = situation()
    snapshot.keys["default", "known"] = add_task(snapshot)
    snapshot.inbox = [item("known"), item("a"), item("a")]

    decisions, taken = inbox_rows.take_inbox(snapshot, snapshot.context)

    assert len(decisions) == 1
    assert (taken.count, taken.duplicates, taken.refused) == (3, 2, ())


def taken(room: LaneRoom, *items: InboxItem) -> tuple[list[Lane], list[TaskState]]:
    """The lanes of the tasks that become of these items, and how those end that fail."""
    snapshot = situation()
    snapshot.inbox, snapshot.lane_room = [*items], room
    decisions, _ = inbox_rows.take_inbox(snapshot, snapshot.context)
    lanes = [lane_of(one.task) for one in decisions if isinstance(one, AddTask)]
    return lanes, [one.state for one in decisions if isinstance(one, FinishTask)]


def test_a_delayed_row_that_finds_no_lane_ends_from_where_it_was_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 1)
    snapshot = situation()
    snapshot.lane_room = LaneRoom(lambda lane: lane.name == "known", 1, {"q": 1})
    snapshot.inbox = [item("k", queue="q", delay_ms=1_000)]

    decisions, _ = inbox_rows.take_inbox(snapshot, snapshot.context)

    (ended,) = [one for one in decisions if isinstance(one, FinishTask)]
    assert (ended.was, ended.state) == (TaskState.SCHEDULED, TaskState.FAILED)


def test_what_finds_no_lane_fails_in_one_of_its_own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 2)
    room = LaneRoom(lambda lane: lane.name == "known", 1, {"q": 1})
    items = [item(name, name, queue="q") for name in ("known", "new", "newer")]

    lanes, ends = taken(room, *items, item("other", queue="r"))

    assert lanes == [
        Lane("q", "known"),
        Lane("q", "new"),
        Lane("q", UNACCEPTED.name),
        Lane("r", "work"),
    ]
    assert ends == [TaskState.FAILED]


def test_where_all_lanes_are_taken_it_fails_in_the_one_that_is_left_free_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES", 3)
    room = LaneRoom(lambda lane: lane.name == "known", 1, {"q": 1})
    items = [item(name, name, queue="q") for name in ("known", "new", "newer")]

    lanes, ends = taken(room, *items)

    assert lanes == [Lane("q", "known"), Lane("q", "new"), UNACCEPTED]
    assert ends == [TaskState.FAILED]


def test_a_row_whose_key_is_too_large_for_its_queue_fails_without_a_key() -> None:
    rocket = "\N{ROCKET}"
    queue, key = rocket * limits.MAX_NAME_LENGTH, rocket * limits.MAX_KEY_LENGTH

    read = item(key, queue=queue)

    assert read.error is not None
    assert (read.error.type, read.task.key, read.task.queue) == ("invalid", None, queue)
