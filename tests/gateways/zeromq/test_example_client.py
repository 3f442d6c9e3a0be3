"""Does the example client that shard coordinators have been documented with work with ours?

`example_client.ts` is that client, letter for letter. Two things are put in when it is run: the
address, and the pause between its heartbeats, so that nobody waits ten seconds for one.
"""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import running
from tests.gateways.zeromq.dealers import EVERYTHING, TIMEOUT_S
from tests.gateways.zeromq.node_packages import installed

CLIENT = Path(__file__).parent / "example_client.ts"
ADDRESS = "tcp://localhost:5555"
PAUSE = "}, 10000);"
PAUSE_MS = 50
STRIP_TYPES = """
const { readFileSync, writeFileSync } = require('node:fs');
const { transformSync } = require('amaro');
const [source, target] = process.argv.slice(1);
writeFileSync(target, transformSync(readFileSync(source, 'utf8'), { mode: 'strip-only' }).code);
"""


@contextmanager
def example_client(folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    packages = installed()
    text = CLIENT.read_text()
    assert (text.count(ADDRESS), text.count(PAUSE)) == (1, 1)
    source, script = folder / "client.ts", folder / "client.mjs"
    source.write_text(text.replace(ADDRESS, url).replace(PAUSE, f"}}, {PAUSE_MS});"))
    (folder / "node_modules").symlink_to(packages / "node_modules")
    subprocess.run(
        ["node", "-e", STRIP_TYPES, source, script], cwd=folder, check=True, timeout=TIMEOUT_S
    )
    with subprocess.Popen(
        ["node", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def service(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/services/my-service", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def beats(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    name = 'rota_zeromq_messages_total{type="heartbeat"} '
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.slow
def test_the_example_client_registers_beats_and_keeps_its_shards(tmp_path: Path) -> None:
    lease_ms = 3_000  # long enough for a busy machine to let the client beat in time
    flags = ("up", "--port", "0", "--zmq-port", "0", "--shard-lease-ms", str(lease_ms), "--json")
    with running(*flags, folder=tmp_path) as coordinator:
        announced = json.loads(coordinator.wait_for('"url"'))
        with example_client(tmp_path, announced["shards"]) as client:
            assert client.stdout is not None
            said = [client.stdout.readline().strip() for _ in range(2)]
            assert said[0] == f"Connected to coordinator at {announced['shards']}"
            assert said[1] == f"Assigned shards: {', '.join(map(str, EVERYTHING))}"

            while beats(announced["url"]) < 2 * lease_ms / PAUSE_MS:
                pass
            (member,) = service(announced["url"])["members"]
            assert (member["worker_id"], member["shards"]) == ("worker-1", EVERYTHING)
            assert member["epochs"] == [1] * len(EVERYTHING)

            client.send_signal(signal.SIGINT)
            assert client.stdout.read() == "Worker shutdown complete\n"
            assert client.wait(TIMEOUT_S) == 0
