"""`rota limits`: list, show, set, pin and unpin limits of keys."""

from collections.abc import Callable
from typing import Any, get_args

import click

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.inputs import limit_or_rate
from rota.cli.options import page_options
from rota.cli.render.formatting import absolute, rate_text, relative
from rota.cli.render.output import Facts, Table, show, show_page, table, visible
from rota.core.flows.model import LimitKind, RateMode
from rota.core.limits import MAX_RATE
from rota.messages.limits import KeyLimitDeleted, KeyLimitPage, KeyLimitPut, KeyLimitView
from rota.sdk.client import limit_calls
from rota.sdk.client.client import Client


@click.group(cls=CommandGroup)
def limits() -> None:
    """List, show, set, pin and unpin limits of keys."""


@limits.command("ls")
@click.option("--kind", type=click.Choice(get_args(LimitKind)), help="Only limits of this kind.")
@click.option("--prefix", help="Only keys with this prefix.")
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List limits, with what runs and waits, in the order of their keys."""
    page = client.run(limit_calls.list_limits(**selection))
    show_page(page, as_json=as_json, render=_table)


@limits.command("show")
@click.argument("key")
@connected
def show_one(client: Client, key: str, *, as_json: bool) -> None:
    """Show one limit."""
    show(client.run(limit_calls.get_limit(key)), as_json=as_json, render=_facts)


@limits.command("set")
@click.argument("key")
@click.argument("value", metavar="LIMIT|LIMIT/PERIOD")
@click.option("--burst", type=click.IntRange(1, MAX_RATE), help="Starts of a rate at once.")
@click.option("--mode", type=click.Choice(get_args(RateMode)), help="How a rate counts.")
@connected
def set_one(
    client: Client,
    key: str,
    value: str,
    *,
    burst: int | None,
    mode: RateMode | None,
    as_json: bool,
) -> None:
    """Set a limit, and pin it: tasks no longer change it.

    LIMIT alone is how many tasks of the key run at once, 0 pauses the key. LIMIT/PERIOD, such as
    10/1s or 600/m, is a rate of starts. A rate that a handler has closed is open again.
    """
    limit, per_ms = limit_or_rate("LIMIT", value)
    request = KeyLimitPut(limit=limit, per_ms=per_ms, burst=burst, mode=mode)
    show(client.run(limit_calls.put_limit(key, request)), as_json=as_json, render=_line)


@limits.command()
@click.argument("key")
@connected
def pin(client: Client, key: str, *, as_json: bool) -> None:
    """Pin a limit at its value: tasks no longer change it."""
    show(client.run(limit_calls.put_limit(key, KeyLimitPut())), as_json=as_json, render=_line)


@limits.command()
@click.argument("key")
@connected
def unpin(client: Client, key: str, *, as_json: bool) -> None:
    """Unpin a limit: the value that tasks declared last counts again."""
    show(client.run(limit_calls.delete_limit(key)), as_json=as_json, render=_unpinned_line)


def _unpinned_line(deleted: KeyLimitDeleted) -> str:
    if deleted.limit is None:
        return f"limit {visible(deleted.key)} is forgotten: no task names it"
    return _line(deleted.limit)


def _line(limit: KeyLimitView) -> str:
    pinned = "pinned" if limit.pinned else "not pinned"
    return f"limit {visible(limit.key)} is {_value(limit)}, {pinned}"


def _value(limit: KeyLimitView) -> str:
    if limit.per_ms is None:
        return str(limit.limit)
    return rate_text(limit.limit, limit.per_ms)


def _facts(limit: KeyLimitView) -> Facts:
    facts: list[tuple[str, object]] = [
        ("key", limit.key),
        ("kind", limit.kind),
        ("limit", _value(limit)),
    ]
    if limit.kind == "rate":
        facts += [
            ("burst", limit.burst),
            ("mode", limit.mode),
            ("opens", absolute(limit.opens_at_ms) or "open"),
        ]
    else:
        facts.append(("running", limit.running))
    facts += [("waiting", limit.waiting), ("pinned", "yes" if limit.pinned else "no")]
    return Facts(facts)


def _table(page: KeyLimitPage) -> Table:
    columns: dict[str, Callable[[KeyLimitView], object]] = {
        "key": lambda limit: limit.key,
        "kind": lambda limit: limit.kind,
        "limit": _value,
        "running": lambda limit: limit.running if limit.kind == "concurrency" else "-",
        "waiting": lambda limit: limit.waiting,
        "opens": lambda limit: relative(limit.opens_at_ms),
        "pinned": lambda limit: "yes" if limit.pinned else "no",
    }
    return table(page.items, columns, empty="no limits")
