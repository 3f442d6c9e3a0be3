import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from rota.cli.main import cli
from rota.messages import LeaseRequest, LeaseView, ResultItem, WorkerRegistration, WorkerView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.processes import coordinator

HOUR_MS = 3_600_000


class Command(Protocol):
    def __call__(self, *arguments: str, stdin: str | None = None) -> Result: ...


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One coordinator for the tests of a file; each keeps to queues of its own."""
    with coordinator(tmp_path_factory.mktemp("coordinator")) as (_process, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.connect(url) as client:
        yield client


@pytest.fixture
def rota(url: str) -> Command:
    """The command line, against that coordinator."""

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env={"ROTA_URL": url})

    return run


def document(ended: Result) -> Any:
    """What a command with `--json` printed: one document, and nothing else."""
    assert ended.exit_code == 0, ended.stderr
    return json.loads(ended.stdout)


class Hand:
    """A worker by hand: takes the work of one queue and says what became of it."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        registration = WorkerRegistration(queues=[queue], heartbeat_interval_ms=HOUR_MS)
        self.worker: WorkerView = client.run(calls.register_worker(registration))

    def lease(self) -> LeaseView:
        request = LeaseRequest(incarnation=self.worker.incarnation, wait_ms=30_000)
        return self.client.run(calls.lease(self.worker.id, request)).leases[0]

    def report(self, lease: LeaseView, **outcome: Any) -> None:
        item = ResultItem(task_id=lease.task_id, fence=lease.fence, **outcome)
        report = calls.report_results(
            self.worker.id, incarnation=self.worker.incarnation, results=[item]
        )
        self.client.run(report)
