"""A server that answers byte by byte as a test says: for what real servers do only at times."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 30.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

Script = Callable[[socket.socket], None]


def read_request(connection: socket.socket) -> bytes:
    """One request, with its body; empty when the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    length = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextmanager
def listening(*scripts: Script) -> Iterator[str]:
    """Serve each connection by the next script; gives the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def serve() -> None:
            for script in scripts:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    script(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def free_url() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
