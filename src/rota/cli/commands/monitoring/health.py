"""`rota health` probes a coordinator; `rota doctor` checks this machine too, and gives advice."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct

from rota.cli.commands.monitoring import checks
from rota.cli.commands.monitoring.checks import CheckResult, DoctorCheck
from rota.cli.connection import connected
from rota.cli.options import load_settings, settings_flags
from rota.cli.render.formatting import duration
from rota.cli.render.output import ExitCode, Facts, Table, show
from rota.messages import HealthAnswer
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.settings import Settings
from rota.store.opening import is_postgres


@click.command()
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=5_000,
    show_default=True,
    help="Longest wait for an answer.",
)
@connected
def health(client: Client, *, timeout_ms: int, as_json: bool) -> None:
    """Probe a coordinator's health.

    Exit codes: 0 healthy, 1 unhealthy, 2 unreachable.
    """
    call = msgspec.structs.replace(calls.health(), timeout_s=timeout_ms / 1000)
    answer = client.without_repeats().run(call)
    show(answer, as_json=as_json, render=_facts)
    if answer.status != "healthy":
        click.get_current_context().exit(ExitCode.FAILED)


def _facts(answer: HealthAnswer) -> Facts:
    return Facts(
        [
            ("status", answer.status),
            ("version", answer.version),
            ("up for", duration(answer.uptime * 1000)),
            *(
                (check.component, check.detail or ("ok" if check.isHealthy else "fail"))
                for check in answer.checks
            ),
            *(("warning", warning) for warning in answer.warnings),
        ]
    )


class DoctorReport(Struct):
    status: CheckResult
    checks: list[DoctorCheck]


@click.command()
@settings_flags("host", "port", "store", "tls_cert", "tls_key")
@connected
def doctor(client: Client, *, as_json: bool, **flags: Any) -> None:
    """Check this machine and a coordinator.

    Each line is ok, warn or fail, with advice. The exit code is 1 when a check failed.
    """
    source = click.get_current_context().get_parameter_source("url")
    is_named = source is not ParameterSource.DEFAULT
    results = list(_examine(client, load_settings(flags), is_named=is_named))
    states = {check.state for check in results}
    worst = next(state for state in reversed(CheckResult) if state in states)

    show(DoctorReport(worst, results), as_json=as_json, render=_table)
    if worst is CheckResult.FAIL:
        click.get_current_context().exit(ExitCode.FAILED)


def _examine(client: Client, settings: Settings, *, is_named: bool) -> Iterator[DoctorCheck]:
    yield checks.python()
    yield checks.sqlite()
    yield checks.store(settings)
    if not is_postgres(settings.store):
        yield checks.disk(settings)
    answer = checks.ask_health(client)
    yield from _given(checks.certificate(settings), checks.encryption(client.transport.address))
    yield checks.coordinator(answer, client.transport.address, is_named=is_named)
    if isinstance(answer, checks.HealthProbe):
        yield checks.clock(answer)
        system = checks.ask_system(client)
        if system is not None:
            yield from _given(checks.leader(system), checks.replicas(system))
        yield from _given(checks.limits(client))
    elif not is_named:
        yield checks.port(settings)


def _given(*found: DoctorCheck | None) -> Iterator[DoctorCheck]:
    return (check for check in found if check is not None)


def _table(report: DoctorReport) -> Table:
    return Table(
        ("", "check", "found", "advice"),
        [(check.state.value, check.check, check.found, check.advice) for check in report.checks],
    )
