"""What is kept under which key? Look values up, put and delete them."""

import sys
from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.inputs import json_value
from rota.cli.options import json_flag, page_options
from rota.cli.output import Table, is_terminal, note_more, show, visible
from rota.cli.times import relative
from rota.core import limits
from rota.messages.keeping import MemoryDeleted, MemoryPage, MemoryPut, MemoryView
from rota.sdk import keeping_calls
from rota.sdk.client import Client

SHOWN_LENGTH = 60  # of a value in a list; `get` has it whole

if_version_option = click.option(
    "--if-version",
    type=click.IntRange(min=0),
    help="Only if the key has this version still; 0: only if it has no value.",
)


@click.group()
def memory() -> None:
    """List, get, put and delete values."""


@memory.command("ls")
@click.option("--prefix", help="Only keys that begin so.")
@click.option("--pattern", help="Only keys that match as a whole: * any text, ? one character.")
@page_options
@connected
@json_flag
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List keys and values, in the order of keys."""
    page = client.run(keeping_calls.list_values(**selection))
    show(page, as_json=as_json, render=_table)
    if not as_json:
        note_more(page.next_cursor)


@memory.command()
@click.argument("key")
@connected
@json_flag
def get(client: Client, key: str, *, as_json: bool) -> None:
    """Print the value of a key, as JSON; with --json also its version and times."""
    show(client.run(keeping_calls.get_value(key)), as_json=as_json, render=_value)


@memory.command()
@click.argument("key")
@click.argument("value")
@click.option(
    "--ttl-ms",
    type=click.IntRange(1, limits.MAX_MEMORY_TTL_MS),
    help="Keep it for so long.  [default: for ever]",
)
@if_version_option
@connected
@json_flag
def put(
    client: Client,
    key: str,
    value: str,
    ttl_ms: int | None,
    if_version: int | None,
    *,
    as_json: bool,
) -> None:
    """Keep a value under a key. VALUE is JSON, @FILE, or - for stdin."""
    given = json_value("VALUE", value)
    assert given is not None
    request = MemoryPut(value=given, ttl_ms=ttl_ms, if_version=if_version)
    show(client.run(keeping_calls.put_value(key, request)), as_json=as_json, render=_kept_line)


@memory.command()
@click.argument("key")
@if_version_option
@connected
@json_flag
def delete(client: Client, key: str, if_version: int | None, *, as_json: bool) -> None:
    """Forget the value of a key."""
    call = keeping_calls.delete_value(key, if_version=if_version)
    show(client.run(call), as_json=as_json, render=_deleted_line)


def _value(entry: MemoryView) -> str:
    text = bytes(entry.value).decode()
    # To another program as it is: what looks odd to a person may be meant.
    return visible(text) if is_terminal(sys.stdout) else text


def _kept_line(entry: MemoryView) -> str:
    line = f"kept {visible(entry.key)}, version {entry.version}"
    if entry.expires_at_ms is None:
        return line
    return f"{line}, gone {relative(entry.expires_at_ms, now_ms=entry.updated_at_ms)}"


def _deleted_line(gone: MemoryDeleted) -> str:
    return f"deleted {visible(gone.key)}, version {gone.version}"


def _table(page: MemoryPage) -> Table:
    return Table(
        ("key", "version", "updated", "expires", "value"),
        [
            (
                entry.key,
                entry.version,
                relative(entry.updated_at_ms),
                relative(entry.expires_at_ms),
                _short(bytes(entry.value).decode()),
            )
            for entry in page.items
        ],
        empty="no values",
    )


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= SHOWN_LENGTH else one_line[: SHOWN_LENGTH - 1] + "…"
