import pytest

from rota.core.decisions import ForgetLogs, KeepLines, ReviveTask
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine, LogUsage
from rota.store.tasks.logs import LogStore, NumberedLine
from tests.store.opened import NOW_MS, Opened

AWKWARD = ["a\0b", "", "ü€😀", "\x1b[31mred", "'; --", "two\nlines"]


@pytest.fixture
def logs(store: Opened) -> LogStore:
    return LogStore(store.tx)


def line(message: str = "m", fields: bytes | None = None) -> LogLine:
    return LogLine(NOW_MS, "info", "shop", message, fields)


def kept(*messages: str, task: int = 1, fence: int = 1, last: int = 0) -> KeepLines:
    """The lines of one report, after `last` lines of the task."""
    count = len(messages)
    usage = LogUsage(attempt=fence, last=last + count, lines=count, size=9, sent=count, cut=2)
    return KeepLines(TaskId(task), fence, [line(one) for one in messages], usage)


def messages(found: list[NumberedLine]) -> list[tuple[int, int, str]]:
    return [(one.number, one.fence, one.line.message) for one in found]


def test_lines_are_found_as_they_were_kept(logs: LogStore) -> None:
    one = kept(*AWKWARD, "with fields")
    one.lines[-1] = line("with fields", b'{"n": 1}')

    logs.keep([one])

    found = logs.after(TaskId(1), 0, fences=[1], limit=100)
    assert [each.line for each in found] == one.lines
    usage = logs.usages([TaskId(1)])[TaskId(1)].attempts[1]
    assert usage == one.usage


def test_a_task_without_a_log_has_none(logs: LogStore) -> None:
    logs.keep([kept("a", task=2)])

    assert logs.usages([TaskId(1)]) == {}
    assert logs.after(TaskId(1), 0, fences=[1], limit=10) == []


def test_several_reports_of_one_attempt_in_a_batch_are_all_kept(logs: LogStore) -> None:
    logs.keep([kept("a", "b"), kept("c", last=2), kept(last=3)])

    assert messages(logs.after(TaskId(1), 0, fences=[1], limit=10)) == [
        (1, 1, "a"),
        (2, 1, "b"),
        (3, 1, "c"),
    ]
    assert logs.usages([TaskId(1)])[TaskId(1)].last == 3


def test_a_page_begins_in_the_middle_of_a_report_and_has_the_wanted_attempts(
    logs: LogStore,
) -> None:
    logs.keep([kept("a", "b", "c")])
    logs.keep([kept("d", "e", fence=2, last=3), kept("f", task=9, last=7)])

    both = logs.after(TaskId(1), 1, fences=[1, 2], limit=10)
    first = logs.after(TaskId(1), 1, fences=[1], limit=10)
    few = logs.after(TaskId(1), 1, fences=[1, 2], limit=1)
    none = logs.after(TaskId(1), 5, fences=[1, 2], limit=10)

    assert [one.number for one in both] == [2, 3, 4, 5]
    assert messages(first) == [(2, 1, "b"), (3, 1, "c")]
    assert messages(few) == messages(first)  # a report is read as a whole
    assert none == []


def test_only_the_older_attempts_of_a_task_are_forgotten(logs: LogStore) -> None:
    logs.keep([kept("a"), kept("b", fence=2, last=1), kept("c", fence=3, last=2)])
    logs.keep([kept("d", task=2)])

    logs.forget([ForgetLogs(TaskId(1), 3)])

    assert messages(logs.after(TaskId(1), 0, fences=[1, 2, 3], limit=10)) == [(3, 3, "c")]
    found = logs.usages([TaskId(1), TaskId(2)])
    assert [[*one.attempts] for one in found.values()] == [[3], [1]]


def test_logs_are_pruned_with_the_history_of_their_task(store: Opened, logs: LogStore) -> None:
    store.history(1)
    store.history(2, finished_at_ms=NOW_MS + 5)
    logs.keep([kept("a"), kept("b", task=2)])

    assert store.tasks.prune(NOW_MS + 1, 10) == [1]

    assert [*logs.usages([TaskId(1), TaskId(2)])] == [2]
    assert store.rows("SELECT task FROM log_lines") == [(2,)]


def test_a_task_that_is_queued_again_keeps_its_logs(store: Opened, logs: LogStore) -> None:
    store.history(1)
    logs.keep([kept("a")])

    store.tasks.revive([ReviveTask(TaskId(1))], now_ms=NOW_MS)

    assert len(logs.after(TaskId(1), 0, fences=[1], limit=10)) == 1
