import click
import pytest
from msgspec import Raw

from rota.cli.render import output
from rota.cli.render.output import ExitCode
from rota.core.tasks.model import Backoff, NewTask, TaskError
from rota.messages import WorkerRegistration
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document


def submitted(client: Client, queue: str, count: int = 1, **fields: object) -> list[str]:
    new = [NewTask(name="add", queue=queue, **fields) for _ in range(count)]  # type: ignore[arg-type]  # whichever fields a test needs
    return [task.id for task in client.run(calls.submit(new))]


def test_tasks_are_listed_newest_first_by_filter(rota: Command, client: Client) -> None:
    first, second = submitted(client, "listed", 2)
    submitted(client, "other")

    ended = rota("tasks", "ls", "--queue", "listed", "--state", "queued", "--name", "add")

    lines = ended.stdout.splitlines()
    assert lines[0].split()[:4] == ["TASK", "NAME", "STATE", "QUEUE"]
    assert [line.split()[0] for line in lines[1:]] == [second, first]


def test_a_long_list_is_read_page_by_page(rota: Command, client: Client) -> None:
    expected = submitted(client, "paged", 3)[::-1]
    found: list[str] = []
    cursor: list[str] = []

    while True:
        page = document(rota("tasks", "ls", "--queue", "paged", "--limit", "2", "--json", *cursor))
        found += [task["id"] for task in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]

    assert found == expected
    assert "--cursor" in rota("tasks", "ls", "--queue", "paged", "--limit", "2").stderr


def test_one_task_is_shown_with_everything_known(rota: Command, client: Client) -> None:
    (task_id,) = submitted(
        client, "shown", payload=Raw(b'{"a":1}'), labels={"tenant": "x"}, key="k1", max_attempts=1
    )
    hand = Hand(client, "shown")
    hand.report(hand.lease(), ok=False, error=TaskError(type="Boom", message="it \x1b[31mbroke"))

    text = rota("tasks", "show", task_id).stdout

    lines = text.split("\n\n")[0].splitlines()
    facts = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in lines}
    assert facts["state"] == "failed"
    assert facts["payload"] == '{"a":1}'
    assert facts["labels"] == '{"tenant":"x"}'
    assert facts["error"] == "Boom: it \\x1b[31mbroke"
    assert facts["finished"].startswith("20")
    assert "result" not in facts
    assert document(rota("tasks", "show", task_id, "--json"))["error"]["type"] == "Boom"


def test_an_unknown_task_is_exit_code_1(rota: Command) -> None:
    ended = rota("tasks", "show", "nothing")

    assert ended.exit_code == ExitCode.FAILED
    assert ended.stderr == (
        "error: task 'nothing' not found; check its id, and for how long finished tasks are "
        "kept (task_not_found)\n"
    )


def test_tasks_are_cancelled_and_retried_by_id(rota: Command, client: Client) -> None:
    ids = submitted(client, "by id", 2)

    cancelled = document(rota("tasks", "cancel", *ids, "--json"))
    retried = document(rota("tasks", "retry", ids[0], "--json"))

    assert [task["state"] for task in cancelled["items"]] == ["cancelled", "cancelled"]
    assert [task["state"] for task in retried["items"]] == ["queued"]


def test_one_unknown_id_does_not_keep_the_others_back(rota: Command, client: Client) -> None:
    (task_id,) = submitted(client, "mixed")

    ended = rota("tasks", "cancel", "nothing", task_id)

    assert ended.exit_code == ExitCode.FAILED
    assert task_id in ended.stdout
    assert "'nothing' not found" in ended.stderr


def test_a_dry_run_counts_and_changes_nothing(rota: Command, client: Client) -> None:
    (task_id, *_) = submitted(client, "dry", 3)
    submitted(client, "dry-one", 1)

    ended = rota("tasks", "cancel", "--queue", "dry", "--dry-run")
    one = rota("tasks", "cancel", "--queue", "dry-one", "--dry-run")

    assert ended.stdout == "would cancel 3 tasks\n"
    assert one.stdout == "would cancel 1 task\n"
    assert client.run(calls.get_task(task_id)).state == "queued"


def test_a_bulk_change_needs_somebody_to_confirm_it(
    rota: Command, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(client, "bulk", 2)
    bulk = ("tasks", "cancel", "--queue", "bulk")

    nobody = rota(*bulk)
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    declined = rota(*bulk, stdin="n\n")
    confirmed = rota(*bulk, stdin="y\n")

    assert nobody.exit_code == ExitCode.UNUSABLE
    assert "--yes" in nobody.stderr
    assert declined.exit_code == ExitCode.FAILED
    assert declined.stdout == ""
    assert "cancel 2 tasks (queue bulk)?" in declined.stderr
    assert confirmed.stdout == "cancel: 2 tasks changed\n"


def test_yes_changes_without_a_question(rota: Command, client: Client) -> None:
    submitted(client, "sure", 2)

    assert document(rota("tasks", "cancel", "--queue", "sure", "--yes", "--json"))["count"] == 2
    retry = rota("tasks", "retry", "--queue", "sure", "--state", "cancelled", "--yes", "--json")
    assert document(retry)["count"] == 2


def test_ids_and_filter_together_are_refused(rota: Command) -> None:
    ended = rota("tasks", "retry", "a1", "--queue", "x")

    assert ended.exit_code == click.UsageError.exit_code
    assert "either ids or a filter" in ended.stderr


def test_a_task_is_shown_with_the_traceback_of_each_attempt(rota: Command, client: Client) -> None:
    backoff = Backoff(kind="none")
    (task_id,) = submitted(client, "traced", max_attempts=2, backoff=backoff)
    hand = Hand(client, "traced")
    for number in (1, 2):
        trace = f'Traceback (most recent call last):\n  File "shop.py", line {number}\nBoom: no'
        error = TaskError(type="Boom", message="no", details={"traceback": trace})
        hand.report(hand.lease(), ok=False, error=error)

    text = rota("tasks", "show", task_id).stdout
    shown = document(rota("tasks", "show", task_id, "--json"))

    assert text.index("attempt 1 failed") < text.index('  File "shop.py", line 1')
    assert text.index('  File "shop.py", line 1') < text.index("attempt 2 failed")
    assert text.count('File "shop.py", line 2') == 1
    assert [one["attempt"] for one in shown["attempts"]] == [1]


def test_a_waiting_task_is_shown_with_the_reason(rota: Command, client: Client) -> None:
    registration = WorkerRegistration(queues=["unknown-names"], tasks=["add"])
    client.run(calls.register_worker(registration))
    new = NewTask(name="ad", queue="unknown-names")
    (task,) = client.run(calls.submit([new]))

    text = rota("tasks", "show", task.id).stdout

    assert "no worker of queue 'unknown-names' knows 'ad'; did you mean 'add'?" in text


def test_an_acknowledgement_of_failed_tasks_is_taken_back(rota: Command, client: Client) -> None:
    ids = submitted(client, "seen", 3, max_attempts=1)
    hand = Hand(client, "seen")
    for _ in ids:
        hand.report(hand.lease(), ok=False, error=TaskError(type="E", message="no"))

    dry = document(rota("tasks", "acknowledge", "--queue", "seen", "--dry-run", "--json"))
    one = document(rota("tasks", "acknowledge", ids[0], "--reason", "known", "--json"))
    rest = rota("tasks", "acknowledge", "--queue", "seen", "--yes")
    shown = rota("tasks", "show", ids[0]).stdout
    left = document(rota("tasks", "ls", "--queue", "seen", "--unacknowledged", "--json"))
    undone = document(rota("tasks", "acknowledge", "--queue", "seen", "--undo", "--yes", "--json"))

    assert dry == {"count": 3, "dry_run": True}
    assert one["items"][0]["acknowledged"]["reason"] == "known"
    assert rest.stdout == "acknowledge: 2 tasks changed\n"
    assert "known" in next(line for line in shown.splitlines() if "acknowledged" in line)
    assert left["items"] == []
    assert undone["count"] == 3
