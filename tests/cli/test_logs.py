import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rota.cli.render.output import ExitCode
from rota.core.tasks.model import Backoff, NewTask
from rota.messages import AttemptLogItem, LeaseView, LogLineItem
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document
from tests.cli.processes import running

AT_MS = 1_800_000_000_123


def submitted(client: Client, queue: str, **fields: Any) -> str:
    (task,) = client.run(calls.submit([NewTask(name="add", queue=queue, **fields)]))
    return task.id


def line(message: str, **changes: Any) -> LogLineItem:
    return LogLineItem(**{"at_ms": AT_MS, "logger": "shop", "message": message, **changes})


def send(
    client: Client, hand: Hand, lease: LeaseView, *lines: LogLineItem, dropped: int = 0
) -> None:
    item = AttemptLogItem(task_id=lease.task_id, fence=lease.fence, lines=[*lines], dropped=dropped)
    answer = client.run(calls.report_logs(hand.worker.id, items=[item]))
    assert [one.outcome for one in answer.outcomes] == ["accepted"]


def test_lines_are_printed_with_their_level_and_fields(rota: Command, client: Client) -> None:
    task_id = submitted(client, "printed")
    hand = Hand(client, "printed")
    send(
        client,
        hand,
        hand.lease(),
        line("resized a.png", fields=Raw(b'{"bytes": 3, "by": "me"}')),
        line("two\nlines", level="error"),
    )

    ended = rota("tasks", "logs", task_id)

    first, second, third = ended.stdout.splitlines()
    assert first[23:] == "  info      resized a.png  bytes=3 by=me"
    assert first[:2] == "20"
    assert second.endswith("  error     two")
    assert third == "    lines"
    assert ended.exit_code == ExitCode.OK


def test_a_line_cannot_write_to_the_terminal_or_look_like_another(
    rota: Command, client: Client
) -> None:
    task_id = submitted(client, "neutral")
    hand = Hand(client, "neutral")
    evil = "\x1b]0;owned\x07\rgone\n2027-01-15 09:00:00.123  info      forged"
    send(client, hand, hand.lease(), line(evil, fields=Raw(b'{"a": "\\u001b[2J\\nx"}')))

    text = rota("tasks", "logs", task_id).stdout

    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b]0;owned\\x07\\rgone" in text
    assert text.splitlines()[1].startswith("    2027-01-15")
    assert "a=\\x1b[2J x" in text


def test_attempts_and_levels_are_chosen_and_dropped_lines_are_told(
    rota: Command, client: Client
) -> None:
    task_id = submitted(client, "chosen", max_attempts=2, backoff=Backoff(kind="none"))
    hand = Hand(client, "chosen")
    first = hand.lease()
    send(client, hand, first, line("one"), line("bad", level="warning"), dropped=7)
    hand.report(first, ok=False, error="no")
    send(client, hand, hand.lease(), line("two"))

    whole = rota("tasks", "logs", task_id)
    second = rota("tasks", "logs", task_id, "--attempt", "2")
    urgent = rota("tasks", "logs", task_id, "--level", "warning")
    page = document(rota("tasks", "logs", task_id, "--json"))

    said = [one[35:] if one[:2] == "20" else one for one in whole.stdout.splitlines()]
    assert said == ["--- attempt 1", "one", "bad", "--- attempt 2", "two"]
    assert whole.stderr == "7 lines of attempt 1 were dropped\n"
    assert [one[35:] for one in second.stdout.splitlines() if one[:2] == "20"] == ["two"]
    assert second.stderr == ""
    assert [one[35:] for one in urgent.stdout.splitlines() if one[:2] == "20"] == ["bad"]
    assert [one["message"] for one in page["items"]] == ["one", "bad", "two"]
    assert page["attempts"][0]["dropped"] == 7


def test_a_task_without_lines_and_an_unknown_one_are_told_apart(
    rota: Command, client: Client
) -> None:
    task_id = submitted(client, "silent")

    silent, unknown = rota("tasks", "logs", task_id), rota("tasks", "logs", "nothing")

    assert (silent.exit_code, silent.stdout, silent.stderr) == (0, "", "no log lines\n")
    assert (unknown.exit_code, unknown.stderr[-18:]) == (ExitCode.FAILED, " (task_not_found)\n")


@pytest.mark.slow
def test_following_ends_with_the_task(url: str, client: Client, tmp_path: Path) -> None:
    task_id = submitted(client, "followed")
    hand = Hand(client, "followed")
    lease = hand.lease()
    send(client, hand, lease, line("first"))
    with running("tasks", "logs", task_id, "-f", folder=tmp_path, ROTA_URL=url) as following:
        following.wait_for("first")
        send(client, hand, lease, line("second"))
        following.wait_for("second")
        hand.report(lease, ok=True)
        assert following.ends() == ExitCode.OK


@pytest.mark.slow
def test_following_as_json_has_a_document_on_each_line(
    url: str, client: Client, tmp_path: Path
) -> None:
    task_id = submitted(client, "followed as json")
    hand = Hand(client, "followed as json")
    lease = hand.lease()
    arguments = ("tasks", "logs", task_id, "--follow", "--json")
    with running(*arguments, folder=tmp_path, ROTA_URL=url) as following:
        send(client, hand, lease, line("first"))
        first = json.loads(following.wait_for('"first"'))
        hand.report(lease, ok=True)
        assert following.ends() == ExitCode.OK

    assert (first["number"], first["message"]) == (1, "first")
