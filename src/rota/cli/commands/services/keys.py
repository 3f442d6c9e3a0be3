"""`rota services keys`: adds, lists and removes ZeroMQ client keys.

Run it on the coordinator's machine, where the key file is. A running coordinator reads the file
again every few seconds.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rota.cli.groups import CommandGroup
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.render.output import Table, note, show, visible

if TYPE_CHECKING:
    from rota.gateways.zeromq.auth.keys import ClientKey, KeyFile, NewClient

file_option = settings_flags("zmq_keys")


@click.group(cls=CommandGroup)
def keys() -> None:
    """Manage the keys of ZeroMQ clients, and the workers that each may speak for."""


@keys.command()
@click.argument("name")
@click.option(
    "--service",
    "services",
    multiple=True,
    default=("*",),
    show_default="*",
    help="A service it may speak for; * and ? stand for other characters. Repeat for more.",
)
@click.option(
    "--worker",
    "workers",
    multiple=True,
    default=("*",),
    show_default="*",
    help="A worker id it may speak for, in the same way.",
)
@click.option("--public", help="The client's public key, if it has generated its own pair.")
@file_option
@json_flag
def add(*, name: str, zmq_keys: str | None, as_json: bool, **binding: Any) -> None:
    """Add a client: generate a pair of keys, and write the public one to the key file.

    Prints the variables that the client's process needs. The secret key is shown once and stored
    nowhere. The key file is created if it does not exist.
    """
    from rota.gateways.zeromq.auth.keys import add_client, create_keys  # noqa: PLC0415 - loads ZeroMQ

    path = _path(zmq_keys)
    if not path.exists():
        create_keys(path)
        note(f"created {path}, with a new key for the coordinator: rota up --zmq-keys {path}")
    added = add_client(path, name=name, **binding)
    show(added, as_json=as_json, render=_environment)
    if added.secret is not None and not as_json:
        note("store the secret now: it is not shown again")


@keys.command("ls")
@file_option
@json_flag
def ls(*, zmq_keys: str | None, as_json: bool) -> None:
    """List the clients of a key file, without any secret."""
    from rota.gateways.zeromq.auth.keys import read_keys  # noqa: PLC0415

    found = read_keys(_path(zmq_keys))
    listed = {
        "coordinator": found.coordinator.public,
        "items": [msgspec.to_builtins(client) for client in found.client],
    }
    show(listed, as_json=as_json, render=lambda _: _table(found))
    if not as_json:
        note(f"the coordinator's public key is {found.coordinator.public}")


@keys.command()
@click.argument("name")
@file_option
@json_flag
def remove(*, name: str, zmq_keys: str | None, as_json: bool) -> None:
    """Remove a client; its open connections are refused within seconds."""
    from rota.gateways.zeromq.auth.keys import remove_client  # noqa: PLC0415

    remove_client(_path(zmq_keys), name)
    removed = {"name": name, "removed": True}
    show(removed, as_json=as_json, render=lambda _: f"removed the key of {visible(name)}")


def _path(zmq_keys: str | None) -> Path:
    path = load_settings({"zmq_keys": zmq_keys}).zmq_keys
    if path is None:
        raise click.UsageError("no key file was named: give --zmq-keys FILE, or set ROTA_ZMQ_KEYS")
    return Path(path)


def _environment(client: "NewClient") -> str:
    """The environment of the client's process, in a form that shells and systemd read."""
    variables = {
        "ROTA_ZMQ_PUBLIC_KEY": client.public,
        "ROTA_ZMQ_SECRET_KEY": client.secret,
        "ROTA_ZMQ_SERVER_KEY": client.coordinator,
    }
    # Keys contain most special characters of a shell, but no quote.
    return "\n".join(f"{name}='{key}'" for name, key in variables.items() if key is not None)


def _table(found: "KeyFile") -> Table:
    return Table(
        ("client", "public key", "services", "workers"),
        [_row(client) for client in found.client],
        empty="no clients; add one with: rota services keys add NAME",
    )


def _row(client: "ClientKey") -> tuple[str, ...]:
    return client.name, client.public, ", ".join(client.services), ", ".join(client.workers)
