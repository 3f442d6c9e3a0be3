"""What did the caller send, and is it what we take?

Bodies are JSON whatever their content type says. Values that only workers understand (payloads,
results, progress) stay undecoded bytes; `rota.core.values` checks them for size and depth.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import msgspec
from msgspec import Raw
from starlette.types import Receive

from rota.core.values import too_deep
from rota.errors import Invalid, Malformed, TooLarge

BODY_TIMEOUT_S = 60.0

_PLACE = re.compile(r"^(?P<text>.*) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)
_FIELD = re.compile(r"(?:unknown|required) field `(?P<field>.*?)`$", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\]")


class ClientGone(Exception):  # noqa: N818 - nothing is wrong; there is nobody to answer
    """The caller hung up."""


async def read_body(receive: Receive, *, declared: bytes | None, most: int) -> bytes:
    """Take the whole body, and stop reading as soon as it is over the limit."""
    if declared is not None and declared.isdigit() and int(declared) > most:
        _refuse_size(most)
    message = await receive()
    if not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise ClientGone
        if len(body) > most:
            _refuse_size(most)
        return body
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read_rest(receive, message["body"], most)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None


async def _read_rest(receive: Receive, first: bytes, most: int) -> bytes:
    chunks, size, more = [first], len(first), True
    while more and size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        more = message.get("more_body", False)
    if size > most:
        _refuse_size(most)
    return b"".join(chunks)


async def body_in_pieces(
    receive: Receive, *, declared: bytes | None, most: int, setting: str
) -> AsyncIterator[bytes]:
    """A body as it comes; each piece in time, and all of them within the limit."""
    if declared is not None and declared.isdigit() and int(declared) > most:
        _refuse_size(most, setting)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                message = await receive()
        except TimeoutError:
            raise Malformed(f"the body stopped for {BODY_TIMEOUT_S:.0f} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > most:
            _refuse_size(most, setting)
        yield piece
        more = message.get("more_body", False)


def _refuse_size(most: int, setting: str = "max_body_bytes") -> NoReturn:
    raise TooLarge(f"the body is over {most} bytes", limit=most, setting=setting)


def decode_text(body: bytes) -> str:
    _refuse_broken_text(body)
    return body.decode()


def decode(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Read a body, or say what is wrong with it and where."""
    if not body.isascii():
        # Values kept as bytes are not looked into by the decoder.
        _refuse_broken_text(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise Malformed(str(error) if body else "a JSON body is needed") from None
    except UnicodeError:
        raise Malformed("the body is not valid UTF-8") from None
    except RecursionError:
        raise too_deep("body") from None


def _refuse_broken_text(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not valid UTF-8 (byte {error.start})") from None


def invalid(message: str) -> Invalid:
    """Turn a validation message into an error that names the field, its path and index."""
    place = _PLACE.match(message)
    text, path = (place["text"], place["path"]) if place else (message, "")
    named = _FIELD.search(text)
    if named:
        path = f"{path}.{named['field']}"
    path = path.removeprefix(".")
    facts: dict[str, Any] = {}
    if path:
        fields = [part for part in _INDEX.sub("", path).replace("[...]", "").split(".") if part]
        facts = {"field": named["field"] if named else (fields[-1] if fields else path)}
        facts["path"] = path
        index = _INDEX.search(path)
        if index:
            facts["index"] = int(index[1])
    return Invalid(f"{path}: {text}" if path else text, **facts)


def invalid_field(field: str, text: str, *, index: int | None = None) -> Invalid:
    """An error of ours in the same form as those of the decoder."""
    if index is None:
        return Invalid(f"{field}: {text}", field=field, path=field)
    path = f"[{index}].{field}"
    return Invalid(f"{path}: {text}", field=field, path=path, index=index)


def is_null(value: Raw | None) -> bool:
    """Whether a value was left out, or is there and says null."""
    return value is None or (len(value) == 4 and bytes(value) == b"null")
