"""`rota webhooks`: list, show, put, test and delete webhooks."""

from collections.abc import Callable
from typing import Any, get_args

import click

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.options import yes_flag
from rota.cli.render.formatting import absolute, duration, relative
from rota.cli.render.output import ExitCode, Facts, Table, confirm, show, table, visible
from rota.core.webhooks.model import WebhookFormat
from rota.errors import WebhookNotFound
from rota.messages.outbound.webhooks import WebhookPage, WebhookPut, WebhookTest, WebhookView
from rota.sdk.client import outbound_calls
from rota.sdk.client.client import Client

SHOWN_DELIVERIES = 10
KEPT_FIELDS = ("url", "events", "queues", "workflows", "format", "enabled", "description")


@click.group(cls=CommandGroup)
def webhooks() -> None:
    """List, show, put, test and delete webhooks."""


@webhooks.command("ls")
@connected
def ls(client: Client, *, as_json: bool) -> None:
    """List the webhooks, and whether their deliveries succeed."""
    show(client.run(outbound_calls.list_webhooks()), as_json=as_json, render=_table)


@webhooks.command("show")
@click.argument("name")
@connected
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show a webhook and its last deliveries."""
    found = client.run(outbound_calls.get_webhook(name))
    show(found, as_json=as_json, render=_facts)
    if not as_json and found.deliveries:
        click.echo()
        show(found, as_json=False, render=_deliveries)


@webhooks.command("put")
@click.argument("name")
@click.option("--to", "receiver", help="The URL of the receiver; a new webhook needs it.")
@click.option(
    "--event",
    "events",
    multiple=True,
    help="A type of events, or a beginning and a star: task-failed, run-*. Repeat for more.",
)
@click.option(
    "--queue", "queues", multiple=True, help="Only events of this queue. Repeat for more."
)
@click.option(
    "--workflow", "workflows", multiple=True, help="Only events of this workflow. Repeat for more."
)
@click.option(
    "--format",
    "body_format",
    type=click.Choice(get_args(WebhookFormat)),
    help="The body: the event as JSON (rota), or an object with a text (slack).",
)
@click.option("--enabled/--disabled", default=None, help="Whether it delivers.")
@click.option("--description", help="What it is for.")
@click.option(
    "--secret-file",
    type=click.File(),
    help="File with the secret that signs its requests; by default a new one.",
)
@connected
def put(client: Client, name: str, secret_file: Any, *, as_json: bool, **given: Any) -> None:
    """Create a webhook, or change the options that are given.

    The secret of a new webhook is printed once. The receiver needs it to check requests.
    """
    fields = _before(client, name)
    if (receiver := given.pop("receiver")) is not None:  # `url` is that of the coordinator
        fields["url"] = receiver
    fields["format"] = given.pop("body_format") or fields.get("format", "rota")
    fields |= {field: value for field, value in given.items() if value not in {None, ()}}
    if "url" not in fields:
        raise click.UsageError(f"webhook {name!r} is new: give its URL with --to")
    if secret_file is not None:
        fields["secret"] = secret_file.read().strip()
    made = client.run(outbound_calls.put_webhook(name, WebhookPut(**fields)))
    show(made, as_json=as_json, render=_line)


def _before(client: Client, name: str) -> dict[str, Any]:
    """What is set for a webhook; nothing for a new one."""
    try:
        known = client.run(outbound_calls.get_webhook(name))
    except WebhookNotFound:
        return {}
    return {field: getattr(known, field) for field in KEPT_FIELDS}


@webhooks.command("test")
@click.argument("name")
@connected
def send_test(client: Client, name: str, *, as_json: bool) -> None:
    """Send a test event to the receiver now; exit code 1 if it is not accepted."""
    answer = client.run(outbound_calls.send_test(name))
    show(answer, as_json=as_json, render=_test_line)
    if not answer.ok:
        raise SystemExit(ExitCode.FAILED)


@webhooks.command("delete")
@click.argument("name")
@yes_flag
@connected
def delete(client: Client, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a webhook, with the deliveries that still wait."""
    if not yes:
        confirm(f"delete webhook {name!r}?")
    gone = client.run(outbound_calls.delete_webhook(name))
    show(gone, as_json=as_json, render=lambda one: f"webhook {visible(one.name)} is deleted")


# --- rendering ----------------------------------------------------------------------------------


def _table(page: WebhookPage) -> Table:
    columns: dict[str, Callable[[WebhookView], object]] = {
        "webhook": lambda one: one.name,
        "state": lambda one: one.state,
        "events": lambda one: ", ".join(one.events),
        "pending": lambda one: one.pending,
        "delivered": lambda one: one.delivered,
        "given up": lambda one: one.given_up,
        "last success": lambda one: relative(one.last_success_ms),
    }
    return table(page.items, columns, empty="no webhooks yet")


def _facts(webhook: WebhookView) -> Facts:
    return Facts(
        [
            ("webhook", webhook.name),
            ("state", webhook.state),
            ("disabled", _disabled(webhook)),
            ("url", webhook.url),
            ("description", webhook.description or None),
            ("events", ", ".join(webhook.events)),
            ("queues", ", ".join(webhook.queues) or None),
            ("workflows", ", ".join(webhook.workflows) or None),
            ("format", webhook.format),
            ("pending", webhook.pending),
            ("delivered", webhook.delivered),
            ("given up", webhook.given_up or None),
            ("failures", webhook.failures or None),
            ("failing since", absolute(webhook.failing_since_ms)),
            ("last success", absolute(webhook.last_success_ms)),
            ("missed events", absolute(webhook.missed_at_ms)),
        ]
    )


def _disabled(webhook: WebhookView) -> str | None:
    if webhook.disabled_at_ms is None:
        return None
    why = (
        "its receiver answered 410"
        if webhook.disabled_because == "gone"
        else "all requests have failed"
    )
    return f"{absolute(webhook.disabled_at_ms)}: {why}; `put --enabled` enables it again"


def _deliveries(webhook: WebhookView) -> Table:
    rows = [
        (
            one.seq,
            one.type,
            one.subject,
            one.state,
            one.attempts,
            relative(one.next_at_ms) if one.next_at_ms is not None else "-",
            one.code or "-",
            one.error or "",
        )
        for one in webhook.deliveries[:SHOWN_DELIVERIES]
    ]
    columns = ("event", "type", "subject", "state", "attempts", "next", "code", "error")
    return Table(columns, rows)


def _line(webhook: WebhookView) -> str:
    text = f"webhook {visible(webhook.name)} is {webhook.state}"
    if webhook.secret is None:
        return text
    return f"{text}\nsecret {webhook.secret}  (copy it now, it is not shown again)"


def _test_line(answer: WebhookTest) -> str:
    took = duration(answer.took_ms)
    if answer.ok:
        return f"the receiver answered {answer.code} after {took}"
    return f"the receiver did not accept it: {answer.error} ({took})"
