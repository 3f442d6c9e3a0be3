"""Whose word counts over ZeroMQ? Let clients in by their keys, list them, and put them out.

The key file is on the coordinator's machine, and so must this command be. A coordinator that runs
looks at the file every few seconds.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.output import Table, note, show, visible

if TYPE_CHECKING:
    from rota.gateways.zeromq.keys import ClientKey, KeyFile, NewClient

file_option = settings_flags("zmq_keys")


@click.group()
def keys() -> None:
    """Say which keys may speak for which workers, over ZeroMQ."""


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
@click.option("--public", help="The client's public key, if it has made its own pair.")
@file_option
@json_flag
def add(*, name: str, zmq_keys: str | None, as_json: bool, **binding: Any) -> None:
    """Let a client in: make a pair of keys for it, and note the public one in the key file.

    Prints the variables that the client's process needs. Its secret key is shown once, and kept
    nowhere. A key file that is not there yet is made.
    """
    from rota.gateways.zeromq.keys import add_client, create_keys  # noqa: PLC0415 - loads ZeroMQ

    path = _path(zmq_keys)
    if not path.exists():
        create_keys(path)
        note(f"made {path}, with a new key for the coordinator: rota up --zmq-keys {path}")
    added = add_client(path, name=name, **binding)
    show(added, as_json=as_json, render=_environment)
    if added.secret is not None and not as_json:
        note("keep the secret now: it is not shown again")


@keys.command("ls")
@file_option
@json_flag
def ls(*, zmq_keys: str | None, as_json: bool) -> None:
    """List the clients of a key file, without any secret."""
    from rota.gateways.zeromq.keys import read_keys  # noqa: PLC0415

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
    """Let a client in no more; what it has open is refused within seconds."""
    from rota.gateways.zeromq.keys import remove_client  # noqa: PLC0415

    remove_client(_path(zmq_keys), name)
    removed = {"name": name, "removed": True}
    show(removed, as_json=as_json, render=lambda _: f"removed the key of {visible(name)}")


def _path(zmq_keys: str | None) -> Path:
    path = load_settings({"zmq_keys": zmq_keys}).zmq_keys
    if path is None:
        raise click.UsageError("which key file? Give --zmq-keys FILE, or set ROTA_ZMQ_KEYS")
    return Path(path)


def _environment(client: "NewClient") -> str:
    """What the client's process is to be started with; shells and systemd read it alike."""
    variables = {
        "ROTA_ZMQ_PUBLIC_KEY": client.public,
        "ROTA_ZMQ_SECRET_KEY": client.secret,
        "ROTA_ZMQ_SERVER_KEY": client.coordinator,
    }
    # No key has a quote in it, but nearly every other sign that means something to a shell.
    return "\n".join(f"{name}='{key}'" for name, key in variables.items() if key is not None)


def _table(found: "KeyFile") -> Table:
    return Table(
        ("client", "public key", "services", "workers"),
        [_row(client) for client in found.client],
        empty="no clients: nobody can come in; let one in with: rota services keys add NAME",
    )


def _row(client: "ClientKey") -> tuple[str, ...]:
    return client.name, client.public, ", ".join(client.services), ", ".join(client.workers)
