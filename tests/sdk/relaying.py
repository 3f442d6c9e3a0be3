"""Something between a worker and its coordinator, as networks have it, that can misbehave."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

CHUNK = 65_536
PATIENCE_S = 30.0
REFUSAL = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Relay:
    """Passes on what comes, connection by connection, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url).hostname, urlsplit(url).port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.refuses_sockets = False  # as a proxy that knows nothing of WebSockets
        self.sockets = 0  # WebSockets that were asked for
        self._loses_answers = False
        self._pause_s = 0.0  # after each piece of a request
        self._answer_pause_s = 0.0
        self._open: set[socket.socket] = set()  # of WebSockets
        self._swallowing: set[socket.socket] = set()  # sources whose bytes go nowhere
        self._pairs: dict[socket.socket, socket.socket] = {}  # of WebSockets: client -> server
        self.swallowed = threading.Event()
        self.lost_answer = threading.Event()
        self._opened = threading.Semaphore(0)
        threading.Thread(target=self._accept, name="test-relay", daemon=True).start()

    def lose_next_answer(self) -> None:
        """The next word of the coordinator on a WebSocket is lost, and the connection with it."""
        self._loses_answers = True

    def swallow(self, *, requests: bool) -> None:
        """Drop what comes on the open WebSockets, which stay open even when the coordinator closes.

        Answers are dropped in any case, `requests` as well if it says so. New WebSockets work.
        """
        for client, server in list(self._pairs.items()):
            self._swallowing |= {server, client} if requests else {server}

    def slow_down(self, pause_s: float) -> None:
        """Pass on what comes to the coordinator slowly, and let the rest wait at its sender."""
        self._pause_s = pause_s
        for client in self._pairs:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)

    def slow_answers_down(self, pause_s: float) -> None:
        """Pass on what comes from the coordinator slowly."""
        self._answer_pause_s = pause_s

    def wait_opened(self) -> None:
        """Wait for the next WebSocket that the coordinator has said something on."""
        assert self._opened.acquire(timeout=PATIENCE_S)

    def cut(self) -> None:
        """All WebSockets break."""
        for one in list(self._open):
            _shut(one)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            first = client.recv(CHUNK)
            is_socket = first.startswith(b"GET /ws")
            self.sockets += is_socket
            if is_socket and self.refuses_sockets:
                client.sendall(REFUSAL)
                return
            with socket.create_connection(self._target) as server:
                if is_socket:
                    self._open |= {client, server}
                    self._pairs[client] = server
                server.sendall(first)
                up = threading.Thread(target=self._pass, args=(client, server), daemon=True)
                up.start()
                self._answer(server, client, is_socket=is_socket)
                _shut(server)
                if server not in self._swallowing:
                    _shut(client)
                up.join()
                self._open -= {client, server}
                self._pairs.pop(client, None)

    def _answer(self, server: socket.socket, client: socket.socket, *, is_socket: bool) -> None:
        is_first = is_socket
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                if is_first:
                    is_first = False
                    self._opened.release()
                if is_socket and self._loses_answers:
                    self._loses_answers = False
                    self.lost_answer.set()
                    return
                self._hand_on(server, client, data)
                if self._answer_pause_s:
                    time.sleep(self._answer_pause_s)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._hand_on(source, target, data)
                if self._pause_s:
                    time.sleep(self._pause_s)
        _shut(target)

    def _hand_on(self, source: socket.socket, target: socket.socket, data: bytes) -> None:
        if source in self._swallowing:
            self.swallowed.set()
            return
        try:
            target.sendall(data)
        except OSError:
            if target not in self._swallowing:  # the end of a swallowed connection is not told
                raise


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(url: str) -> Iterator[Relay]:
    relay = Relay(url)
    try:
        yield relay
    finally:
        relay.close()
