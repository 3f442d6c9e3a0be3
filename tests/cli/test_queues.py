from rota.cli.render.output import ExitCode
from rota.core.tasks.model import NewTask
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, document


def test_queues_are_listed_with_what_waits(rota: Command, client: Client) -> None:
    client.run(calls.submit([NewTask(name="add", queue="mail"), NewTask(name="add", queue="mail")]))

    lines = rota("queues", "ls").stdout.splitlines()

    assert lines[0].split()[:3] == ["QUEUE", "STATE", "QUEUED"]
    assert ["mail", "open", "2"] in [line.split()[:3] for line in lines]


def test_a_queue_is_paused_and_resumed(rota: Command, client: Client) -> None:
    client.run(calls.submit([NewTask(name="add", queue="held")]))

    assert rota("queues", "pause", "held").stdout == "queue held is paused\n"
    assert document(rota("queues", "pause", "held", "--json"))["paused"] is True
    assert rota("queues", "resume", "held").stdout == "queue held is open\n"
    listed = document(rota("queues", "ls", "--json"))["items"]
    assert [queue["paused"] for queue in listed if queue["name"] == "held"] == [False]


def test_an_empty_name_is_refused(rota: Command) -> None:
    assert rota("queues", "pause", "").exit_code in {ExitCode.FAILED, ExitCode.UNUSABLE}


def test_one_queue_is_shown_or_not_found(rota: Command, client: Client) -> None:
    client.run(calls.submit([NewTask(name="add", queue="shown")]))

    assert document(rota("queues", "show", "shown", "--json"))["name"] == "shown"
    assert "not found" in rota("queues", "show", "nowhere").stderr
