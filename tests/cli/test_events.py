import json
from pathlib import Path

import pytest

from rota.core.tasks.model import NewTask, TaskError
from rota.sdk.client import calls
from rota.sdk.client.calls import list_events
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document
from tests.cli.processes import running


@pytest.fixture
def start(client: Client) -> int:
    """The number of the last event of earlier tests."""
    return client.run(list_events(last=1)).last_seq


def submit(client: Client, *names: str, **options: object) -> list[str]:
    tasks = [NewTask(name=name, **options) for name in names]  # type: ignore[arg-type]  # as given
    return [task.id for task in client.run(calls.submit(tasks))]


def test_the_newest_events_are_listed(rota: Command, client: Client) -> None:
    ids = submit(client, "resize", "resize", queue="images")

    listed = rota("events", "--limit", "2")

    assert listed.exit_code == 0
    heading, first, second = listed.stdout.splitlines()
    assert heading.split() == ["EVENT", "TIME", "TYPE", "SUBJECT", "DETAILS"]
    assert f"task-submitted  {ids[0]}  queue images, name resize" in first
    assert ids[1] in second


def test_events_after_one_are_listed_and_it_is_said_that_there_are_more(
    rota: Command, client: Client, start: int
) -> None:
    submit(client, "a", "b", "c")

    listed = rota("events", "--after", str(start), "--limit", "2")

    assert "name a" in listed.stdout
    assert "name c" not in listed.stdout
    assert f"--after {start + 2}" in listed.stderr


def test_a_list_is_one_document_for_programs(rota: Command, client: Client, start: int) -> None:
    submit(client, "a")

    page = document(rota("events", "--after", str(start), "--json"))

    assert [one["type"] for one in page["items"]] == ["task-submitted"]
    assert page["next_after"] == start + 1


def test_events_are_narrowed(rota: Command, client: Client, start: int) -> None:
    ids = submit(client, "a", "b", queue="narrow")
    hand = Hand(client, "narrow")
    after = ("--after", str(start), "--json")

    by_type = document(rota("events", *after, "--type", "worker-*", "--type", "run-*"))
    by_subject = document(rota("events", *after, "--subject", ids[1]))
    by_prefix = document(rota("events", *after, "--prefix", hand.worker.id[:12]))

    assert [one["type"] for one in by_type["items"]] == ["worker-registered"]
    assert [one["subject"] for one in by_subject["items"]] == [ids[1]]
    assert [one["subject"] for one in by_prefix["items"]] == [hand.worker.id]


def test_an_error_is_told_in_words(rota: Command, client: Client) -> None:
    submit(client, "charge", queue="errors", max_attempts=1)
    hand = Hand(client, "errors")
    hand.report(hand.lease(), ok=False, error=TaskError(type="Declined", message="no\x1bmoney"))

    listed = rota("events", "--type", "task-failed", "--limit", "1")

    assert "error Declined: no\\x1bmoney" in listed.stdout


def test_a_type_that_there_is_not_is_refused(rota: Command) -> None:
    refused = rota("events", "--type", "task-exploded")

    assert refused.exit_code == 2
    assert "there are no events of type 'task-exploded' (invalid)" in refused.stderr


def test_no_events_are_said_to_be_none(rota: Command) -> None:
    listed = rota("events", "--subject", "nobody")

    assert listed.stdout == "no events\n"


@pytest.mark.slow
def test_events_are_followed(url: str, client: Client, tmp_path: Path) -> None:
    submit(client, "before")
    with running("events", "--follow", "--limit", "1", folder=tmp_path, ROTA_URL=url) as following:
        following.wait_for("name before")
        submit(client, "meanwhile")
        line = following.wait_for("name meanwhile")

    assert "task-submitted" in line


@pytest.mark.slow
def test_events_are_followed_from_one_as_lines_of_json(
    url: str, client: Client, start: int, tmp_path: Path
) -> None:
    submit(client, "first")
    arguments = ("events", "--follow", "--after", str(start), "--json")
    with running(*arguments, folder=tmp_path, ROTA_URL=url) as following:
        first = json.loads(following.wait_for('"first"'))
        submit(client, "second")
        second = json.loads(following.wait_for('"second"'))

    assert [first["seq"], second["seq"]] == [start + 1, start + 2]
