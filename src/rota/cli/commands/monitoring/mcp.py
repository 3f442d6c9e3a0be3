"""`rota mcp`: an MCP server for assistants, over standard input and output."""

import click

from rota.cli.connection import ca_option, token_option, url_option
from rota.cli.render.output import Refusal
from rota.sdk.client.client import Client


@click.command()
@url_option
@token_option
@ca_option
@click.option(
    "--act",
    "may_act",
    is_flag=True,
    envvar="ROTA_MCP_ACT",
    show_envvar=True,
    help="Also offer tools that change something, as far as the token allows it.",
)
def mcp(*, url: str, token: str | None, ca: str | None, may_act: bool) -> None:
    """Serve assistants over MCP, on standard input and output.

    The tools read: what is stuck and why, failures by cause, runs and their journals, queues,
    workers, schedules. With --act, tools that change something are offered too; each of them only
    says what it would do, until it is called with dry_run=false. Give it a token with the scope
    `read`, unless it may act.
    """
    try:
        from rota.contrib.mcp.server import build_server  # noqa: PLC0415 - an optional package
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "pydantic"}:
            raise
        raise Refusal(
            'the package "mcp" is not installed: pip install "rota[mcp]"', code="not_installed"
        ) from None
    with Client.connect(url, token, verify=ca or True) as client:
        build_server(client, may_act=may_act).run("stdio")
