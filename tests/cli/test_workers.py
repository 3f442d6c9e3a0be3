import pytest

from rota.cli.render.output import ExitCode
from rota.messages import WorkerRegistration
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import HOUR_MS, Command, document


@pytest.fixture
def worker_id(client: Client) -> str:
    registration = WorkerRegistration(
        worker_id="w1",
        node_id="here",
        capabilities=["gpu", "large"],
        max_concurrent_tasks=4,
        heartbeat_interval_ms=HOUR_MS,
    )
    return client.run(calls.register_worker(registration)).id


def test_workers_are_listed_by_capability_and_health(rota: Command, worker_id: str) -> None:
    found = rota("workers", "ls", "--capability", "gpu", "--capability", "large").stdout
    lacking = rota("workers", "ls", "--capability", "gpu", "--capability", "tpu").stdout
    healthy = document(rota("workers", "ls", "--health", "healthy", "--json"))

    assert found.splitlines()[1].split()[:4] == [worker_id, "healthy", "active", "0/4"]
    assert lacking.startswith("no workers")
    assert [worker["id"] for worker in healthy["items"]] == [worker_id]


def test_the_ranking_shows_the_parts_of_the_score(rota: Command, worker_id: str) -> None:
    lines = rota("workers", "ls", "--rank").stdout.splitlines()

    assert lines[0].split()[:4] == ["WORKER", "HEALTH", "PRIORITY", "FREE"]
    assert lines[1].split()[0] == worker_id
    assert lines[1].split()[3] == "4"


def test_one_worker_is_shown(rota: Command, worker_id: str) -> None:
    text = rota("workers", "show", worker_id).stdout

    assert "capabilities     gpu, large" in text
    assert "running          0 of 4" in text


@pytest.mark.parametrize(
    ("verb", "state"),
    [("drain", "draining"), ("quarantine", "quarantined"), ("resume", "active")],
)
def test_a_worker_is_steered(rota: Command, worker_id: str, verb: str, state: str) -> None:
    assert rota("workers", verb, worker_id).stdout == f"worker {worker_id} is {state}\n"
    assert document(rota("workers", "show", worker_id, "--json"))["state"] == state


def test_a_removed_worker_is_gone(rota: Command, worker_id: str) -> None:
    assert document(rota("workers", "remove", worker_id, "--json")) == {
        "id": worker_id,
        "removed": True,
    }
    assert rota("workers", "show", worker_id).exit_code == ExitCode.FAILED
