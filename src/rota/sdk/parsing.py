"""What did the server answer? Response bytes in, one `Response` out; no sockets."""

import httptools

from rota.errors import Unavailable
from rota.sdk.transport import Response

MAX_RESPONSE_BYTES = 1024 * 1024 * 1024


class ResponseParser:
    """Reads one response after another from a connection's bytes."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self.has_begun = False
        self.is_reusable = False

    def feed(self, data: bytes) -> Response | None:
        """Take in what arrived; the response, once it is complete."""
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Unavailable(f"what answered does not speak HTTP: {error}") from error
        return self._take() if self._is_complete else None

    def end(self) -> Response | None:
        """The connection has ended; that completes a response without a stated length."""
        is_delimited = {"content-length", "transfer-encoding"} & self._headers.keys()
        if not self._headers or is_delimited:
            return None
        self.is_reusable = False
        return self._take()

    def _take(self) -> Response:
        response = Response(self._parser.get_status_code(), b"".join(self._chunks), self._headers)
        is_reusable = self.is_reusable
        self._begin()
        self.is_reusable = is_reusable
        return response

    # --- what httptools calls -------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_RESPONSE_BYTES:
            raise Unavailable(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes")
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim response; the real one follows
            self._headers = {}
            return
        self._is_complete = True
        self.is_reusable = self._parser.should_keep_alive()
