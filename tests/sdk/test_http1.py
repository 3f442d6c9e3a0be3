"""Responses out of bytes, however they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Unavailable
from rota.sdk.transport.http1 import HEADS_KEPT, ResponseParser
from rota.sdk.transport.transport import Response

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n"


def responses(parser: ResponseParser, *pieces: bytes) -> list[Response]:
    found = [parser.feed(piece) for piece in pieces]
    return [one for one in found if one is not None]


def test_a_head_that_came_before_means_the_same_again() -> None:
    parser = ResponseParser()

    first, second, third = responses(parser, OK + b"1234", OK + b"5678", OK + b"null")

    assert (first.status, first.body) == (200, b"1234")
    assert (second.status, second.body) == (200, b"5678")
    assert third == Response(
        200, b"null", {"content-type": "application/json", "content-length": "4"}
    )
    assert parser.is_reusable


def test_who_changes_the_headers_of_one_response_does_not_change_the_next() -> None:
    parser = ResponseParser()
    _, second = responses(parser, OK + b"1234", OK + b"5678")
    assert isinstance(second.headers, dict)

    second.headers.clear()

    (third,) = responses(parser, OK + b"9999")
    assert third.headers["content-length"] == "4"


@given(st.lists(st.integers(1, 60), max_size=12))
def test_a_known_head_is_no_excuse_for_a_body_that_has_not_arrived(cuts: list[int]) -> None:
    parser = ResponseParser()
    responses(parser, OK + b"1234")
    whole = OK + b"5678"
    pieces, rest = [], whole
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    pieces.append(rest)

    found = responses(parser, *[piece for piece in pieces if piece])

    assert [(one.status, one.body) for one in found] == [(200, b"5678")]


def test_a_connection_that_is_to_be_closed_is_so_each_time() -> None:
    parser = ResponseParser()
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"

    for _ in range(2):
        (response,) = responses(parser, head + b"{}")

        assert response.body == b"{}"
        assert not parser.is_reusable


def test_chunks_are_put_together_each_time_whatever_came_before() -> None:
    parser = ResponseParser()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

    for body in (b"ab", b"cd"):
        (response,) = responses(parser, head + b"2\r\n" + body + b"\r\n0\r\n\r\n")

        assert response.body == body


def test_an_interim_response_is_not_taken_for_the_head_of_the_next_one() -> None:
    parser = ResponseParser()
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    for body in (b"1234", b"5678"):
        (response,) = responses(parser, interim + OK + body)

        assert (response.status, response.body) == (200, body)


def test_more_heads_than_are_kept_are_all_read() -> None:
    parser = ResponseParser()

    for number in range(2 * HEADS_KEPT):
        head = b"HTTP/1.1 200 OK\r\nx-number: %d\r\ncontent-length: 1\r\n\r\n" % number
        (response,) = responses(parser, head + b"1")

        assert response.headers["x-number"] == str(number)


def test_what_is_not_http_is_said_to_be_so() -> None:
    with pytest.raises(Unavailable, match="the answer is not HTTP"):
        ResponseParser().feed(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
