"""Connects a command to a coordinator by `--url` and `--token`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from rota.cli.options import json_flag
from rota.cli.render.output import Refusal, Table, refusal_of, show
from rota.errors import RotaError
from rota.sdk.client.client import DEFAULT_URL, Client
from rota.sdk.client.requests import ApiCall
from rota.sdk.transport.transport import NotSent
from rota.tls import CA_VARIABLE

START_ONE = (
    "start one with `rota up` or `rota dev MODULE:APP`, or name another one with --url or ROTA_URL"
)

P = TypeVar("P")
T = TypeVar("T")

url_option = click.option(
    "--url",
    envvar="ROTA_URL",
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="Where the coordinator is; several on one store have commas between them.",
)
token_option = click.option(
    "--token",
    envvar="ROTA_TOKEN",
    show_envvar=True,
    help="Access token; prefer the variable, because other users can read command lines.",
)

ca_option = click.option(
    "--ca",
    envvar=CA_VARIABLE,
    show_envvar=True,
    help="File with the certificates of the authorities to trust with https://, in PEM form.  "
    "[default: those of the system]",
)


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url`, `--token`, `--ca` and `--json` to a command, and pass it a client."""

    @url_option
    @token_option
    @ca_option
    @json_flag
    @functools.wraps(function)
    def with_client(
        *arguments: Any, url: str, token: str | None, ca: str | None, **options: Any
    ) -> Any:
        client = Client.connect(url, token, verify=ca or True)
        try:
            return function(*arguments, client=client, **options)
        except NotSent as error:
            if click.get_current_context().get_parameter_source("url") is ParameterSource.DEFAULT:
                raise NotSent(f"{error.detail}; {START_ONE}", **error.facts) from error
            raise
        finally:
            client.close()

    return with_client


def change_each(
    client: Client,
    calls: Iterable[ApiCall[T]],
    *,
    page: Callable[[list[T]], P],
    render: Callable[[P], Table],
    as_json: bool,
) -> None:
    """Make the calls one by one, and show what changed; a refused one does not stop the others."""
    changed: list[T] = []
    refusals: list[Refusal] = []
    for call in calls:
        try:
            changed.append(client.run(call))
        except RotaError as error:
            refusals.append(refusal_of(error))
    if changed or as_json:
        show(page(changed), as_json=as_json, render=render)
    for refusal in refusals:
        refusal.show()
    if refusals:
        click.get_current_context().exit(max(refusal.exits_with for refusal in refusals))
