"""Parses the answer to one request, within its limits."""

from email.utils import parsedate_to_datetime

import httptools
from msgspec import Struct

from rota.core import limits

SAID_BYTES = 200  # of the body of a failed answer, in its problem


class OutboundAnswer(Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]  # by lower-case name; of a repeated one the last
    body: bytes
    is_cut: bool  # the body was longer than the caller wanted to read


class BadAnswer(Exception):  # noqa: N818 - read at the raise site
    """The server's answer is not HTTP, or is over a limit."""


class AnswerParser:
    """Takes the bytes of one answer until it is complete or long enough."""

    def __init__(self, *, max_body_bytes: int) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._most = max_body_bytes
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._head_bytes = 0
        self._has_head = False
        self._is_cut = False
        self._is_complete = False

    def feed(self, data: bytes) -> OutboundAnswer | None:
        """Parse more bytes; returns the answer once it is complete, or its body is cut."""
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BadAnswer("the server wants to change the protocol") from None
        except httptools.HttpParserError as error:
            raise BadAnswer(f"the server's answer is not HTTP: {error}") from None
        if not self._has_head and self._head_bytes > limits.MAX_OUTBOUND_HEAD_BYTES:
            raise BadAnswer(
                f"the head of the answer is over {limits.MAX_OUTBOUND_HEAD_BYTES} bytes"
            )
        return self._answer() if self._is_complete or self._is_cut else None

    def end(self) -> OutboundAnswer:
        """The end of the connection, which completes an answer without a stated length."""
        is_delimited = {"content-length", "transfer-encoding"} & self._headers.keys()
        if not self._has_head or is_delimited:
            raise BadAnswer("the server closed the connection before the end of its answer")
        return self._answer()

    def _answer(self) -> OutboundAnswer:
        return OutboundAnswer(
            status=self._parser.get_status_code(),
            headers=self._headers,
            body=bytes(self._body),
            is_cut=self._is_cut,
        )

    # --- callbacks of httptools -----------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._has_head = True

    def on_body(self, body: bytes) -> None:
        room = self._most - len(self._body)
        self._body += body[:room]
        self._is_cut = self._is_cut or len(body) > room

    def on_message_complete(self) -> None:
        if self._has_head:
            self._is_complete = True
        else:
            self._headers = {}  # of an interim answer; the final one follows


def retry_after_ms(answer: OutboundAnswer, *, now_ms: int) -> int | None:
    """How long the server asks to be left alone; None: it does not say so."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000
    try:
        at_s = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return max(0, round(at_s * 1000) - now_ms)


def problem_of(answer: OutboundAnswer) -> str | None:
    """What is wrong with an answer; None: it is a success."""
    if 200 <= answer.status < 300:
        return None
    text = f"answered {answer.status}"
    if 300 <= answer.status < 400:
        return f"{text}: redirects are not followed; store the URL that it leads to"
    said = " ".join(answer.body[:SAID_BYTES].decode("utf-8", "replace").split())
    shown = "".join(one for one in said if one.isprintable())
    return f"{text}: {shown}" if shown else text
