"""How does a store come up to date? `rota up` does it by itself; this does only that."""

from typing import Any

import click

from rota import node
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.output import show


@click.command()
@settings_flags("store")
@json_flag
def migrate(*, as_json: bool, **flags: Any) -> None:
    """Bring the store's schema up to date."""
    settings = load_settings(flags)
    before, after = node.migrate(settings)
    answer = {"store": settings.store, "from_version": before, "to_version": after}
    show(answer, as_json=as_json, render=lambda _: _line(settings.store, before, after))


def _line(store: str, before: int, after: int) -> str:
    if before == after:
        return f"{store} is up to date: schema version {after}"
    return f"{store}: schema version {before} -> {after}"
