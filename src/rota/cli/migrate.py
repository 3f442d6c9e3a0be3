"""How does a store come up to date? `rota up` does it by itself; this does only that."""

from typing import Any

import click

from rota import node
from rota.addresses import without_password
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.output import show


@click.command()
@settings_flags("store", "postgres_schema")
@click.option("--sql", is_flag=True, help="Print the SQL of a new store, and touch none.")
@click.option(
    "--post",
    is_flag=True,
    help="On PostgreSQL, also drop what only coordinators of the version before need: once all of "
    "them are gone.",
)
@json_flag
def migrate(*, sql: bool, post: bool, as_json: bool, **flags: Any) -> None:
    """Bring the store's schema up to date."""
    settings = load_settings(flags)
    if sql:
        click.echo(node.migration_sql(settings), nl=False)
        return
    store = without_password(settings.store)
    before, after = node.migrate(settings, post=post)
    answer = {"store": store, "from_version": before, "to_version": after}
    show(answer, as_json=as_json, render=lambda _: _line(store, before, after))


def _line(store: str, before: int, after: int) -> str:
    if before == after:
        return f"{store} is up to date: schema version {after}"
    return f"{store}: schema version {before} -> {after}"
