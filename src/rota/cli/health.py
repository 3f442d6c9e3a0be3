"""Is the coordinator well? A probe for scripts, containers and supervisors."""

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.options import json_flag
from rota.cli.output import ExitCode, Facts, show
from rota.cli.times import duration
from rota.messages import HealthAnswer
from rota.sdk import calls
from rota.sdk.client import Client


@click.command()
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=5_000,
    show_default=True,
    help="Longest wait for an answer.",
)
@connected
@json_flag
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
