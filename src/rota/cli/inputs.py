"""JSON arguments: inline, as `@FILE`, or as `-` for stdin."""

import sys
from pathlib import Path

import click
import msgspec
from msgspec import Raw


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
