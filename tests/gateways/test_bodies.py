import asyncio
import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core import limits
from rota.core.tasks.model import NewTask
from rota.core.tasks.values import check_value, is_deeper_than
from rota.errors import Invalid, Malformed, RequestTimeout, TooLarge
from rota.gateways.http.routing import bodies
from rota.gateways.http.routing.bodies import ClientGone, decode, read_body
from rota.gateways.validation import invalid, is_null

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
decoder = msgspec.json.Decoder(list[NewTask] | NewTask)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(JSON, st.integers(0, 6))
@example({"a[{": ['"[', '\\"[[[']}, 2)
@example(["\\", ["]"]], 1)
def test_depth_is_measured_without_building_the_value(value: Any, most: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()

    assert is_deeper_than(most, text) == (depth(value) > most)


def test_depth_of_a_large_flat_value_is_found_quickly() -> None:
    assert not is_deeper_than(limits.MAX_JSON_DEPTH, b"[" + b"[],{}," * 200_000 + b"0]")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_task_or_a_refusal(body: bytes) -> None:
    with suppress(Invalid):
        decode(body, decoder)


@given(JSON)
def test_any_json_is_a_task_or_a_refusal(value: Any) -> None:
    with suppress(Invalid):
        decode(json.dumps(value).encode(), decoder)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b'{"name": "x"} more',
        b'{"name": "\xff"}',
        b'{"payload": "\xff"}',
        b"\x00",
    ],
)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(body, decoder)


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        ("Expected `int`, got `str`", {}),
        ("Expected `int`, got `str` - at `$.a`", {"field": "a", "path": "a"}),
        (
            "Expected `int`, got `str` - at `$.tasks[3].name`",
            {"field": "name", "path": "tasks[3].name", "index": 3},
        ),
        (
            "Object contains unknown field `b` - at `$[1]`",
            {"field": "b", "path": "[1].b", "index": 1},
        ),
        ("Object missing required field `name`", {"field": "name", "path": "name"}),
        (
            "Expected `str`, got `int` - at `$.labels[...]`",
            {"field": "labels", "path": "labels[...]"},
        ),
        (
            "Expected `str` of length >= 1 - at `key` in `$.labels`",
            {"field": "labels", "path": "labels"},
        ),
        ("Object contains unknown field `a.b`", {"field": "a.b", "path": "a.b"}),
        ("Object contains unknown field `a\n` - at `$.x`", {"field": "a\n", "path": "x.a\n"}),
    ],
)
def test_a_validation_message_becomes_a_field_a_path_and_an_index(
    message: str, facts: dict[str, Any]
) -> None:
    assert invalid(message).facts == facts


def test_a_value_is_checked_for_size_and_depth() -> None:
    check_value(Raw(b"[" * 64 + b"]" * 64), "payload", most_bytes=128)

    with pytest.raises(TooLarge) as large:
        check_value(Raw(b"[" * 64 + b"]" * 64), "payload", most_bytes=127)
    with pytest.raises(Invalid) as deep:
        check_value(Raw(b"[" * 65 + b"]" * 65), "payload", most_bytes=1_000)

    assert large.value.facts["field"] == "payload"
    assert (deep.value.facts["field"], deep.value.facts["limit"]) == ("payload", 64)


def test_null_and_nothing_are_the_same() -> None:
    assert is_null(None)
    assert is_null(Raw(b"null"))
    assert not is_null(Raw(b"0"))
    assert not is_null(Raw(b"true"))


async def test_a_caller_that_hangs_up_in_the_middle_is_gone() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    with pytest.raises(ClientGone):
        await read_body(receive, declared=None, most=100)


async def test_a_body_that_never_ends_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.0)
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    with pytest.raises(RequestTimeout, match="did not arrive"):
        await read_body(receive, declared=None, most=100)


async def test_a_body_that_never_begins_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.0)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RequestTimeout, match="did not arrive"):
        await read_body(receive, declared=None, most=100)


async def test_a_body_that_begins_late_is_read_whole() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}", "more_body": False},
    ]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return messages.pop(0)

    assert await read_body(receive, declared=None, most=100) == b"{}"
