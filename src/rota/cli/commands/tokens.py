"""`rota token`: create, list and revoke access tokens.

A running coordinator creates tokens. When there is none, the command writes to the store itself: a
coordinator that listens beyond loopback does not start without a first token.
"""

import time
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from rota.addresses import without_password
from rota.cli.connection import ca_option, token_option, url_option
from rota.cli.groups import CommandGroup
from rota.cli.options import duration_option, json_flag, load_settings, settings_flags
from rota.cli.render.formatting import absolute, relative
from rota.cli.render.output import Facts, Table, note, show, table
from rota.core.access import AccessToken, Scope
from rota.messages import NewTokenAnswer, TokenPage, TokenRequest, TokenView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, Nothing
from rota.sdk.transport.transport import NotSent
from rota.settings import Settings

T = TypeVar("T")

MAX_SECRET_FILE = 4_096  # characters


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, list and revoke access tokens."""


def _place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a coordinator, such as `--url`, and of a store, `--store`."""
    return url_option(token_option(ca_option(settings_flags("store")(json_flag(function)))))


@token.command()
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it allows; repeat for more. admin: everything, submit: submit, cancel and read "
    "tasks, read: read only, worker: run tasks.",
)
@click.option("--name", default="unnamed", show_default=True, help="Its name in lists.")
@click.option("--queue", "queues", multiple=True, help="Bind it to this queue; repeat for more.")
@click.option(
    "--service",
    "services",
    multiple=True,
    help="Bind it to this service; repeat for more. A token that is bound only to services has "
    "no access to queues, and the reverse.",
)
@click.option("--worker-id", help="Bind it to this worker id.")
@duration_option(
    "--expires-in",
    "--expires-in-ms",
    least_ms=1_000,
    description="Revoke it after this time, as 30d.  [default: never]",
)
@click.option(
    "--secret-file",
    type=click.File(),
    help="Use the secret in this file, which `rota token generate` made, and do not print it; "
    "needs --store. The same secret again changes nothing.",
)
@_place_options
def create(*, as_json: bool, secret_file: IO[str] | None, **fields: Any) -> None:
    """Create a token. It is shown once; only its hash is kept."""
    given = {
        name: value
        for name, value in fields.items()
        if name in TokenRequest.__struct_fields__ and value not in (None, ())
    }
    request = msgspec.convert(given, TokenRequest)
    if secret_file is not None:
        _create_with_secret(request, secret_file.read(MAX_SECRET_FILE).strip(), as_json=as_json)
        return
    created = _ask(
        calls.create_token(request), lambda settings: _create_in_store(settings, request)
    )
    show(created, as_json=as_json, render=_created_facts)
    if not as_json:
        note("store it now: it is not shown again")


def _create_with_secret(request: TokenRequest, secret: str, *, as_json: bool) -> None:
    """Store a token whose secret was made before, so that its users can have it already."""
    context = click.get_current_context()
    if context.get_parameter_source("store") is not ParameterSource.COMMANDLINE:
        raise click.UsageError("--secret-file goes with --store")
    from rota import administration  # noqa: PLC0415 - the store, rarely needed here
    from rota.gateways.auth.authenticator import new_token  # noqa: PLC0415

    settings = load_settings({"store": context.params["store"]})
    created, _secret = new_token(request, now_ms=time.time_ns() // 1_000_000, secret=secret)
    stored = administration.add_token(settings, created)
    view = msgspec.convert(_view_fields(stored), TokenView)
    show(view, as_json=as_json, render=lambda view: Facts(_facts(view)))


@token.command()
@json_flag
def generate(*, as_json: bool) -> None:
    """Print the secret of a token that does not exist yet, for `token create --secret-file`."""
    from rota.gateways.auth.authenticator import new_secret  # noqa: PLC0415 - rarely needed here

    show({"token": new_secret()}, as_json=as_json, render=lambda made: made["token"])


@token.command("ls")
@_place_options
def ls(*, as_json: bool, **_place: Any) -> None:
    """List the tokens, without their secrets."""
    show(_ask(calls.list_tokens(), _list_in_store), as_json=as_json, render=_table)


@token.command()
@click.argument("token_id")
@_place_options
def revoke(*, token_id: str, as_json: bool, **_place: Any) -> None:
    """Revoke a token: it is refused from then on."""
    _ask(calls.revoke_token(token_id), lambda settings: _revoke_in_store(settings, token_id))
    revoked = {"id": token_id, "revoked": True}
    show(revoked, as_json=as_json, render=lambda _: f"revoked token {token_id}")


def _ask(call: ApiCall[T], in_store: Callable[[Settings], T]) -> T:
    """Call the coordinator; with `--store`, or when none runs here, use the store itself.

    A coordinator that was named (by `--url` or `ROTA_URL`) and does not answer is an error: the
    caller did not mean a file in the working directory.
    """
    context = click.get_current_context()
    url, token, ca, store = (context.params[name] for name in ("url", "token", "ca", "store"))
    if context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        return in_store(load_settings({"store": store}))
    client = Client.connect(url, token, verify=ca or True)
    try:
        return client.run(call)
    except NotSent:
        if context.get_parameter_source("url") is not ParameterSource.DEFAULT:
            raise
        settings = load_settings({"store": store})
        note(f"no coordinator at {url}; using the store {without_password(settings.store)} itself")
        return in_store(settings)
    finally:
        client.close()


def _create_in_store(settings: Settings, request: TokenRequest) -> NewTokenAnswer:
    from rota import administration  # noqa: PLC0415 - the store, rarely needed here
    from rota.gateways.auth.authenticator import new_token  # noqa: PLC0415

    created, secret = new_token(request, now_ms=time.time_ns() // 1_000_000)
    administration.create_token(settings, created)
    return msgspec.convert({**_view_fields(created), "token": secret}, NewTokenAnswer)


def _list_in_store(settings: Settings) -> TokenPage:
    from rota import administration  # noqa: PLC0415

    return msgspec.convert(
        {"items": list(map(_view_fields, administration.list_tokens(settings)))}, TokenPage
    )


def _revoke_in_store(settings: Settings, token_id: str) -> Nothing:
    from rota import administration  # noqa: PLC0415

    administration.revoke_token(settings, token_id)
    return Nothing()


def _view_fields(token: AccessToken) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(token)
    return {name: value for name, value in fields.items() if name != "hash"}


def _created_facts(created: NewTokenAnswer) -> Facts:
    return Facts([("token", created.token), *_facts(created)])


def _facts(token: TokenView) -> list[tuple[str, object]]:
    return [
        ("id", token.id),
        ("name", token.name),
        ("scopes", ", ".join(token.scopes)),
        ("queues", ", ".join(token.queues) if token.queues else None),
        ("services", ", ".join(token.services) if token.services else None),
        ("worker", token.worker_id),
        ("expires", absolute(token.expires_at_ms)),
    ]


def _table(page: TokenPage) -> Table:
    columns: dict[str, Callable[[TokenView], object]] = {
        "token": lambda token: token.id,
        "name": lambda token: token.name,
        "scopes": lambda token: ", ".join(token.scopes),
        "queues": lambda token: _bound(token.queues, token.services),
        "services": lambda token: _bound(token.services, token.queues),
        "worker": lambda token: token.worker_id or "any",
        "created": lambda token: relative(token.created_at_ms),
        "expires": lambda token: relative(token.expires_at_ms) if token.expires_at_ms else "never",
    }
    return table(page.items, columns, empty="no tokens")


def _bound(names: Sequence[str] | None, others: Sequence[str] | None) -> str:
    """The names a token is bound to; a token bound only to the other kind has none of these."""
    if names:
        return ", ".join(names)
    return "none" if others else "all"
