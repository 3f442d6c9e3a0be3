"""What is wrong here? Checks of this machine, the store and a coordinator, each with advice."""

from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct

from rota.cli import checkups
from rota.cli.checkups import Checkup, Verdict
from rota.cli.connection import connected
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.output import ExitCode, Table, show
from rota.sdk.client import Client
from rota.settings import Settings
from rota.store.opening import is_postgres


class Report(Struct):
    status: Verdict
    checks: list[Checkup]


@click.command()
@settings_flags("host", "port", "store")
@connected
@json_flag
def doctor(client: Client, *, as_json: bool, **flags: Any) -> None:
    """Check this machine and a coordinator.

    Each line is ok, warn or fail, with advice. The exit code is 1 when a check failed.
    """
    source = click.get_current_context().get_parameter_source("url")
    is_named = source is not ParameterSource.DEFAULT
    checks = list(_examine(client, load_settings(flags), is_named=is_named))
    verdicts = {check.state for check in checks}
    worst = next(verdict for verdict in reversed(Verdict) if verdict in verdicts)

    show(Report(worst, checks), as_json=as_json, render=_table)
    if worst is Verdict.FAIL:
        click.get_current_context().exit(ExitCode.FAILED)


def _examine(client: Client, settings: Settings, *, is_named: bool) -> Iterator[Checkup]:
    yield checkups.python()
    yield checkups.sqlite()
    yield checkups.store(settings)
    if not is_postgres(settings.store):
        yield checkups.disk(settings)
    answer = checkups.ask_health(client)
    yield checkups.coordinator(answer, client.transport.address, is_named=is_named)
    if isinstance(answer, checkups.Heard):
        yield checkups.clock(answer)
        others = checkups.replicas(client)
        if others is not None:
            yield others
    elif not is_named:
        yield checkups.port(settings)


def _table(report: Report) -> Table:
    return Table(
        ("", "check", "found", "advice"),
        [(check.state.value, check.check, check.found, check.advice) for check in report.checks],
    )
