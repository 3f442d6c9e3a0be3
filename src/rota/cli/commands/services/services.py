"""`rota services`: list, show, watch and steer services."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from rota.cli.commands.services.keys import keys
from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.options import yes_flag
from rota.cli.render.output import confirm, is_terminal, note, show, visible
from rota.cli.render.service_tables import (
    bar_lines,
    fence_reasons,
    member_table,
    service_facts,
    service_table,
)
from rota.core import limits
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL
from rota.errors import ServiceNotFound, Unavailable
from rota.messages.shards import MemberView, ServiceChange, ServiceView
from rota.sdk.client import service_calls
from rota.sdk.client.client import Client

NAMES_ASKED = 3  # of the members that a question is about
POLL_S = 0.5  # the largest age of what a watch shows


@click.group(cls=CommandGroup)
def services() -> None:
    """List, show and steer services and their shards."""


@services.command("ls")
@connected
def ls(client: Client, *, as_json: bool) -> None:
    """List the services: how many shards and members, what is unowned, what moves."""
    show(client.run(service_calls.list_services()), as_json=as_json, render=service_table)


@services.command("show")
@click.argument("name")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@connected
def show_one(client: Client, name: str, *, watch: bool, as_json: bool) -> None:
    """Show one service: its members, and the owner of each shard."""
    if watch and as_json:
        raise click.UsageError(
            "--watch cannot be used with --json; poll, or use `rota events --follow`"
        )
    service = client.run(service_calls.get_service(name))
    if watch:
        _watch(client, service)
    elif as_json:
        show(service, as_json=True, render=service_facts)
    else:
        _print(service)


@services.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(1, limits.MAX_SHARDS))
@connected
def pin(client: Client, name: str, count: int, *, as_json: bool) -> None:
    """Set how many shards a service has, whatever its workers register from then on.

    Creates the service if it does not exist. Shards at and above the new number are given up.
    """
    before = _find(client, name)
    change = ServiceChange(shard_count=count, pinned=True)
    service = client.run(service_calls.configure_service(name, change))
    show(service, as_json=as_json, render=lambda one: _pinned_line(one, before))


@services.command()
@click.argument("name")
@connected
def unpin(client: Client, name: str, *, as_json: bool) -> None:
    """Let the workers of a service set its number of shards again."""
    # First, because a change would create a service that does not exist.
    client.run(service_calls.get_service(name))
    service = client.run(service_calls.configure_service(name, ServiceChange(pinned=False)))
    show(service, as_json=as_json, render=_unpinned_line)


@services.command()
@click.argument("name")
@click.argument("worker_id", metavar="WORKER")
@click.option("--undo", is_flag=True, help="Give it shards again.")
@connected
def drain(client: Client, name: str, worker_id: str, *, undo: bool, as_json: bool) -> None:
    """Let a worker give up its shards of a service, and give it no more."""
    service = client.run(service_calls.drain_member(name, worker_id, draining=not undo))
    show(service, as_json=as_json, render=lambda one: _drained_line(one, worker_id))


@services.command()
@click.argument("name")
@click.argument("protocol", type=click.IntRange(OLD_PROTOCOL, PROTOCOL))
@yes_flag
@connected
def require(client: Client, name: str, protocol: int, *, yes: bool, as_json: bool) -> None:
    """Accept only workers that speak this protocol, or a later one.

    Members that speak an older one are evicted at once, and their shards go to others while they
    may still work on them. So this asks first.
    """
    service = client.run(service_calls.get_service(name))
    evicted = [one.worker_id for one in service.members if one.protocol < protocol]
    if evicted and not yes:
        more = ", …" if len(evicted) > NAMES_ASKED else ""
        confirm(f"evict {', '.join(evicted[:NAMES_ASKED])}{more} ({len(evicted)} in all)?")
    change = ServiceChange(min_protocol=protocol)
    service = client.run(service_calls.configure_service(name, change))
    show(service, as_json=as_json, render=lambda one: _required_line(one, len(evicted)))


services.add_command(keys)


def _find(client: Client, name: str) -> ServiceView | None:
    try:
        return client.run(service_calls.get_service(name))
    except ServiceNotFound:
        return None


def _print(service: ServiceView) -> None:
    """Print a service for people: draw_service on a terminal, as plain lines elsewhere."""
    if is_terminal(sys.stdout):
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

        from rota.cli.render.service import draw_service, is_coloured  # noqa: PLC0415

        console = Console()
        console.print(draw_service(service, width=console.width, is_coloured=is_coloured(console)))
        return
    show(service, as_json=False, render=service_facts)
    click.echo()
    for line in bar_lines(service, width=shutil.get_terminal_size().columns):
        click.echo(line)
    click.echo()
    show(service, as_json=False, render=member_table)
    for line in fence_reasons(service.members):
        note(line)


def _watch(client: Client, service: ServiceView) -> None:
    """Redraw a service on a terminal, or print a line per change elsewhere, until Ctrl-C."""
    with _display() as draw:
        while True:
            draw(service)
            time.sleep(POLL_S)
            try:
                service = client.run(service_calls.get_service(service.name))
            except Unavailable as error:
                # The coordinator may be restarting; nothing is lost.
                note(f"no answer: {error.detail}")


@contextmanager
def _display() -> Iterator[Callable[[ServiceView], None]]:
    if not is_terminal(sys.stdout):
        yield ServiceLines().draw
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.render.service import draw_service, is_coloured  # noqa: PLC0415

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def draw(service: ServiceView) -> None:
            drawing = draw_service(
                service,
                width=console.width,
                height=console.height,
                is_coloured=is_coloured(console),
            )
            live.update(drawing, refresh=True)

        yield draw


class ServiceLines:
    """Prints the state of a service whenever it has changed."""

    def __init__(self) -> None:
        self._before = ""

    def draw(self, service: ServiceView) -> None:
        line = (
            f"{visible(service.name)}: generation {service.generation}, {service.shard_count} "
            f"shards, {len(service.members)} members, {service.unowned} unowned, "
            f"{service.moving} moving"
        )
        if line != self._before:
            click.echo(line)
        self._before = line


def _pinned_line(service: ServiceView, before: ServiceView | None) -> str:
    line = f"service {visible(service.name)} has {service.shard_count} shards, pinned"
    if before is None:
        return f"{line}; it is new and has no workers yet"
    if before.shard_count == service.shard_count:
        return line
    return f"{line}; it had {before.shard_count} before"


def _unpinned_line(service: ServiceView) -> str:
    name, count = visible(service.name), service.shard_count
    return f"service {name} has {count} shards; from now on its workers set the number"


def _drained_line(service: ServiceView, worker_id: str) -> str:
    member = _member(service, worker_id)
    name, worker = visible(service.name), visible(worker_id)
    if member is None:
        return f"worker {worker} has left {name}"
    if not member.draining:
        return f"worker {worker} can get shards of {name} again"
    if not member.shards:
        return f"worker {worker} is drained: it has no shards of {name}"
    others = any(not (one.draining or one.fenced) for one in service.members)
    line = f"worker {worker} is draining: it has {len(member.shards)} shards of {name} to give up"
    return line if others else f"{line}; no other member can take them"


def _required_line(service: ServiceView, evicted: int) -> str:
    name = visible(service.name)
    if service.min_protocol < PROTOCOL:
        return f"service {name} accepts any worker"
    line = f"service {name} accepts only workers of protocol {service.min_protocol}"
    if not evicted:
        return line
    return f"{line}; {evicted} {'member was' if evicted == 1 else 'members were'} evicted"


def _member(service: ServiceView, worker_id: str) -> MemberView | None:
    return next((one for one in service.members if one.worker_id == worker_id), None)
