"""Who has which lock? List and show locks, and release one whose owner will not."""

import sys
from typing import Any

import click

from rota.cli.connection import connected
from rota.cli.options import json_flag, page_options, yes_flag
from rota.cli.output import ExitCode, Facts, Refusal, Table, is_terminal, note_more, show, visible
from rota.cli.times import absolute, relative
from rota.messages.keeping import LockPage, LockRelease, LockView
from rota.sdk import keeping_calls
from rota.sdk.client import Client


@click.group()
def locks() -> None:
    """List, show and release locks."""


@locks.command("ls")
@page_options
@connected
@json_flag
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List the locks that somebody has, and how many wait for each."""
    page = client.run(keeping_calls.list_locks(**selection))
    show(page, as_json=as_json, render=_table)
    if not as_json:
        note_more(page.next_cursor)


@locks.command("show")
@click.argument("name")
@connected
@json_flag
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show who has a lock, and how many wait for it."""
    show(client.run(keeping_calls.get_lock(name)), as_json=as_json, render=_facts)


@locks.command()
@click.argument("name")
@yes_flag
@connected
@json_flag
def release(client: Client, name: str, *, yes: bool, as_json: bool) -> None:
    """Take a lock away from whoever has it now; the next in line has it at once.

    Its owner hears of that when it renews, and may act as if it had the lock until then. So this
    asks first.
    """
    lock = client.run(keeping_calls.get_lock(name))
    if lock.holder is None or lock.fence is None:
        raise Refusal(f"nobody has lock {name!r}", code="lock_free", ends_with=ExitCode.FAILED)
    if not yes:
        _confirm(f"take lock {name!r} away from {lock.holder!r}, which may be at work?")
    # Under the fence that was shown: somebody who got it meanwhile keeps it.
    request = LockRelease(owner=lock.holder, fence=lock.fence)
    after = client.run(keeping_calls.release_lock(name, request))
    show(after, as_json=as_json, render=_released_line)


def _confirm(question: str) -> None:
    if not is_terminal(sys.stdin):
        raise click.UsageError("nobody is there to confirm; give --yes")
    if not click.confirm(visible(question), err=True):
        raise Refusal("nothing was changed", code="not_confirmed")


def _released_line(lock: LockView) -> str:
    name = visible(lock.name)
    if lock.holder is None:
        return f"lock {name} is free"
    return f"lock {name} was released, and {visible(lock.holder)} has it now"


def _facts(lock: LockView) -> Facts:
    return Facts(
        [
            ("lock", lock.name),
            ("holder", "nobody" if lock.holder is None else lock.holder),
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
        empty="nobody has a lock",
    )
