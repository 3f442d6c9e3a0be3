"""`rota memory`: list, get, put and delete values of the key-value store."""

import sys
from collections.abc import Callable
from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.inputs import json_value
from rota.cli.options import duration_option, page_options
from rota.cli.render.formatting import relative
from rota.cli.render.output import Table, is_terminal, show, show_page, table, visible
from rota.core import limits
from rota.messages.kv import MemoryDeleted, MemoryPage, MemoryPut, MemoryView
from rota.sdk.client import kv_calls
from rota.sdk.client.client import Client

SHOWN_LENGTH = 60  # of a value in a list; `get` prints it whole

if_version_option = click.option(
    "--if-version",
    type=click.IntRange(min=0),
    help="Only if this is still the version of the key; 0: only if it has no value.",
)


@click.group(cls=CommandGroup)
def memory() -> None:
    """List, get, put and delete values."""


@memory.command("ls")
@click.option("--prefix", help="Only keys with this prefix.")
@click.option("--pattern", help="Only keys that match: * stands for any text, ? for one character.")
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List keys and values, in the order of keys."""
    page = client.run(kv_calls.list_values(**selection))
    show_page(page, as_json=as_json, render=_table)


@memory.command()
@click.argument("key")
@connected
def get(client: Client, key: str, *, as_json: bool) -> None:
    """Print the value of a key, as JSON; with --json also its version and times."""
    show(client.run(kv_calls.get_value(key)), as_json=as_json, render=_value)


@memory.command()
@click.argument("key")
@click.argument("value")
@duration_option(
    "--ttl",
    "--ttl-ms",
    least_ms=1,
    most_ms=limits.MAX_MEMORY_TTL_MS,
    description="Delete it after this time, as 1h.  [default: never]",
)
@if_version_option
@connected
def put(
    client: Client,
    key: str,
    value: str,
    ttl_ms: int | None,
    if_version: int | None,
    *,
    as_json: bool,
) -> None:
    """Store a value under a key. VALUE is JSON, @FILE, or - for stdin."""
    given = json_value("VALUE", value)
    assert given is not None
    request = MemoryPut(value=given, ttl_ms=ttl_ms, if_version=if_version)
    show(client.run(kv_calls.put_value(key, request)), as_json=as_json, render=_stored_line)


@memory.command()
@click.argument("key")
@if_version_option
@connected
def delete(client: Client, key: str, if_version: int | None, *, as_json: bool) -> None:
    """Delete the value of a key."""
    call = kv_calls.delete_value(key, if_version=if_version)
    show(client.run(call), as_json=as_json, render=_deleted_line)


def _value(entry: MemoryView) -> str:
    text = bytes(entry.value).decode()
    # Another program gets it unchanged.
    return visible(text) if is_terminal(sys.stdout) else text


def _stored_line(entry: MemoryView) -> str:
    line = f"stored {visible(entry.key)}, version {entry.version}"
    if entry.expires_at_ms is None:
        return line
    return f"{line}, expires {relative(entry.expires_at_ms, now_ms=entry.updated_at_ms)}"


def _deleted_line(gone: MemoryDeleted) -> str:
    return f"deleted {visible(gone.key)}, version {gone.version}"


def _table(page: MemoryPage) -> Table:
    columns: dict[str, Callable[[MemoryView], object]] = {
        "key": lambda entry: entry.key,
        "version": lambda entry: entry.version,
        "updated": lambda entry: relative(entry.updated_at_ms),
        "expires": lambda entry: relative(entry.expires_at_ms),
        "value": lambda entry: _short(bytes(entry.value).decode()),
    }
    return table(page.items, columns, empty="no values")


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= SHOWN_LENGTH else one_line[: SHOWN_LENGTH - 1] + "…"
