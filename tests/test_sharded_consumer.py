"""The sharded consumer of the examples counts every record once, also when a copy is killed."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from examples import sharded_consumer
from examples.sharded_consumer import PARTITIONS, Progress, record_at
from rota.sdk.client.client import Client
from rota.sdk.client.service_calls import get_checkpoint
from tests.sdk.serving import PATIENCE_S
from tests.sdk.sharing import ShardServer

pytestmark = pytest.mark.slow  # starts interpreters, and waits for a lease to end


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShardServer]:
    with ShardServer(tmp_path, shard_lease_ms=1_500) as running:
        yield running


@contextmanager
def consumer(server: ShardServer, wire: str) -> Iterator["subprocess.Popen[str]"]:
    options = server.options(wire)
    with subprocess.Popen(
        [sys.executable, sharded_consumer.__file__],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ROTA_URL": options["url"], "ROTA_ZMQ": options["zmq"]},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_partitions(process: "subprocess.Popen[str]", count: int) -> None:
    """Read what a copy prints until it has consumed of so many."""
    assert process.stdout is not None
    seen: set[str] = set()
    for line in process.stdout:
        if found := re.match(r"partition (\d+):", line):
            seen.add(found[1])
        if len(seen) == count:
            return
    raise AssertionError(f"it ended after {seen}")


@pytest.mark.parametrize("wire", ["http", "zeromq"])
def test_every_record_is_counted_once_also_when_a_copy_is_killed(
    server: ShardServer, wire: str
) -> None:
    with consumer(server, wire) as one:
        wait_for_partitions(one, PARTITIONS)
        with consumer(server, wire) as other:
            wait_for_partitions(other, PARTITIONS // 2)

            one.kill()

            wait_for_partitions(other, PARTITIONS)
            other.send_signal(signal.SIGTERM)
            assert other.wait(PATIENCE_S) == 0

    with Client.connect(server.url) as client:
        views = [client.run(get_checkpoint("orders", shard)) for shard in range(PARTITIONS)]
    for view in views:
        assert view.value is not None
        progress = msgspec.json.decode(view.value, type=Progress)
        records = [record_at(view.shard, offset) for offset in range(progress["offset"])]
        assert records
        assert progress["total"] == sum(records)
