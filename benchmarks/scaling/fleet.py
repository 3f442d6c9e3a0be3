"""Coordinators on one store that may be killed, stopped and started again at the same address."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.coordinators import COMMAND, connect_when_ready
from benchmarks.processes import Failed, Process, free_port
from benchmarks.wire import Connection

EXIT_LIMIT_S = 30.0


class Member:
    """One coordinator, of which there may be several processes one after the other."""

    def __init__(self, name: str, folder: Path, store: str) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder
        self._store = store
        self._starts = 0
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was started"
        return self._process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start a process and wait until it is ready; return the seconds that this took."""
        self._starts += 1
        command = [COMMAND, "up", "--store", self._store, "--port", str(self.port)]
        command += ["--replica-name", self.name]
        log = self._folder / f"{self.name}-{self._starts}.log"
        start_s = time.perf_counter()
        self._process = Process(command, log=log)
        connect_when_ready(self._process, self.port, poll_s=0.002).close()
        return time.perf_counter() - start_s

    def ask(self, method: str, path: str, value: Any = None) -> Any:
        """Make one call on a connection of its own."""
        connection = Connection(self.port)
        try:
            return connection.ask(method, path, value)
        finally:
            connection.close()

    def kill(self) -> None:
        """End the process as a crash would, and wait for its end."""
        self.process.kill()
        self.process.wait(EXIT_LIMIT_S)

    def stop(self) -> None:
        """Stop the process as an operator does, and wait for its end."""
        self.process.terminate()
        self.process.wait(EXIT_LIMIT_S)

    def end(self) -> None:
        if self._process is not None:
            self._process.stop()


@contextmanager
def fleet(size: int, folder: Path, store: str) -> Iterator[list[Member]]:
    """Run this many members; those that run at the end are stopped."""
    folder.mkdir()
    members = [Member(f"member-{number}", folder, store) for number in range(size)]
    try:
        for member in members:
            member.start()
        yield members
    finally:
        for member in members:
            member.end()


def leader_of(members: Sequence[Member]) -> Member | None:
    """The member that leads by `GET /api/system`; None where coordinators have no leader."""
    for member in members:
        try:
            leader = member.ask("GET", "/api/system").get("leader")
        except (OSError, Failed, json.JSONDecodeError):
            continue
        return find_leader(leader, members) if leader else None
    raise Failed("no member says which one leads")


def find_leader(leader: Mapping[str, Any], members: Sequence[Member]) -> Member:
    """The member with the leader's name, or with the port of the leader's address."""
    for member in members:
        address = str(leader.get("address"))
        if member.name == leader.get("name") or address.endswith(f":{member.port}"):
            return member
    raise Failed(f"the leader is none of the members: {leader}")
