"""Is the network of the fault tests as bad as it says? A good one proves nothing."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.proxy import PATIENCE_S, Proxy, proxied

SILENCE_S = 0.2


class Echo:
    """Says back what it hears, and notes what has arrived."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard = b""
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            while data := one.recv(100):
                with self._changed:
                    self.heard += data
                    self._changed.notify_all()
                one.sendall(data)

    def wait_for(self, text: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.heard, PATIENCE_S)


@contextmanager
def network() -> Iterator[tuple[Echo, Proxy]]:
    echo = Echo()
    try:
        with proxied(echo.listener.getsockname()) as proxy:
            yield echo, proxy
    finally:
        echo.listener.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE_S)


def is_silent(one: socket.socket) -> bool:
    one.settimeout(SILENCE_S)
    try:
        return not one.recv(1)
    except TimeoutError:
        return True
    finally:
        one.settimeout(PATIENCE_S)


def test_what_is_said_is_passed_on_both_ways() -> None:
    with network() as (_, proxy), connect(proxy) as one:
        one.sendall(b"hello")

        assert one.recv(100) == b"hello"


def test_dropping_breaks_what_is_open_and_turns_away_what_comes() -> None:
    with network() as (_, proxy), connect(proxy) as one:
        one.sendall(b"a")
        assert one.recv(1) == b"a"

        proxy.drop()

        with pytest.raises(ConnectionError):
            _speak(one)
        with pytest.raises(ConnectionError):
            _connect_and_speak(proxy)


def test_a_partition_holds_everything_and_what_was_said_arrives_when_it_heals() -> None:
    with network() as (echo, proxy), connect(proxy) as one:
        one.sendall(b"a")
        assert one.recv(1) == b"a"

        proxy.partition()
        one.sendall(b"b")

        assert is_silent(one)
        assert echo.heard == b"a"
        proxy.heal()
        assert one.recv(1) == b"b"


def test_half_open_lets_requests_through_and_no_answer_back() -> None:
    with network() as (echo, proxy), connect(proxy) as one:
        one.sendall(b"a")
        assert one.recv(1) == b"a"

        proxy.half_open()
        one.sendall(b"b")
        echo.wait_for(b"ab")

        assert is_silent(one)
        proxy.heal()
        assert one.recv(1) == b"b"


def test_after_a_cut_new_connections_work_at_once() -> None:
    with network() as (_, proxy), connect(proxy) as one:
        one.sendall(b"a")
        assert one.recv(1) == b"a"

        proxy.cut()

        with pytest.raises(ConnectionError):
            _speak(one)
        with connect(proxy) as other:
            other.sendall(b"b")
            assert other.recv(1) == b"b"
        assert proxy.connections == 2


def test_a_delay_is_over_as_soon_as_it_heals() -> None:
    with network() as (_, proxy), connect(proxy) as one:
        proxy.delay(PATIENCE_S)
        one.sendall(b"a")

        assert is_silent(one)
        proxy.heal()
        assert one.recv(1) == b"a"


def _connect_and_speak(proxy: Proxy) -> None:
    with connect(proxy) as one:  # may be turned away as early as here
        _speak(one)


def _speak(one: socket.socket) -> None:
    """Say something and listen; a broken connection shows by one of them."""
    one.sendall(b"x")
    if one.recv(1) == b"":
        raise ConnectionResetError
    pytest.fail("the connection is whole")
