"""The coordinator that is shot at: a process of its own, watched from outside."""

import http.client
import json
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import zmq

from tests.cli.processes import Running

PATIENCE_S = 20.0
LEAST_WAIT_S = 0.1
MOST_DRAINED = 1_000  # pieces that a connection may say before it is closed
MEBIBYTE = 1024 * 1024
# A server that is well shows none of these to a client.
INTERNALS = re.compile(
    rb"Traceback \(most recent|File \"/|site-packages|\.py\"?, line \d|/rota/[a-z_]+/[a-z_]+\.py"
)


class Address(NamedTuple):
    host: str
    port: int


class Finding(Exception):  # noqa: N818 - what is looked for is not an error of the fuzzer
    """Something that must not be."""


class Wire:
    """One connection. Everything that is sent is kept, for when it turns out to be a finding."""

    def __init__(self, address: Address) -> None:
        self.sent: list[bytes] = []
        self._socket = socket.create_connection(address, PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """False: the coordinator has closed the connection, or does not read on."""
        self.sent.append(data)
        self._socket.settimeout(PATIENCE_S)
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def end_sending(self) -> None:
        with suppress(OSError):  # closed by the other side already
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self, timeout_s: float, most: int = 65_536) -> bytes | None:
        """What comes next; nothing: the other side has closed. None: nothing came in time."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(most)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def receive_all(self, timeout_s: float, most: int = 1_000_000) -> bytes:
        """What comes, until nothing comes for a while, or the connection is closed."""
        found = b""
        while len(found) < most and (data := self.receive(timeout_s)):
            found += data
        return found

    def is_closed(self, due_at_s: float) -> bool:
        """Whether the other side closes the connection in time; what it says before is dropped."""
        for _ in range(MOST_DRAINED):
            data = self.receive(max(LEAST_WAIT_S, due_at_s - time.monotonic()))
            if not data:
                return data is not None
        return False


class Target:
    """A running coordinator without tokens, so that every input reaches what is behind the door."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        store = store or f"sqlite:///{folder}/fuzz.db"
        # No URL that a webhook or a queue is given may lead anywhere.
        flags = ["--port", "0", "--zmq-port", "0", "--store", store, "--outbound-only-allowed"]
        self._process = Running(
            "up", *flags, "--log-level", "warning", "--log-format", "json", "--json", folder=folder
        )
        said = json.loads(self._process.wait_for('"url"'))
        self.http = _address(said["url"])
        self.zeromq = _address(said["shards"])
        self.usual_bytes = self.memory_bytes()
        self._lines_seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.signal(signal.SIGTERM)
        self._process.ends()

    # --- is it well -----------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * 4096

    def growth_bytes(self) -> int:
        return max(0, self.memory_bytes() - self.usual_bytes)

    def check_growth(self, most_bytes: int) -> None:
        growth = self.growth_bytes()
        if growth > most_bytes:
            self.usual_bytes += growth  # told once, not after every round
            raise Finding(f"the coordinator has grown by {growth // MEBIBYTE} MiB")

    def new_mistakes(self) -> list[str]:
        """Lines of the log, since the last look, that say that something went wrong inside."""
        lines = self._process.said[self._lines_seen :]
        self._lines_seen += len(lines)
        return [mistake for line in lines if (mistake := _mistake(line))]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A valid call, which has to be answered as such."""
        connection = http.client.HTTPConnection(*self.http, timeout=PATIENCE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            raise Finding(f"{method} {path} is not answered: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise Finding(f"{method} {path} is answered with {answer.status}: {content[:500]!r}")
        return json.loads(content)

    def check(self) -> None:
        """A valid request is answered, and nothing went wrong inside."""
        self.call("GET", "/health/live")
        if mistakes := self.new_mistakes():
            raise Finding(f"the log has an error: {mistakes[0]}")

    def check_zeromq(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            with context.socket(zmq.DEALER) as dealer:
                dealer.linger = 0
                dealer.rcvtimeo = int(PATIENCE_S * 1000)
                dealer.connect(f"tcp://{self.zeromq.host}:{self.zeromq.port}")
                data = {"serviceName": "valid", "workerId": "w", "maxShardCount": 4}
                beat = {"type": "heartbeat", "data": {**data, "assignedShards": []}}
                dealer.send(json.dumps(beat).encode())
                answer = json.loads(dealer.recv())
        except zmq.ZMQError as error:
            raise Finding(f"a valid heartbeat over ZeroMQ is not answered: {error}") from error
        finally:
            context.destroy(linger=0)
        if answer["type"] != "assignment":
            raise Finding(f"a valid heartbeat over ZeroMQ is answered with {answer}")


def _mistake(line: str) -> str | None:
    """A line of the log in short, if it is an error; the same one always has the same text."""
    if not line.startswith("{"):
        return line.strip()  # what no logger has written
    entry = json.loads(line)
    if entry.get("level") not in {"error", "critical"}:
        return None
    reason = entry.get("exception", "").strip().splitlines()[-1:]
    text = f"{entry['event'].strip()}: {''.join(reason)}"
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)


def _address(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Address(parts.hostname, parts.port)


def check_text(data: bytes) -> None:
    """Nothing that is sent to a client tells of the inside of the server."""
    if found := INTERNALS.search(data):
        raise Finding(f"an answer shows internals: {data[max(0, found.start() - 100) :][:400]!r}")
