"""`rota locks`: list, show and release locks."""

from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.options import page_options, yes_flag
from rota.cli.render.formatting import absolute, relative
from rota.cli.render.output import (
    ExitCode,
    Facts,
    Refusal,
    Table,
    confirm,
    show,
    show_page,
    visible,
)
from rota.messages.kv import LockPage, LockRelease, LockView
from rota.sdk.client import kv_calls
from rota.sdk.client.client import Client


@click.group(cls=CommandGroup)
def locks() -> None:
    """List, show and release locks."""


@locks.command("ls")
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List the locks that are held, and how many callers wait for each."""
    page = client.run(kv_calls.list_locks(**selection))
    show_page(page, as_json=as_json, render=_table)


@locks.command("show")
@click.argument("name")
@connected
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show the holder of a lock, and how many callers wait for it."""
    show(client.run(kv_calls.get_lock(name)), as_json=as_json, render=_facts)


@locks.command()
@click.argument("name")
@yes_flag
@connected
def release(client: Client, name: str, *, yes: bool, as_json: bool) -> None:
    """Take a lock away from its holder; the next waiting caller gets it at once.

    The holder learns of it when it renews, and may act under the lock until then. So this asks
    first.
    """
    lock = client.run(kv_calls.get_lock(name))
    if lock.holder is None or lock.fence is None:
        raise Refusal(f"lock {name!r} is not held", code="lock_free", exit_code=ExitCode.FAILED)
    if not yes:
        confirm(f"take lock {name!r} away from {lock.holder!r}, which may still rely on it?")
    # Under the fence that was shown: a caller that got the lock meanwhile keeps it.
    request = LockRelease(owner=lock.holder, fence=lock.fence)
    after = client.run(kv_calls.release_lock(name, request))
    show(after, as_json=as_json, render=_released_line)


def _released_line(lock: LockView) -> str:
    name = visible(lock.name)
    if lock.holder is None:
        return f"lock {name} is free"
    return f"lock {name} was released, and {visible(lock.holder)} has it now"


def _facts(lock: LockView) -> Facts:
    return Facts(
        [
            ("lock", lock.name),
            ("holder", "none" if lock.holder is None else lock.holder),
            ("fence", lock.fence),
            ("expires", absolute(lock.expires_at_ms)),
            ("waiting", lock.waiting),
        ]
    )


def _table(page: LockPage) -> Table:
    return Table(
        ("lock", "holder", "fence", "expires", "waiting"),
        [
            (lock.name, lock.holder, lock.fence, relative(lock.expires_at_ms), lock.waiting)
            for lock in page.items
        ],
        empty="no locks are held",
    )
