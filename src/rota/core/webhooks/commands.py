"""Commands about webhooks, and what each of them changes.

Theory of operation. The leader reads the event log from the cursor of each webhook, and queues a
delivery for each event that the webhook wants, together with the new cursor, in one transaction. So
no event is lost and none is queued twice, whichever coordinator leads. A delivery stays until its
request was answered with 2xx, or its attempts are used up: at least once, and in no order.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from rota.core import limits
from rota.core.context import Context
from rota.core.events import Event, LoggedEvent
from rota.core.replies import CommandBase, Done
from rota.core.webhooks.model import WebhookDelivery, WebhookRecord, WebhookSpec, WebhookState
from rota.errors import TooMany, WebhookNotFound

FIRST_PAUSE_MS = 5_000  # between the first two attempts; doubled each time
GONE = 410  # the status by which a receiver says that it wants nothing more


class WebhookShown(Struct, frozen=True, kw_only=True):
    record: WebhookRecord
    is_new: bool = False
    has_new_secret: bool = False


class PutWebhook(CommandBase[WebhookShown], frozen=True, kw_only=True, tag="PutWebhook"):
    """Make a webhook, or change it."""

    name: str
    spec: WebhookSpec
    secret: str | None = None  # None: the one that it has
    new_secret: str  # that it gets if it has none; drawn by the gateway
    new_uid: str  # that it gets if it is new


class DeleteWebhook(CommandBase[WebhookShown], frozen=True, kw_only=True, tag="DeleteWebhook"):
    name: str


class TakenEvents(Struct, frozen=True, kw_only=True):
    """What one webhook takes from a part of the log."""

    webhook: str
    uid: str
    cursor: int  # the end of that part
    events: tuple[LoggedEvent, ...] = ()
    has_gap: bool = False  # events before the part were pruned unread


class QueueDeliveries(CommandBase[Done], frozen=True, kw_only=True, tag="QueueDeliveries"):
    """Queue deliveries, and move the cursors of their webhooks. Sent by the leader."""

    taken: tuple[TakenEvents, ...]


class DeliveryReport(Struct, frozen=True, kw_only=True):
    """How one request has ended."""

    webhook: str
    uid: str
    seq: int
    attempt: int
    code: int | None = None
    error: str | None = None  # None: the receiver has accepted it
    took_ms: int = 0
    retry_after_ms: int | None = None  # that the receiver has asked for

    @property
    def is_last(self) -> bool:
        """Whether the request has failed, and no further one is made."""
        is_over = self.attempt >= limits.MAX_DELIVERY_ATTEMPTS or self.code == GONE
        return self.error is not None and is_over


class ReportDeliveries(CommandBase[Done], frozen=True, kw_only=True, tag="ReportDeliveries"):
    """Take in how requests have ended. Sent by the leader."""

    reports: tuple[DeliveryReport, ...]


WebhookCommand = PutWebhook | DeleteWebhook | QueueDeliveries | ReportDeliveries
WebhookReply = WebhookShown


class WebhookTable(Struct):
    """The webhooks and deliveries that a batch touches, as they are after what was decided."""

    webhooks: dict[str, WebhookRecord]  # all of them: there are few
    deliveries: dict[
        tuple[str, int], WebhookDelivery
    ]  # by webhook and number: those that are reported
    last_seq: int  # of the event log
    deleted: set[str] = set()  # with their deliveries, before anything is written
    changed: dict[str, WebhookRecord] = {}
    written: dict[tuple[str, int], WebhookDelivery] = {}
    events: list[Event] = []


def reduce(table: WebhookTable, command: WebhookCommand, context: Context) -> WebhookShown | Done:
    match command:
        case PutWebhook():
            return _put(table, command, context.now_ms)
        case DeleteWebhook():
            record = _known(table, command.name)
            _delete(table, command.name)
            table.events.append(Event(type="webhook-deleted", subject=command.name))
            return WebhookShown(record=record)
        case QueueDeliveries():
            return Done(sum(_queue(table, one, context.now_ms) for one in command.taken))
        case ReportDeliveries():
            return Done(sum(_report(table, one, context) for one in command.reports))
        case _:
            assert_never(command)


def _put(table: WebhookTable, command: PutWebhook, now_ms: int) -> WebhookShown:
    before = table.webhooks.get(command.name)
    if before is None and len(table.webhooks) >= limits.MAX_WEBHOOKS:
        raise TooMany(
            f"there are already {limits.MAX_WEBHOOKS} webhooks, which is the limit; delete one",
            limit=limits.MAX_WEBHOOKS,
        )
    if before is None:
        state = WebhookState(uid=command.new_uid, created_at_ms=now_ms, updated_at_ms=now_ms)
        secret, cursor = command.secret or command.new_secret, table.last_seq
    else:
        secret, cursor = command.secret or before.secret, before.cursor
        state = replace(before.state, updated_at_ms=now_ms)
        if command.spec.enabled and not before.is_live:
            # It begins with what happens from now on; what waits is tried again.
            cursor = table.last_seq
            state = replace(
                state, disabled_at_ms=None, disabled_because=None, failures=0, failing_since_ms=None
            )
    record = WebhookRecord(
        name=command.name, spec=command.spec, secret=secret, cursor=cursor, state=state
    )
    _change(table, record)
    table.events.append(Event(type="webhook-put", subject=command.name))
    return WebhookShown(
        record=record,
        is_new=before is None,
        has_new_secret=before is None or secret != before.secret,
    )


def _queue(table: WebhookTable, taken: TakenEvents, now_ms: int) -> int:
    """Queue what a webhook has taken, unless it has changed since, or was taken before."""
    record = table.webhooks.get(taken.webhook)
    if record is None or record.state.uid != taken.uid or taken.cursor <= record.cursor:
        return 0
    queued = [one for one in taken.events if one.seq > record.cursor] if record.is_live else []
    for event in queued:
        delivery = WebhookDelivery(
            webhook=record.name, event=event, queued_at_ms=now_ms, due_ms=now_ms
        )
        _write(table, delivery)
    state = replace(record.state, missed_at_ms=now_ms) if taken.has_gap else record.state
    _change(table, replace(record, cursor=taken.cursor, state=state))
    return len(queued)


def _report(table: WebhookTable, report: DeliveryReport, context: Context) -> int:
    record = table.webhooks.get(report.webhook)
    before = table.deliveries.get((report.webhook, report.seq))
    if record is None or record.state.uid != report.uid:
        return 0
    if before is None or before.state != "waiting" or before.attempts >= report.attempt:
        return 0
    delivery = after_attempt(before, report, context)
    _write(table, delivery)
    state = after_delivery(record.state, delivery, context.now_ms)
    if state.disabled_at_ms is not None and record.state.disabled_at_ms is None:
        data = {"reason": state.disabled_because, "failures": state.failures}
        table.events.append(Event(type="webhook-disabled", subject=record.name, data=data))
    _change(table, replace(record, state=state))
    return 1


def after_attempt(
    delivery: WebhookDelivery, report: DeliveryReport, context: Context
) -> WebhookDelivery:
    """A delivery after one request: delivered, tried again later, or failed for good."""
    ended = replace(
        delivery,
        attempts=report.attempt,
        last_at_ms=context.now_ms,
        code=report.code,
        error=None if report.error is None else report.error[: limits.MAX_EVENT_TEXT],
        took_ms=report.took_ms,
        due_ms=None,
    )
    if report.error is None:
        return replace(ended, state="delivered")
    if report.is_last:
        return replace(ended, state="failed")
    pause_ms = retry_pause_ms(report.attempt, context.dice())
    if report.retry_after_ms is not None:
        pause_ms = max(pause_ms, min(report.retry_after_ms, limits.MAX_DELIVERY_PAUSE_MS))
    return replace(ended, due_ms=context.now_ms + pause_ms)


def retry_pause_ms(attempt: int, dice: float) -> int:
    """The pause after an attempt: doubled each time, and up to a quarter longer by chance."""
    pause_ms = min(FIRST_PAUSE_MS << (attempt - 1), limits.MAX_DELIVERY_PAUSE_MS)
    return round(pause_ms * (1 + dice / 4))


def after_delivery(state: WebhookState, delivery: WebhookDelivery, now_ms: int) -> WebhookState:
    """A webhook's state after one request; failures alone for long disable it."""
    if delivery.state == "delivered":
        return replace(
            state,
            failures=0,
            failing_since_ms=None,
            last_success_ms=now_ms,
            delivered=state.delivered + 1,
        )
    since_ms = now_ms if state.failing_since_ms is None else state.failing_since_ms
    failed = replace(
        state,
        failures=state.failures + 1,
        failing_since_ms=since_ms,
        given_up=state.given_up + (delivery.state == "failed"),
    )
    if failed.disabled_at_ms is not None:
        return failed
    if delivery.code == GONE:
        return replace(failed, disabled_at_ms=now_ms, disabled_because="gone")
    if now_ms - since_ms >= limits.WEBHOOK_DISABLED_AFTER_MS:
        return replace(failed, disabled_at_ms=now_ms, disabled_because="failing")
    return failed


def _delete(table: WebhookTable, name: str) -> None:
    del table.webhooks[name]
    table.deleted.add(name)
    table.changed.pop(name, None)
    for deliveries in (table.deliveries, table.written):
        for key in [one for one in deliveries if one[0] == name]:
            del deliveries[key]


def _known(table: WebhookTable, name: str) -> WebhookRecord:
    record = table.webhooks.get(name)
    if record is None:
        raise WebhookNotFound(name)
    return record


def _change(table: WebhookTable, record: WebhookRecord) -> None:
    table.webhooks[record.name] = table.changed[record.name] = record


def _write(table: WebhookTable, delivery: WebhookDelivery) -> None:
    key = delivery.webhook, delivery.event.seq
    table.deliveries[key] = table.written[key] = delivery
