"""Whose are the shards? List and show services, and steer them."""

import shutil
import sys

import click

from rota.cli.connection import connected
from rota.cli.options import json_flag, yes_flag
from rota.cli.output import Refusal, is_terminal, note, show, visible
from rota.cli.service_keys import keys
from rota.cli.service_tables import (
    fences,
    member_table,
    service_facts,
    service_table,
    strip_lines,
)
from rota.core import limits
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL
from rota.errors import ServiceNotFound
from rota.messages.shards import MemberView, ServiceChange, ServiceView
from rota.sdk import service_calls
from rota.sdk.client import Client

NAMES_ASKED = 3  # told when somebody is asked, of the members that are meant


@click.group()
def services() -> None:
    """List, show and steer services and their shards."""


@services.command("ls")
@connected
@json_flag
def ls(client: Client, *, as_json: bool) -> None:
    """List the services: how many shards and members, what is unowned, what moves."""
    show(client.run(service_calls.list_services()), as_json=as_json, render=service_table)


@services.command("show")
@click.argument("name")
@click.option("--watch", is_flag=True, help="Show it anew whenever it changes, until Ctrl-C.")
@connected
@json_flag
def show_one(client: Client, name: str, *, watch: bool, as_json: bool) -> None:
    """Show one service: its members, and whose each shard is."""
    if watch and as_json:
        raise click.UsageError("--watch is for people; programs ask again with --json")
    service = client.run(service_calls.get_service(name))
    if watch:
        from rota.cli.service_watching import watch as begin  # noqa: PLC0415 - rarely needed

        begin(client, service)
    elif as_json:
        show(service, as_json=True, render=service_facts)
    else:
        _print(service)


@services.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(1, limits.MAX_SHARDS))
@connected
@json_flag
def pin(client: Client, name: str, count: int, *, as_json: bool) -> None:
    """Set how many shards a service has, whatever its workers say from then on.

    A service that is not there yet is made. Shards at and above the new number are given up.
    """
    before = _find(client, name)
    change = ServiceChange(shard_count=count, pinned=True)
    service = client.run(service_calls.configure_service(name, change))
    show(service, as_json=as_json, render=lambda one: _pinned_line(one, before))


@services.command()
@click.argument("name")
@connected
@json_flag
def unpin(client: Client, name: str, *, as_json: bool) -> None:
    """Let the workers of a service say again how many shards it has."""
    # Asked first, since a change would make a service that is not there.
    client.run(service_calls.get_service(name))
    service = client.run(service_calls.configure_service(name, ServiceChange(pinned=False)))
    show(service, as_json=as_json, render=_unpinned_line)


@services.command()
@click.argument("name")
@click.argument("worker_id", metavar="WORKER")
@click.option("--undo", is_flag=True, help="Let it have shards again.")
@connected
@json_flag
def drain(client: Client, name: str, worker_id: str, *, undo: bool, as_json: bool) -> None:
    """Have a worker give up its shards of a service, and give it no more."""
    service = client.run(service_calls.drain_member(name, worker_id, draining=not undo))
    show(service, as_json=as_json, render=lambda one: _drained_line(one, worker_id))


@services.command()
@click.argument("name")
@click.argument("protocol", type=click.IntRange(OLD_PROTOCOL, PROTOCOL))
@yes_flag
@connected
@json_flag
def require(client: Client, name: str, protocol: int, *, yes: bool, as_json: bool) -> None:
    """Take only workers that speak this protocol, or a later one.

    Members that speak an older one are put out at once, and their shards go to others while they
    may still be at work on them. So this asks first.
    """
    service = client.run(service_calls.get_service(name))
    put_out = [one.worker_id for one in service.members if one.protocol < protocol]
    if put_out and not yes:
        more = ", …" if len(put_out) > NAMES_ASKED else ""
        _confirm(f"put out {', '.join(put_out[:NAMES_ASKED])}{more} ({len(put_out)} in all)?")
    change = ServiceChange(min_protocol=protocol)
    service = client.run(service_calls.configure_service(name, change))
    show(service, as_json=as_json, render=lambda one: _required_line(one, len(put_out)))


services.add_command(keys)


def _find(client: Client, name: str) -> ServiceView | None:
    try:
        return client.run(service_calls.get_service(name))
    except ServiceNotFound:
        return None


def _confirm(question: str) -> None:
    if not is_terminal(sys.stdin):
        raise click.UsageError("nobody is there to confirm; give --yes")
    if not click.confirm(visible(question), err=True):
        raise Refusal("nothing was changed", code="not_confirmed")


def _print(service: ServiceView) -> None:
    """Show a service to a person: drawn on a terminal, as plain lines elsewhere."""
    if is_terminal(sys.stdout):
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

        from rota.cli.service_drawing import drawn, is_coloured  # noqa: PLC0415

        console = Console()
        console.print(drawn(service, width=console.width, is_coloured=is_coloured(console)))
        return
    show(service, as_json=False, render=service_facts)
    click.echo()
    for line in strip_lines(service, width=shutil.get_terminal_size().columns):
        click.echo(line)
    click.echo()
    show(service, as_json=False, render=member_table)
    for line in fences(service.members):
        note(line)


def _pinned_line(service: ServiceView, before: ServiceView | None) -> str:
    line = f"service {visible(service.name)} has {service.shard_count} shards, pinned"
    if before is None:
        return f"{line}; it is new, and waits for workers"
    if before.shard_count == service.shard_count:
        return line
    return f"{line}; before it had {before.shard_count}"


def _unpinned_line(service: ServiceView) -> str:
    name, count = visible(service.name), service.shard_count
    return f"service {name} has {count} shards, and from now on as many as its workers say"


def _drained_line(service: ServiceView, worker_id: str) -> str:
    member = _member(service, worker_id)
    name, worker = visible(service.name), visible(worker_id)
    if member is None:
        return f"worker {worker} has left {name}"
    if not member.draining:
        return f"worker {worker} may have shards of {name} again"
    if not member.shards:
        return f"worker {worker} is drained: it has no shards of {name}"
    others = any(not (one.draining or one.fenced) for one in service.members)
    line = f"worker {worker} is draining: it has {len(member.shards)} shards of {name} to give up"
    return line if others else f"{line}; nobody is there to take them"


def _required_line(service: ServiceView, put_out: int) -> str:
    name = visible(service.name)
    if service.min_protocol < PROTOCOL:
        return f"service {name} takes any worker"
    line = f"service {name} takes only workers of protocol {service.min_protocol}"
    if not put_out:
        return line
    return f"{line}; {put_out} {'member was' if put_out == 1 else 'members were'} put out"


def _member(service: ServiceView, worker_id: str) -> MemberView | None:
    return next((one for one in service.members if one.worker_id == worker_id), None)
