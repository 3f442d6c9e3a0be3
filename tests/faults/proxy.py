"""A network between a coordinator and its database, or another, as bad as it has to be.

Passes bytes on, connection by connection. It can be told to break what is open and turn away what
comes, to hold everything back without a word (a partition: nobody is told), to hold back one
direction only (half open: requests arrive and answers do not), and to take its time.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CHUNK = 65_536
PATIENCE_S = 60.0
ABORT = struct.pack("ii", 1, 0)  # linger for no time: the other side gets a reset, not an end


class Proxy:
    def __init__(self, target: str | tuple[str, int]) -> None:
        """What stands behind it: a host and a port, or the path of a socket."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self._refuses = False
        self._holds_requests = False
        self._holds_answers = False
        self._delay_s = 0.0
        self.connections = 0  # that were ever accepted and passed on
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    # --- how bad it is --------------------------------------------------------------------------

    def drop(self) -> None:
        """Break all connections, and turn new ones away."""
        self._set(refuses=True)
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones may be made at once."""
        with self._changed:
            broken, self._open = self._open, set()
        for one in broken:
            _reset(one)

    def partition(self) -> None:
        """Nothing passes, in either direction, and nobody is told."""
        self._set(holds_requests=True, holds_answers=True)

    def half_open(self) -> None:
        """Requests arrive; no answer ever comes back."""
        self._set(holds_answers=True)

    def delay(self, seconds: float) -> None:
        """Everything takes so much longer, in each direction."""
        self._set(delay_s=seconds)

    def heal(self) -> None:
        """All is well again; what was held back arrives late, as on a network."""
        self._set()

    def _set(
        self,
        *,
        refuses: bool = False,
        holds_requests: bool = False,
        holds_answers: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        with self._changed:
            self._refuses = refuses
            self._holds_requests, self._holds_answers = holds_requests, holds_answers
            self._delay_s = delay_s
            self._changed.notify_all()

    def wait_for_connection(self, number: int) -> None:
        """Wait until so many have been passed on in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.connections >= number, PATIENCE_S)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        # Wakes the thread that accepts; closing alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    # --- passing on -----------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._refuses or self._is_closed:
            _reset(client)
            return
        try:
            server = self._reach()
        except OSError:
            _reset(client)
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._open |= {client, server}
            self.connections += 1
            self._changed.notify_all()
        back = threading.Thread(
            target=self._pass, args=(server, client), kwargs={"is_answer": True}, daemon=True
        )
        back.start()
        self._pass(client, server, is_answer=False)
        back.join()
        with self._changed:
            self._open -= {client, server}
        client.close()
        server.close()

    def _reach(self) -> socket.socket:
        if isinstance(self._target, tuple):
            server = socket.create_connection(self._target, timeout=PATIENCE_S)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            server = socket.socket(socket.AF_UNIX)
            server.settimeout(PATIENCE_S)
            server.connect(self._target)
        server.settimeout(None)
        return server

    def _pass(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if not self._hold(is_answer=is_answer):
                    return
                target.sendall(data)
        # An end is news as well: nobody hears of it while the network holds everything.
        if self._hold(is_answer=is_answer):
            for one in (source, target):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _hold(self, *, is_answer: bool) -> bool:
        """Keep a piece for as long as the network does; False: there is no network any more."""
        with self._changed:
            delay_s = self._delay_s
            if delay_s:
                self._changed.wait_for(lambda: self._is_closed or not self._delay_s, delay_s)
            self._changed.wait_for(lambda: self._is_closed or not self._holds(is_answer=is_answer))
            return not self._is_closed

    def _holds(self, *, is_answer: bool) -> bool:
        return self._holds_answers if is_answer else self._holds_requests


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)  # wakes its reader, which then closes it
    with contextlib.suppress(OSError):
        one.close()


@contextmanager
def proxied(target: str | tuple[str, int]) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
