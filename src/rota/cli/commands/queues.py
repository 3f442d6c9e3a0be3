"""`rota queues`: list, pause and resume queues, and change their settings."""

from collections.abc import Callable
from typing import Any

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.inputs import duration_ms, rate
from rota.cli.render.formatting import absolute, duration, rate_text, relative
from rota.cli.render.output import Facts, Table, show, table
from rota.core import limits
from rota.errors import PushNotFound, QueueNotFound
from rota.messages import QueuePage, QueueView
from rota.messages.limits import QueuePatch, TenantPage, TenantView
from rota.messages.outbound.push import PushPut, PushView
from rota.sdk.client import calls, limit_calls, outbound_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall

NONE = "none"  # resets a setting


class QueueReport(QueueView, frozen=True, kw_only=True):
    """A queue, and its tenants with the most tasks."""

    tenants: TenantPage


@click.group(cls=CommandGroup)
def queues() -> None:
    """List, pause and resume queues, and change their settings."""


@queues.command("ls")
@connected
def ls(client: Client, *, as_json: bool) -> None:
    """List the queues: waiting and running tasks, age of the oldest, and rates."""
    show(client.run(calls.list_queues()), as_json=as_json, render=_table)


@queues.command("show")
@click.argument("name")
@connected
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show one queue, with its settings and the tenants that have the most tasks."""
    found = [queue for queue in client.run(calls.list_queues()).items if queue.name == name]
    if not found:
        raise QueueNotFound(name)
    tenants = client.run(limit_calls.list_tenants(name))
    report = QueueReport(**msgspec.structs.asdict(found[0]), tenants=tenants)
    show(report, as_json=as_json, render=_report)


@queues.command("push")
@click.argument("name")
@click.option("--to", "receiver", help="The URL that its tasks are posted to.")
@click.option("--off", is_flag=True, help="Stop pushing, and leave the tasks to workers.")
@click.option("--timeout", help="Time limit of one request, as 30s or 5m.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, limits.MAX_PUSH_CONCURRENCY),
    help="How many tasks are pushed at once.",
)
@click.option(
    "--header-file",
    type=click.File(),
    help="File with header fields of every request, one `Name: value` in each line.",
)
@click.option(
    "--secret-file",
    type=click.File(),
    help="File with the secret that signs the requests; by default a new one.",
)
@connected
def push(client: Client, name: str, *, as_json: bool, **given: Any) -> None:
    """Push the tasks of a queue to a URL; without options, show where and how."""
    if given["off"]:
        gone = client.run(outbound_calls.delete_push(name))
        show(
            gone,
            as_json=as_json,
            render=lambda one: f"tasks of queue {one.queue} are no longer pushed",
        )
        return
    fields = _push_fields(client, name, given)
    if fields is None:
        show(client.run(outbound_calls.get_push(name)), as_json=as_json, render=_push_facts)
        return
    made = client.run(outbound_calls.put_push(name, PushPut(**fields)))
    show(made, as_json=as_json, render=_push_facts)


def _push_fields(client: Client, queue: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """What is to be set: what is given, and the rest as it is; None: nothing is given."""
    wanted: dict[str, Any] = {}
    if given["receiver"] is not None:
        wanted["url"] = given["receiver"]
    if given["timeout"] is not None:
        wanted["timeout_ms"] = duration_ms("--timeout", given["timeout"])
    if given["concurrency"] is not None:
        wanted["concurrency"] = given["concurrency"]
    if given["header_file"] is not None:
        wanted["headers"] = _headers(given["header_file"].read())
    if given["secret_file"] is not None:
        wanted["secret"] = given["secret_file"].read().strip()
    if not wanted:
        return None
    try:
        known = client.run(outbound_calls.get_push(queue))
    except PushNotFound:
        if "url" not in wanted:
            raise click.UsageError(
                f"queue {queue!r} has no push target yet: give its URL with --to"
            ) from None
        return wanted
    kept = {field: getattr(known, field) for field in ("url", "timeout_ms", "concurrency")}
    return kept | wanted


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise click.UsageError("--header-file: write each line as `Name: value`")
        found[name.strip()] = value.strip()
    return found


def _push_facts(view: PushView) -> Facts:
    return Facts(
        [
            ("queue", view.queue),
            ("pushed to", view.url),
            ("timeout", duration(view.timeout_ms)),
            ("at once", view.concurrency),
            ("headers", ", ".join(view.headers) or None),
            ("worker", view.worker_id),
            ("closed until", absolute(view.closed_until_ms)),
            ("secret", view.secret and f"{view.secret}  (copy it now, it is not shown again)"),
        ]
    )


def _add_verb(name: str, call: Callable[[str], ApiCall[QueueView]], description: str) -> None:
    @queues.command(name, help=description)
    @click.argument("name")
    @connected
    def verb(client: Client, name: str, *, as_json: bool) -> None:
        show(client.run(call(name)), as_json=as_json, render=_line)


_add_verb(
    "pause",
    calls.pause_queue,
    "Give out no more tasks of a queue; running ones finish, new ones are still accepted.",
)
_add_verb("resume", calls.resume_queue, "Give out the tasks of a paused queue again.")


@queues.command("set")
@click.argument("name")
@click.option("--max-running", metavar="NUMBER|none", help="Tasks of the queue that run at once.")
@click.option(
    "--max-queued", metavar="NUMBER|none", help="Refuse new tasks while this many are queued."
)
@click.option("--rate", metavar="LIMIT/PERIOD|none", help="Starts in a period, as 10/1s or 600/m.")
@click.option(
    "--burst",
    type=click.IntRange(1, limits.MAX_RATE),
    help="With --rate: how many tasks may start at once.  [default: 1]",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="TENANT=WEIGHT|none",
    help="Weight of a tenant, which is 1 by default; repeat for more.",
)
@click.option(
    "--fairness",
    type=click.Choice(["tasks", "time"]),
    help="What tenants share: starts, or the time of workers.  [default: tasks]",
)
@click.option(
    "--aging",
    metavar="TIME|none",
    help="What one point of priority is worth, as 1m; none: higher priorities always go first.",
)
@click.option(
    "--target-wait",
    metavar="TIME|none",
    help="How long tasks should wait at most, as 30s or 5m; longer waits are reported.",
)
@connected
def set_settings(
    client: Client,
    name: str,
    *,
    burst: int | None,
    weights: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Change the settings of a queue; `none` resets one.

    Changes apply at once, also to tasks that already wait. Other settings stay unchanged.
    """
    change: dict[str, Any] = {
        field: _number(f"--{field.replace('_', '-')}", given[field])
        for field in ("max_running", "max_queued")
        if given[field] is not None
    }
    if given["rate"] is not None:
        change["rate"] = _rate(given["rate"], burst)
    elif burst is not None:
        raise click.UsageError("--burst goes with --rate")
    if given["fairness"] is not None:
        change["fairness"] = given["fairness"]
    if given["aging"] is not None:
        change["aging_ms"] = _duration("--aging", given["aging"])
    if given["target_wait"] is not None:
        change["target_wait_ms"] = _duration("--target-wait", given["target_wait"])
    if weights:
        change["weights"] = _weights(client, name, weights)
    if not change:
        raise click.UsageError("give at least one setting; `rota queues set --help` lists them")
    try:
        patch = msgspec.convert(change, QueuePatch)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"the settings are not valid: {error}") from error
    show(client.run(limit_calls.change_queue(name, patch)), as_json=as_json, render=_facts)


def _number(option: str, given: str) -> int | None:
    if given == NONE:
        return None
    if not (given.isascii() and given.isdigit()):
        raise click.UsageError(f"{option}: {given!r} is neither a number nor {NONE!r}")
    return int(given)


def _duration(option: str, given: str) -> int | None:
    return None if given == NONE else duration_ms(option, given)


def _rate(given: str, burst: int | None) -> dict[str, int] | None:
    if given == NONE:
        return None
    limit, per_ms = rate("--rate", given)
    return {"limit": limit, "per_ms": per_ms} | ({} if burst is None else {"burst": burst})


def _weights(client: Client, queue: str, given: tuple[str, ...]) -> dict[str, float]:
    """The weights that the queue has, with the given ones changed."""
    weights: dict[str, float] = {}
    for one in client.run(calls.list_queues()).items:
        if one.name == queue:
            weights |= one.weights
    for pair in given:
        tenant, _, text = pair.rpartition("=")
        if text == NONE:
            weights.pop(tenant, None)
            continue
        try:
            weights[tenant] = float(text)
        except ValueError:
            raise click.UsageError(
                f"--weight: {pair!r} is not a weight; write it as TENANT=2"
            ) from None
    return weights


def _state(queue: QueueView) -> str:
    return "paused" if queue.paused else "open"


def _line(queue: QueueView) -> str:
    return f"queue {queue.name} is {_state(queue)}"


def _facts(queue: QueueView) -> Facts:
    rate = queue.rate
    return Facts(
        [
            ("queue", queue.name),
            ("state", _state(queue)),
            ("queued", queue.depth),
            ("scheduled", queue.scheduled),
            ("running", queue.running),
            ("oldest", duration(queue.oldest_age_ms)),
            ("in/s", f"{queue.submitted_per_s:.1f}"),
            ("done/s", f"{queue.finished_per_s:.1f}"),
            ("failed/s", f"{queue.failed_per_s:.1f}"),
            ("max running", "-" if queue.max_running is None else queue.max_running),
            ("max queued", "-" if queue.max_queued is None else queue.max_queued),
            ("rate", "-" if rate is None else rate_text(rate.limit, rate.per_ms)),
            ("fairness", queue.fairness),
            ("aging", duration(queue.aging_ms)),
            ("target wait", _target(queue)),
            *((f"weight of {tenant}", weight) for tenant, weight in queue.weights.items()),
        ]
    )


def _target(queue: QueueView) -> str:
    if queue.target_wait_ms is None:
        return "-"
    target = duration(queue.target_wait_ms)
    if queue.target_missed_ms is None:
        return f"{target}, met"
    return f"{target}, missed since {relative(queue.target_missed_ms)}"


def _report(queue: QueueReport) -> Facts:
    left = queue.tenants.total - len(queue.tenants.items)
    tenants = [(f"tenant {one.key}", _tenant(one)) for one in queue.tenants.items]
    if left > 0:
        tenants.append(("more tenants", str(left)))
    return Facts([*_facts(queue).pairs, *tenants])


def _tenant(one: TenantView) -> str:
    share = "-" if one.share is None else f"{one.share:.0%}"
    weight = "" if one.weight == 1 else f", weight {one.weight:g}"
    return f"{one.waiting} queued, {one.running} running, {share} of late{weight}"


def _table(page: QueuePage) -> Table:
    columns: dict[str, Callable[[QueueView], object]] = {
        "queue": lambda queue: queue.name,
        "state": _state,
        "queued": lambda queue: queue.depth,
        "scheduled": lambda queue: queue.scheduled,
        "running": lambda queue: queue.running,
        "oldest": lambda queue: duration(queue.oldest_age_ms),
        "in/s": lambda queue: f"{queue.submitted_per_s:.1f}",
        "done/s": lambda queue: f"{queue.finished_per_s:.1f}",
        "failed/s": lambda queue: f"{queue.failed_per_s:.1f}",
    }
    return table(page.items, columns, empty="no queues yet")
