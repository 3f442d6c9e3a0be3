"""A relay between a worker and its coordinator that records what both say.

It passes every byte on unchanged, and reads along: HTTP messages, and after an upgrade the packed
envelopes of the stream.
"""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec

from rota.messages.frames import FrameReader

CHUNK = 65_536
WAIT_S = 30.0
MOST_FRAME_BYTES = 16 * 1024 * 1024
# Sent at times that the transcript does not determine.
UNRECORDED = frozenset({"SessionEstablished", "stream_beat", "stream_beatResponse"})


class Said(NamedTuple):
    """One message: `worker` or `coordinator`, its request line, status or type, and its content."""

    by: str
    what: str
    payload: Any


class _HttpReader:
    """Reads the HTTP messages of one direction, until the connection is upgraded."""

    def __init__(self, by: str, note: Callable[[Said], None]) -> None:
        self._by = by
        self._note = note
        self._is_worker = by == "worker"
        self._target = b""
        self._body = b""
        self._parser: Any
        self._frames: FrameReader | None = None
        if self._is_worker:
            self._parser = httptools.HttpRequestParser(self)
        else:
            self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        if self._frames is None:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._frames = FrameReader(is_masked=self._is_worker, most_bytes=MOST_FRAME_BYTES)
        if self._frames is None:
            return
        for piece in self._frames.feed(data):
            if piece.message is not None:
                self._note_envelope(msgspec.msgpack.decode(piece.message))

    def _note_envelope(self, envelope: dict[str, Any]) -> None:
        if envelope["type"] not in UNRECORDED:
            payload = _readable(envelope.get("payload"))
            self._note(Said(self._by, envelope["type"], payload))

    # --- called by the parser -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._is_worker:
            path = self._target.decode().partition("?")[0]
            what = f"{self._parser.get_method().decode()} {path}"
        else:
            what = str(self._parser.get_status_code())
        if what not in {"GET /ws", "101"}:
            payload = msgspec.json.decode(self._body) if self._body else None
            self._note(Said(self._by, what, payload))


def _readable(value: Any) -> Any:
    """A value in which JSON texts in binary fields are `{"json": …}`."""
    if isinstance(value, bytes):
        return {"json": msgspec.json.decode(value)}
    if isinstance(value, list):
        return [_readable(one) for one in value]
    if isinstance(value, dict):
        return {name: _readable(one) for name, one in value.items()}
    return value


class RecordingRelay:
    """Serves on a free port; `next` gives what was said, in the order in which it passed."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url).hostname, urlsplit(url).port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._said: queue.Queue[Said] = queue.Queue()
        threading.Thread(target=self._accept, name="test-recording", daemon=True).start()

    def next(self) -> Said:
        return self._said.get(timeout=WAIT_S)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            up = threading.Thread(target=self._pass, args=(client, server, "worker"), daemon=True)
            up.start()
            self._pass(server, client, "coordinator")
            up.join()

    def _pass(self, source: socket.socket, sink: socket.socket, by: str) -> None:
        reader = _HttpReader(by, self._said.put)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                reader.feed(data)  # before the other side can answer
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def recording(url: str) -> Iterator[RecordingRelay]:
    relay = RecordingRelay(url)
    try:
        yield relay
    finally:
        relay.close()
