import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import Result
from msgspec import Raw

from rota.cli.commands.tasks import submit
from rota.cli.commands.tasks.submit import describe, new_task
from rota.cli.render.output import ExitCode
from rota.core.tasks.model import Backoff, NewTask, TaskError
from rota.errors import Overloaded, Unavailable
from rota.messages import TaskView, WorkerRegistration
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document


@contextmanager
def served(client: Client, queue: str, **outcome: Any) -> Iterator[None]:
    """A worker that takes one task of a queue, and reports its result."""
    hand = Hand(client, queue)
    thread = threading.Thread(target=lambda: hand.report(hand.lease(), **outcome))
    thread.start()
    try:
        yield
    finally:
        thread.join(60)


def test_the_options_make_the_task() -> None:
    fields = {
        "payload": "[1, 2.50]",
        "queue": "mail",
        "requires": ("gpu",),
        "backoff": '{"kind": "none"}',
        "label": ("tenant=x", "run=7"),
        "delay_ms": 5,
    }

    assert new_task("add", fields) == NewTask(
        name="add",
        payload=Raw(b"[1, 2.50]"),
        queue="mail",
        requires=("gpu",),
        backoff=Backoff(kind="none"),
        labels={"tenant": "x", "run": "7"},
        delay_ms=5,
    )


def test_headers_are_pairs_whose_values_may_have_further_signs() -> None:
    task = new_task("add", {"header": ("tenant=x", "query=a=b", "empty=")})

    assert task.headers == {"tenant": "x", "query": "a=b", "empty": ""}
    for wrong in ("tenant", "=x"):
        with pytest.raises(click.UsageError, match="NAME=VALUE"):
            new_task("add", {"header": (wrong,)})


def test_labels_that_are_not_all_pairs_are_words() -> None:
    assert new_task("add", {"label": ("urgent", "a=b")}).labels == ["urgent", "a=b"]


def test_the_id_alone_is_printed(rota: Command, client: Client) -> None:
    ended = rota("submit", "add", "--payload", "1", "--queue", "plain")

    task = client.run(calls.get_task(ended.stdout.strip()))
    assert (task.name, bytes(task.payload), task.queue) == ("add", b"1", "plain")


def test_a_payload_is_read_from_stdin(rota: Command) -> None:
    task = document(rota("submit", "add", "--payload", "-", "--json", stdin='{"a": [1]}\n'))

    assert task["payload"] == {"a": [1]}


def test_the_same_key_gives_the_same_task(rota: Command) -> None:
    first = rota("submit", "add", "--key", "once")
    again = rota("submit", "add", "--key", "once")

    assert again.stdout == first.stdout
    assert "had this key already" in again.stderr


def test_waiting_prints_the_result(rota: Command, client: Client) -> None:
    with served(client, "good", ok=True, result=Raw(b'{"sum": 3}')):
        ended = rota("submit", "add", "--queue", "good", "--wait")

    assert (ended.exit_code, ended.stdout) == (ExitCode.OK, '{"sum": 3}\n')


def test_waiting_for_a_task_that_fails_ends_with_1_and_the_error(
    rota: Command, client: Client
) -> None:
    error = TaskError(type="ValueError", message="no", retryable=False)
    with served(client, "bad", ok=False, error=error):
        ended = rota("submit", "add", "--queue", "bad", "--wait", "--json")

    assert ended.exit_code == ExitCode.FAILED
    assert json.loads(ended.stdout)["error"]["message"] == "no"
    assert ended.stderr.endswith("failed: ValueError: no (task_failed)\n")


def test_waiting_for_a_task_that_is_cancelled_ends_with_3(rota: Command) -> None:
    task_id = rota("submit", "add", "--queue", "off", "--key", "off").stdout.strip()
    rota("tasks", "cancel", task_id)

    ended = rota("submit", "add", "--queue", "off", "--key", "off", "--wait")

    assert ended.exit_code == ExitCode.CANCELLED
    assert ended.stdout == ""


def test_a_wait_that_runs_out_ends_with_4(rota: Command) -> None:
    ended = rota("submit", "add", "--queue", "nobody", "--wait", "--wait-timeout-ms", "50")

    assert ended.exit_code == ExitCode.TIMED_OUT
    assert "is still queued" in ended.stderr


def test_on_a_terminal_state_and_progress_are_shown(
    rota: Command, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "is_terminal", lambda _stream: True)
    with served(client, "watched", ok=True, result=Raw(b"1")):
        ended = rota("submit", "add", "--queue", "watched", "--wait")

    assert (ended.exit_code, ended.stdout) == (ExitCode.OK, "1\n")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "task a1 add: running"),
        ({"progress": 0.5}, "task a1 add: running, 50%"),
        ({"progress": {"rows": 3}}, 'task a1 add: running, {"rows":3}'),
        ({"attempt": 2}, "task a1 add: running, attempt 2 of 3"),
        ({"position": 7}, "task a1 add: running, 7 in line"),
    ],
)
def test_a_task_is_described_on_one_line(fields: dict[str, Any], line: str) -> None:
    plain = {
        "id": "a1",
        "name": "add",
        "state": "running",
        "queue": "default",
        "priority": 0,
        "payload": None,
        "requires": [],
        "attempt": 1,
        "max_attempts": 3,
        "created_at_ms": 0,
    }

    assert describe(msgspec.json.decode(msgspec.json.encode(plain | fields), type=TaskView)) == line


def test_a_wait_outlasts_a_coordinator_that_is_away_for_a_moment(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = client.run(calls.submit([NewTask(name="add", queue="away")]))
    answers: list[Callable[[], TaskView]] = [_away, lambda: client.run(calls.cancel_task(task.id))]
    monkeypatch.setattr(submit, "PAUSE_S", 0.0)

    class Faltering:
        def run(self, _call: object) -> TaskView:
            return answers.pop(0)()

    finished = submit.wait_until_finished(Faltering(), task, timeout_ms=60_000)  # type: ignore[arg-type]  # a client that fails once

    assert finished.state == "cancelled"
    assert answers == []


def _away() -> TaskView:
    raise Unavailable("restarting")


# --- files ---------------------------------------------------------------------------------------


def file_of(folder: Path, *lines: str) -> str:
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(lines))
    return str(file)


def count(rota: Command, queue: str) -> int:
    return len(document(rota("tasks", "ls", "--queue", queue, "--json"))["items"])


def test_a_file_is_one_task_a_line(rota: Command, client: Client, tmp_path: Path) -> None:
    lines = ['{"name": "a", "queue": "file", "payload": 1.50}', "", '{"queue": "file", "key": "f"}']

    ended = rota("submit", "b", "--file", file_of(tmp_path, *lines))

    assert ended.stdout == "submitted 2 tasks\n"
    found = client.run(calls.list_tasks(queue="file")).items
    assert [(task.name, bytes(task.payload)) for task in found] == [("b", b"null"), ("a", b"1.50")]


def test_tasks_known_by_their_key_are_counted(rota: Command, tmp_path: Path) -> None:
    file = file_of(tmp_path, *(f'{{"name": "a", "key": "n{n % 2}"}}' for n in range(3)))

    assert document(rota("submit", "--file", file, "--json")) == {"submitted": 3, "duplicates": 1}


def test_a_bad_line_is_named_with_how_far_the_file_got(
    rota: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "LINES_PER_BATCH", 2)
    good = '{"name": "a", "queue": "partly"}'

    ended = rota("submit", "--file", file_of(tmp_path, good, good, good, '{"nam": 1}'))

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "line 4 is not a task" in ended.stderr
    assert "2 tasks were submitted before" in ended.stderr
    assert count(rota, "partly") == 2


def test_stdin_is_a_file_too(rota: Command) -> None:
    ended = rota("submit", "a", "--file", "-", stdin='{"queue": "piped"}\n' * 3)

    assert ended.stdout == "submitted 3 tasks\n"
    assert count(rota, "piped") == 3


def test_an_overloaded_coordinator_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    pauses: list[float] = []
    monkeypatch.setattr("rota.cli.commands.tasks.submit.time.sleep", pauses.append)

    class Busy:
        def run(self, _call: object) -> list[TaskView]:
            tries.append(1)
            if len(tries) < 3:
                raise Overloaded("busy", retry_after_s=2)
            return []

    submit._submit(Busy(), [])  # type: ignore[arg-type]  # a client that is refused twice

    assert pauses == [2, 2]


@pytest.mark.parametrize("more", [["--wait"], ["--payload", "1"]])
def test_options_of_one_task_do_not_go_with_a_file(
    rota: Command, tmp_path: Path, more: list[str]
) -> None:
    ended: Result = rota("submit", "--file", file_of(tmp_path, "{}"), *more)

    assert ended.exit_code == ExitCode.UNUSABLE


def test_a_unique_task_is_known_and_a_rejected_one_refused(rota: Command) -> None:
    unique = '{"key": "user:7"}'
    first = rota("submit", "add", "--queue", "unique", "--unique", unique)
    again = rota("submit", "add", "--queue", "unique", "--unique", unique)
    strict = '{"key": "user:7", "on_conflict": "reject"}'
    refused = rota("submit", "add", "--queue", "unique", "--unique", strict)

    assert again.stdout == first.stdout
    assert refused.exit_code != 0
    assert first.stdout.strip() in refused.stderr


def test_a_debounced_task_with_a_time_limit_is_submitted(rota: Command) -> None:
    debounce = '{"key": "d", "wait_ms": 60000}'
    options = ("--debounce", debounce, "--start-within-ms", "90000", "--on-expiry", "discard")

    task = document(rota("submit", "add", "--queue", "later", *options, "--json"))

    assert (task["state"], task["on_expiry"]) == ("scheduled", "discard")
    assert task["debounce"] == {"key": "d", "wait_ms": 60000}


def test_a_wait_for_a_task_that_no_worker_knows_says_so(rota: Command, client: Client) -> None:
    registration = WorkerRegistration(queues=["misspelt"], tasks=["add"])
    client.run(calls.register_worker(registration))

    flags = ("--queue", "misspelt", "--wait", "--wait-timeout-ms", "600")
    ended = rota("submit", "ad", *flags)

    reason = "no worker of queue 'misspelt' knows 'ad'; did you mean 'add'?"
    assert ended.exit_code == ExitCode.TIMED_OUT
    assert ended.stderr.splitlines()[0].endswith(f"waits: {reason}")
    assert f"is still queued: {reason} (wait_timed_out)" in ended.stderr


def test_on_a_terminal_the_reason_has_a_line_of_its_own_above_the_state(
    rota: Command, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "is_terminal", lambda _stream: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    registration = WorkerRegistration(queues=["watched-name"], tasks=["add"])
    client.run(calls.register_worker(registration))

    flags = ("--queue", "watched-name", "--wait", "--wait-timeout", "600ms")
    ended = rota("submit", "ad", *flags)

    erased = "\x1b[2K"  # the line with the state, before the reason is written there
    (line,) = [one for one in ended.stderr.splitlines() if " waits: no worker" in one]
    assert re.search(f"{re.escape(erased)}task \\w+ waits: ", line)


def test_a_wait_for_a_task_that_fails_prints_its_traceback(rota: Command, client: Client) -> None:
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 7\nBoom: no'
    error = TaskError(type="Boom", message="no", details={"traceback": trace})

    with served(client, "traces", ok=False, error=error):
        ended = rota("submit", "add", "--queue", "traces", "--max-attempts", "1", "--wait")

    assert ended.exit_code == ExitCode.FAILED
    assert '  File "shop.py", line 7' in ended.stderr


def test_times_are_given_with_their_unit(rota: Command) -> None:
    flags = ("--delay", "1h30m", "--attempt-timeout", "30s", "--start-within", "2d")
    task = document(rota("submit", "add", "--queue", "timed", *flags, "--json"))

    assert (task["delay_ms"], task["timeout_ms"]) == (5_400_000, 30_000)
    assert task["start_within_ms"] == 172_800_000


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--delay", "5"), "is not a duration; write it as 30s"),
        (("--delay", "5m", "--delay-ms", "5"), "give --delay or --delay-ms, not both"),
        (("--wait-timeout", "soon"), "is not a duration; write it as 30s"),
    ],
)
def test_a_time_that_is_unclear_is_refused(
    rota: Command, flags: tuple[str, ...], text: str
) -> None:
    ended = rota("submit", "add", *flags)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert text in ended.stderr


def test_the_limit_of_an_attempt_is_not_mistaken_for_that_of_the_wait(
    rota: Command, client: Client
) -> None:
    with served(client, "limits", ok=True, result=Raw(b"1")):
        ended = rota("submit", "add", "--queue", "limits", "--wait", "--timeout-ms", "60000")

    assert ended.stdout == "1\n"
    assert "--timeout-ms limits each attempt; --wait-timeout limits the wait" in ended.stderr
