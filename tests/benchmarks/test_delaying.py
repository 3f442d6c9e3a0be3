"""The delaying proxy of the benchmarks adds what it says, and changes no byte."""

import hashlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.scaling.links import delayed_port

SAMPLES = 200
OFF_BY_MS = 0.1
LATE = 1.05
LIMIT_S = 30.0


def echo(listener: socket.socket) -> None:
    """Send back whatever arrives, connection by connection, until the listener is closed."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(client,), daemon=True).start()


def _echo(client: socket.socket) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client:
        while data := client.recv(65_536):
            client.sendall(data)


@pytest.fixture
def echo_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def quickest_ms(port: int) -> float:
    quickest = float("inf")
    with connect(port) as connection:
        for _ in range(SAMPLES):
            start_s = time.perf_counter()
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            quickest = min(quickest, (time.perf_counter() - start_s) * 1000)
    return quickest


@pytest.mark.parametrize("rtt_ms", [1.0, 10.0])
def test_the_proxy_adds_the_round_trip_it_was_told(
    rtt_ms: float, echo_port: int, tmp_path: Path
) -> None:
    """The quickest of many counts: other work on the machine only makes a round trip longer.

    A virtual machine whose processors are shared ends even the quickest wait late, by a share of
    its length. Waits that are rounded to whole milliseconds would be too long by far more.
    """
    direct_ms = quickest_ms(echo_port)
    with delayed_port(echo_port, rtt_ms, tmp_path / "log") as port:
        added_ms = quickest_ms(port) - direct_ms

    assert rtt_ms - OFF_BY_MS <= added_ms <= rtt_ms * LATE + OFF_BY_MS


def test_bytes_pass_unchanged_and_in_order_at_full_rate(echo_port: int, tmp_path: Path) -> None:
    """A proxy that held one chunk at a time would need a hundred times as long."""
    data = random.Random(1).randbytes(32 * 1024 * 1024)
    start_s = time.monotonic()
    with delayed_port(echo_port, 100.0, tmp_path / "log") as port, connect(port) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
        sender.start()
        received, digest = 0, hashlib.sha256()
        while received < len(data):
            piece = connection.recv(1024 * 1024)
            assert piece, "the proxy closed the connection"
            received += len(piece)
            digest.update(piece)
        sender.join(LIMIT_S)

    assert digest.digest() == hashlib.sha256(data).digest()
    assert time.monotonic() - start_s < LIMIT_S


def test_a_closed_connection_is_closed_behind_its_last_bytes(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        delayed_port(listener.getsockname()[1], 20.0, tmp_path / "log") as port,
    ):
        client = connect(port)
        server, _ = listener.accept()
        with server:
            client.sendall(b"the last words")
            client.close()

            assert server.recv(100) == b"the last words"
            assert server.recv(100) == b""


def test_a_connection_ends_when_its_target_refuses_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    with delayed_port(free, 1.0, tmp_path / "log") as port, connect(port) as client:
        try:
            heard = client.recv(1)
        except ConnectionResetError:
            heard = b""

    assert heard == b""
