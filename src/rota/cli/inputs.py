"""Arguments that are more than a text: JSON (inline, `@FILE`, or `-` for stdin), labels, limits."""

import re
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Raw

from rota.core.schedules.durations import UNITS_MS, milliseconds
from rota.errors import Invalid

_RATE = re.compile(r"(\d+)/(\d*)(ms|s|m|h|d)")


class Milliseconds(click.ParamType[int]):
    """A time of an option in milliseconds: a number of them, or a text such as `30s`."""

    name = "time"

    def __init__(self, *, min: int = 0, max: int | None = None) -> None:  # noqa: A002 - as click has them
        self._range = click.IntRange(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            try:
                value = milliseconds(value, "it")
            except Invalid as error:
                self.fail(error.detail.removeprefix("it: "), param, ctx)
        return int(self._range.convert(value, param, ctx))


class WrittenDuration(click.ParamType[int]):
    """A time with its unit, in milliseconds: `30s`, `5m`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return milliseconds(value, "it")
        except Invalid as error:
            self.fail(error.detail.removeprefix("it: "), param, ctx)


def json_value(option: str, given: str | None) -> Raw | None:
    """The value of an option that takes JSON; None when it was not given."""
    if given is None:
        return None
    text = _text(option, given)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{option} is not JSON: {error}") from error
    return Raw(text)


def _text(option: str, given: str) -> bytes:
    if given == "-":
        return sys.stdin.read().encode()
    if not given.startswith("@"):
        return given.encode()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{option}: {given[1:]} cannot be read: {error.strerror}") from error


def file_text(path: str) -> str:
    """The text of a file, or of stdin."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text") from error


def labels_of(given: tuple[str, ...]) -> dict[str, str] | list[str]:
    """Labels are a mapping when each is a pair, and a list of words otherwise."""
    pairs = [label.partition("=") for label in given]
    if all(sign for _, sign, _ in pairs):
        return {key: value for key, _, value in pairs}
    return list(given)


def headers_of(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise click.UsageError(f"{option}: give a name and a value, as NAME=VALUE")
    return {name: value for name, _, value in pairs}


# --- limits ---------------------------------------------------------------------------------------


def limit_or_rate(option: str, given: str) -> tuple[int, int | None]:
    """A number, or a number with a period in milliseconds: `3`, `10/1s`, `600/m`."""
    if given.isascii() and given.isdigit():
        return int(given), None
    return rate(option, given)


def rate(option: str, given: str) -> tuple[int, int]:
    """A number and a period in milliseconds: `10/1s`, `600/m`, `5/500ms`."""
    found = _RATE.fullmatch(given)
    if found is None:
        raise click.UsageError(
            f"{option}: {given!r} is not a rate; write it as 10/1s, 600/m or 5/500ms"
        )
    limit, count, unit = found.groups()
    return int(limit), int(count or 1) * UNITS_MS[unit]


def duration_ms(option: str, given: str) -> int:
    """A time in milliseconds: `30s`, `5m`, `1500ms`."""
    try:
        return milliseconds(given, option)
    except Invalid as error:
        raise click.UsageError(error.detail) from None


def concurrency_fields(option: str, given: str) -> dict[str, Any]:
    """A concurrency limit: `KEY=LIMIT`, `KEY` for one at a time, or JSON."""
    if given.startswith("{"):
        return _json_fields(option, given)
    key, sign, limit = given.rpartition("=")
    if not sign:
        return {"key": given}
    if not (limit.isascii() and limit.isdigit()):
        raise click.UsageError(f"{option}: {limit!r} is not a number; write it as KEY=LIMIT")
    return {"key": key, "limit": int(limit)}


def rate_fields(option: str, given: str) -> dict[str, Any]:
    """A rate limit: `KEY=LIMIT/PERIOD`, or JSON."""
    if given.startswith("{"):
        return _json_fields(option, given)
    key, _, value = given.rpartition("=")
    limit, per_ms = rate(option, value)
    return {"key": key, "limit": limit, "per_ms": per_ms}


def _json_fields(option: str, given: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} is not JSON: {error}") from error
