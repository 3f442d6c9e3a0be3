"""`rota up`: starts a coordinator."""

import gc
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
from msgspec import Struct

import rota
from rota import telemetry
from rota.cli import process
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.render.output import Facts, show
from rota.node import Node
from rota.settings import Settings
from rota.store.opening import file_of, name_of

log = structlog.get_logger("rota.up")

# Addresses of all interfaces, and the one of this machine that belongs to each.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - to recognise it
# New objects until the garbage collector looks at them; such rounds until it looks once more at
# what they have left, which takes it some milliseconds; and those until it looks at everything.
COLLECTED_AFTER = (20_000, 2, 50)


class Announcement(Struct):
    """What is printed once a coordinator serves."""

    url: str
    docs: str
    store: str
    version: str
    pid: int
    shards: str | None  # where members of services connect; null: no ZeroMQ


@click.command()
@settings_flags()
@json_flag
def up(*, as_json: bool, **flags: Any) -> None:
    """Start a coordinator.

    When it is ready it prints its addresses; with --json that is one line, {"url": …}. It runs
    until Ctrl-C or SIGTERM, which stop it cleanly; a second signal ends it at once. With TLS,
    SIGHUP reloads the certificate and its key.
    """
    settings = load_settings(flags)
    telemetry.set_up(level=settings.log_level, log_format=settings.log_format)
    process.run(_serve(settings, as_json=as_json))


async def _serve(settings: Settings, *, as_json: bool) -> None:
    node = Node(settings)
    # What is loaded by now stays; objects of batches are freed without the collector.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    process.stop_on_signals(node.ask_to_stop)
    if settings.tls_cert is not None:
        process.reload_on_hangup(node.reload_certificate)
    for warning in node.authenticator.warnings():
        log.warning("insecure", detail=warning)
    await node.serve(lambda url: announce(url, node, as_json=as_json))


def announce(url: str, node: Node, *, as_json: bool) -> None:
    path = file_of(node.settings.store)
    announcement = Announcement(
        url=url,
        docs=f"{url}/docs",
        store=name_of(node.settings.store) if path is None else str(Path(path).absolute()),
        version=rota.__version__,
        pid=os.getpid(),
        shards=node.shards_url,
    )
    token = "" if node.authenticator.is_open else "ROTA_TOKEN=TOKEN "
    show(announcement, as_json=as_json, render=partial(_facts, token=token))


def _facts(announcement: Announcement, *, token: str) -> Facts:
    here, elsewhere = usable_urls(announcement.url, socket.gethostname())
    return Facts(
        [
            (f"rota {announcement.version}", announcement.url),
            ("dashboard", here),
            ("docs", f"{here}/docs"),
            ("store", announcement.store),
            ("shards", announcement.shards or "no ZeroMQ"),
            ("worker", f"{token}rota worker MODULE:APP --url {elsewhere}"),
            ("stop", "Ctrl-C"),
        ]
    )


def usable_urls(url: str, hostname: str) -> tuple[str, str]:
    """The addresses to open on this machine, and on others.

    A coordinator that is bound to all interfaces has an address that no client can connect to.
    """
    for everywhere, here in EVERYWHERE.items():
        if f"//{everywhere}:" in url:
            of = (here, hostname or here)
            on_this, on_others = (url.replace(f"//{everywhere}:", f"//{one}:") for one in of)
            return on_this, on_others
    return url, url
