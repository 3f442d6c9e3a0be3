"""A bare HTTP client: prepared requests, answers read whole, one connection each.

It costs as little as a client can, so that on a small machine the benchmark measures the
coordinator and not the client. Other measurements include the cost of the SDK.
"""

import json
import socket
import time
from typing import Any, NamedTuple

from benchmarks.processes import Failed

ANSWER_TIMEOUT_S = 60.0
_READ_SIZE = 256 * 1024
_END = b"\r\n\r\n"


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Answer(NamedTuple):
    status: int
    head: bytes  # in lower case
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The beginning of the body, for messages."""
        return self.body[:300].decode(errors="replace")


def whole_answer(received: bytes) -> Answer | None:
    """The answer that these bytes are; None until all of it is there."""
    end = received.find(_END)
    if end < 0:
        return None
    head, body = received[:end].lower(), received[end + len(_END) :]
    if len(body) < _content_length(head):
        return None
    return Answer(int(head.split(b" ", 2)[1]), head, body)


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, written: bytes) -> bytes:
        """Send a prepared request; return the body of the answer, which must be a success.

        After a 503, wait for the time in `Retry-After` and send again.
        """
        while True:
            answer = self.exchange(written)
            if answer.status == 503:
                time.sleep(retry_after_s(answer.head))
                continue
            if not answer.is_success:
                raise Failed(f"the coordinator answered {answer.status}: {answer.text}")
            return answer.body

    def exchange(self, written: bytes) -> Answer:
        """Send a prepared request once; return the answer, whatever it is."""
        self.write(written)
        return self.read()

    def write(self, written: bytes) -> None:
        """Send a prepared request, without waiting for its answer."""
        self._socket.sendall(written)

    def ask(self, method: str, path: str, value: Any = None) -> Any:
        """Send a value as JSON; return the value of the answer."""
        body = b"" if value is None else json.dumps(value).encode()
        return json.loads(self.send(request(method, path, body)))

    def close(self) -> None:
        self._socket.close()

    def read(self) -> Answer:
        """Read the next answer."""
        received = self._socket.recv(_READ_SIZE)
        while (end := received.find(_END)) < 0:
            received += self._more()
        head, parts = received[:end].lower(), [received[end + len(_END) :]]
        missing = _content_length(head) - len(parts[0])
        while missing > 0:
            parts.append(self._more())
            missing -= len(parts[-1])
        return Answer(int(head.split(b" ", 2)[1]), head, b"".join(parts))

    def _more(self) -> bytes:
        received = self._socket.recv(_READ_SIZE)
        if not received:
            raise Failed("the coordinator closed a connection in the middle of an answer")
        return received


def _content_length(head: bytes) -> int:
    return int(_header(head, b"content-length") or 0)


def retry_after_s(head: bytes) -> float:
    return float(_header(head, b"retry-after") or 1)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key == name:
            return value.strip()
    return None
