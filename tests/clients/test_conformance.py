"""Both workers speak the worker protocol as the transcript has it, against a real coordinator.

A step of the transcript is a message of the worker or the coordinator, or something that the test
does. `$name` stands for a value: the first message with it says which, all later ones must have the
same. `$_` stands for anything. Fields that a step does not name are not compared.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota import Client
from rota.core import ids
from rota.core.tasks.model import NewTask
from rota.messages import ResultItem
from rota.sdk.client import calls
from tests.cli.processes import TIMEOUT_S, coordinator, environment
from tests.clients import node
from tests.clients.recording import RecordingRelay, Said, recording

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TRANSCRIPT = Path(__file__).parent / "transcripts" / "worker.json"
QUEUE = "conformance"
GATES = "gates"  # a queue that no worker serves


def python_worker() -> list[str]:
    return [sys.executable, "-m", "tests.clients.conformance_worker"]


def typescript_worker() -> list[str]:
    using = node.find_nodes()[0]
    node.build(using)
    program = node.PACKAGE / "build" / "test" / "programs" / "conformance_worker.js"
    return [str(using.node), str(program)]


@pytest.mark.parametrize("command", [python_worker, typescript_worker])
def test_a_worker_speaks_as_the_transcript_has_it(command: Any, tmp_path: Path) -> None:
    steps = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))

    with (
        coordinator(tmp_path) as (_, url),
        recording(url) as relay,
        Client.connect(url) as client,
        program(command(), ROTA_URL=relay.url, GATE_URL=url) as process,
    ):
        walk = TranscriptWalk(relay, client, process)
        for number, step in enumerate(steps, start=1):
            walk.take(number, step)

        assert process.wait(TIMEOUT_S) == 0


@contextmanager
def program(command: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(**variables), stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


class TranscriptWalk:
    """Takes the steps of a transcript one after the other."""

    def __init__(
        self, relay: RecordingRelay, client: Client, process: "subprocess.Popen[bytes]"
    ) -> None:
        self._relay = relay
        self._client = client
        self._process = process
        (gate,) = client.run(calls.submit([NewTask(name="gate", queue=GATES)]))
        self._gate = gate.id
        self._values: dict[str, Any] = {"$gate": gate.id}

    def take(self, number: int, step: Mapping[str, Any]) -> None:
        if "do" in step:
            self._act(step)
            return
        by = "worker" if "worker" in step else "coordinator"
        said = self._next(step.get("skipping", ()))
        where = f"step {number} of {TRANSCRIPT.name}: {json.dumps(step)}\nwas: {said}"
        assert (said.by, said.what) == (by, step[by]), where
        problem = self._difference(step.get("payload", {}), said.payload or {}, "payload")
        assert problem is None, f"{where}\n{problem}"

    def _next(self, skipping: Sequence[str]) -> Said:
        while (said := self._relay.next()).what in skipping:
            pass
        return said

    def _act(self, step: Mapping[str, Any]) -> None:
        match step["do"]:
            case "submit":
                payload = {
                    name: self._values.get(value, value) for name, value in step["payload"].items()
                }
                content = Raw(msgspec.json.encode(payload))
                task = NewTask(name=step["name"], queue=QUEUE, payload=content)
                self._client.run(calls.submit([task]))
            case "cancel":
                self._client.run(calls.cancel_task(self._task(step)))
            case "open_gate":
                self._client.run(calls.cancel_task(self._gate))
            case "end_lease":
                # As if the worker itself had reported: the lease is over, and it does not know.
                item = ResultItem(
                    task_id=self._task(step), fence=step["fence"], snooze_ms=3_600_000
                )
                incarnation = self._values["$incarnation"]
                report = calls.report_results(QUEUE, incarnation=incarnation, results=[item])
                self._client.run(report)
            case "terminate":
                self._process.send_signal(signal.SIGTERM)
            case other:
                pytest.fail(f"no such step: {other!r}")

    def _task(self, step: Mapping[str, Any]) -> str:
        return ids.to_text(self._values[step["task"]])

    def _difference(self, wanted: Any, found: Any, path: str) -> str | None:
        """Where a message differs from its step; None when it does not."""
        if isinstance(wanted, str) and wanted.startswith("$"):
            if wanted == "$_" or self._values.setdefault(wanted, found) == found:
                return None
            return f"{path} is {found!r}, and {wanted} was {self._values[wanted]!r}"
        if isinstance(wanted, dict) and isinstance(found, dict):
            fields = ((wanted[name], found.get(name), f"{path}.{name}") for name in wanted)
            return next(filter(None, (self._difference(*one) for one in fields)), None)
        if isinstance(wanted, list) and isinstance(found, list):
            wanted, found = _trimmed(wanted), _trimmed(found)
            if len(wanted) == len(found):
                pairs = enumerate(zip(wanted, found, strict=True))
                items = ((one, other, f"{path}[{place}]") for place, (one, other) in pairs)
                return next(filter(None, (self._difference(*one) for one in items)), None)
        if wanted == found or (wanted in ([], None) and found in ([], None)):
            return None
        return f"{path} is {found!r} instead of {wanted!r}"


def _trimmed(row: list[Any]) -> list[Any]:
    """A row without absent fields at its end."""
    end = len(row)
    while end and row[end - 1] in (None, False):
        end -= 1
    return row[:end]
