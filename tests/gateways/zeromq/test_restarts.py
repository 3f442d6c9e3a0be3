"""Do members keep their shards through the sudden end of their coordinator?"""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.cli.processes import Running, running
from tests.gateways.zeromq.dealers import (
    COUNT,
    EVERYTHING,
    TIMEOUT_S,
    assigned,
    heartbeat,
    register,
)

BEAT_MS = 200


class Member:
    """Speaks protocol 2 by hand, and holds what it was told last."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], url: str, worker_id: str) -> None:
        self.worker_id = worker_id
        self.told: Any = {"assignedShards": [], "generation": 0}
        self._seq = 0
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = int(TIMEOUT_S * 1000)
        self.socket.connect(url)

    @property
    def epochs(self) -> dict[int, int]:
        return dict(zip(self.told["assignedShards"], self.told["shardEpochs"], strict=True))

    def register(self) -> None:
        self._say(register(self.worker_id, protocol=2, incarnation=1))

    def beat(self) -> None:
        """Say what it holds, until it is answered: what was said to a dead coordinator is lost."""
        self._seq += 1
        beat = heartbeat(
            self.worker_id,
            self.told["assignedShards"],
            protocol=2,
            incarnation=1,
            generation=self.told["generation"],
            seq=self._seq,
        )
        self._say(beat)

    def _say(self, body: bytes) -> None:
        self.socket.send(body)
        for _ in range(int(TIMEOUT_S * 1000) // BEAT_MS):
            if self.socket.poll(BEAT_MS):
                break
            self.socket.send(body)
        while self.socket.poll(0) or self.told["generation"] == 0:
            answer = json.loads(self.socket.recv())
            assert answer["type"] == "assignment", answer
            if answer["data"]["generation"] >= self.told["generation"]:
                self.told = answer["data"]


@contextmanager
def members(url: str, *worker_ids: str) -> Iterator[list[Member]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    joined = [Member(context, url, worker_id) for worker_id in worker_ids]
    try:
        yield joined
    finally:
        for member in joined:
            member.socket.close()
        context.term()


@contextmanager
def coordinator(folder: Path, zmq_port: int = 0) -> Iterator[tuple[Running, str]]:
    flags = ("--port", "0", "--zmq-port", str(zmq_port), "--json")
    with running("up", *flags, folder=folder) as process:
        yield process, json.loads(process.wait_for('"url"'))["shards"]


def settle(joined: Sequence[Member]) -> None:
    """Beat until each has its part, and has heard of the last of it."""
    share = COUNT // len(joined)
    while any(len(member.told["assignedShards"]) != share for member in joined):
        for member in joined:
            member.beat()
    for member in joined:
        member.beat()


@pytest.mark.slow
def test_after_a_kill_everybody_has_the_same_shards_under_the_same_epochs(tmp_path: Path) -> None:
    with coordinator(tmp_path) as (process, url), members(url, "A", "B", "C", "D") as joined:
        for member in joined:
            member.register()
        settle(joined)
        before = {member.worker_id: (member.epochs, member.told["generation"]) for member in joined}

        process.signal(signal.SIGKILL)
        process.ends()
        with coordinator(tmp_path, int(url.rpartition(":")[2])) as (_again, _url):
            for member in joined * 3:
                member.beat()

        after = {member.worker_id: (member.epochs, member.told["generation"]) for member in joined}
        assert after == before
        assert sorted(shard for epochs, _ in before.values() for shard in epochs) == EVERYTHING


@pytest.mark.slow
def test_an_old_client_finds_the_new_coordinator_by_itself(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = int(TIMEOUT_S * 1000)
    with coordinator(tmp_path) as (process, url):
        dealer.connect(url)
        dealer.send(register("worker-1"))
        assert dealer.recv() == assigned(EVERYTHING)

        process.signal(signal.SIGKILL)
        process.ends()
        with coordinator(tmp_path, int(url.rpartition(":")[2])):
            dealer.send(heartbeat("worker-1", EVERYTHING))
            assert dealer.recv() == assigned(EVERYTHING)
    dealer.close()
    context.term()


@pytest.mark.slow
def test_a_coordinator_with_members_stops_cleanly(tmp_path: Path) -> None:
    with coordinator(tmp_path) as (process, url), members(url, "A", "B") as joined:
        for member in joined:
            member.register()

        process.signal(signal.SIGTERM)

        assert process.ends() == 0
        assert "Traceback" not in process.output
