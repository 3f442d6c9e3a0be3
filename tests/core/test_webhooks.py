"""The rules of webhooks: what each wants, how it is told, and when a delivery is tried again."""

from typing import Any

import msgspec
import pytest

from rota.core import limits
from rota.core.context import Context, Rules
from rota.core.events import EVENT_KINDS, LoggedEvent
from rota.core.webhooks import commands
from rota.core.webhooks.commands import (
    DeleteWebhook,
    DeliveryReport,
    PutWebhook,
    QueueDeliveries,
    ReportDeliveries,
    TakenEvents,
    WebhookShown,
    WebhookTable,
    retry_pause_ms,
)
from rota.core.webhooks.model import (
    DEFAULT_EVENTS,
    WebhookDelivery,
    WebhookRecord,
    WebhookSpec,
    check_patterns,
    wanted_types,
    wants,
)
from rota.core.webhooks.rendering import body_of, text_of, trial_event
from rota.errors import Invalid, TooMany, WebhookNotFound

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
URL = "https://hooks.example/x"


def event(
    kind: str = "task-failed", subject: str = "t1", /, seq: int = 7, **data: Any
) -> LoggedEvent:
    return LoggedEvent(seq=seq, at_ms=NOW_MS, type=kind, subject=subject, data=data)


def spec(**changes: Any) -> WebhookSpec:
    return WebhookSpec(**{"url": URL, **changes})


class Hooks:
    """A table of webhooks, and the clock by which commands on it are decided."""

    def __init__(self) -> None:
        self.table = WebhookTable(webhooks={}, deliveries={}, last_seq=5)
        self.now_ms = NOW_MS

    def decide(self, command: Any) -> Any:
        context = Context(
            now_ms=self.now_ms, steady_ms=self.now_ms, rules=Rules(), dice=lambda: 0.0
        )
        return commands.reduce(self.table, command, context)

    def put(self, name: str = "ops", **changes: Any) -> WebhookShown:
        own = {key: changes.pop(key) for key in ("secret",) if key in changes}
        shown: WebhookShown = self.decide(
            PutWebhook(name=name, spec=spec(**changes), new_secret="made", new_uid="u", **own)
        )
        return shown

    def queue(self, *events: LoggedEvent, cursor: int = 10, **changes: Any) -> int:
        fields: dict[str, Any] = {"webhook": "ops", "uid": "u", "cursor": cursor, **changes}
        taken = TakenEvents(events=events, **fields)
        return int(self.decide(QueueDeliveries(taken=(taken,))).count)

    def report(self, attempt: int = 1, seq: int = 7, **changes: Any) -> WebhookDelivery:
        fields: dict[str, Any] = {"webhook": "ops", "uid": "u", **changes}
        report = DeliveryReport(seq=seq, attempt=attempt, **fields)
        self.decide(ReportDeliveries(reports=(report,)))
        return self.table.deliveries["ops", seq]

    @property
    def record(self) -> WebhookRecord:
        return self.table.webhooks["ops"]

    @property
    def told(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.type, one.data) for one in self.table.events]


@pytest.fixture
def hooks() -> Hooks:
    made = Hooks()
    made.put()
    return made


# --- what a webhook wants -----------------------------------------------------------------------


def test_the_default_events_exist() -> None:
    check_patterns(spec())

    assert wanted_types(spec()) <= EVENT_KINDS.keys()
    assert len(wanted_types(spec())) == len(DEFAULT_EVENTS)


def test_a_type_a_prefix_and_a_reason_are_patterns() -> None:
    wanted = spec(events=("task-failed", "run-*", "worker-unregistered:unhealthy"))

    assert wants(wanted, event("task-failed"))
    assert not wants(wanted, event("task-retrying"))
    assert wants(wanted, event("run-paused"))
    assert wants(wanted, event("worker-unregistered", reason="unhealthy"))
    assert not wants(wanted, event("worker-unregistered", reason="left"))
    assert {"run-failed", "task-failed", "worker-unregistered"} <= wanted_types(wanted)


def test_queues_and_workflows_narrow_the_events() -> None:
    wanted = spec(events=("*",), queues=("mail", "eu-*"), workflows=("order",))

    assert wants(wanted, event("task-failed", queue="mail"))
    assert wants(wanted, event("task-failed", queue="eu-west"))
    assert not wants(wanted, event("task-failed", queue="mailing"))
    assert wants(wanted, event("queue-stuck", "mail"))
    assert not wants(wanted, event("queue-stuck", "other"))
    assert wants(wanted, event("run-failed", workflow="order"))
    assert not wants(wanted, event("run-failed", workflow="orders"))
    assert wants(wanted, event("worker-unregistered", queues=["x", "mail"]))
    assert not wants(wanted, event("worker-unregistered"))
    assert not wants(wanted, event("lock-released"))


@pytest.mark.parametrize(
    "changes",
    [
        {"events": ()},
        {"events": ("task-exploded",)},
        {"events": ("tusk-*",)},
        {"events": ("run-failed:x",)},
        {"events": ("worker-unregistered:",)},
        {"queues": ("a*b",)},
        {"workflows": ("*x",)},
    ],
)
def test_a_pattern_that_can_never_match_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        check_patterns(spec(**changes))

    assert refused.value.facts["field"] in changes


# --- how it is told -----------------------------------------------------------------------------


def test_a_body_has_the_facts_of_the_event() -> None:
    failed = event(queue="mail", name="send", error={"type": "E", "message": "m"})
    body = msgspec.json.decode(body_of(failed, webhook="ops", message_id="u-7", form="rota"))

    assert body == {
        "id": "u-7",
        "type": "task-failed",
        "webhook": "ops",
        "seq": 7,
        "at_ms": NOW_MS,
        "subject": "t1",
        "data": {"queue": "mail", "name": "send", "error": {"type": "E", "message": "m"}},
    }


def test_a_body_that_is_too_long_has_no_data() -> None:
    long = event(capabilities=["x" * 200] * 1_000)
    body = body_of(long, webhook="ops", message_id="u-7", form="rota")

    assert len(body) < limits.MAX_WEBHOOK_BODY_BYTES
    assert msgspec.json.decode(body)["is_cut"] is True


def test_a_text_says_what_has_happened_and_makes_no_mention_or_link() -> None:
    failed = event(
        queue="<!channel>",
        name="a`b",
        error={"type": "E", "message": "<https://evil|x>\n&"},
    )

    body = msgspec.json.decode(body_of(failed, webhook="ops", message_id="m", form="slack"))

    assert body == {
        "text": "*task t1* failed · name `a'b` · queue `&lt;!channel&gt;`\n"
        ">E: &lt;https://evil|x&gt; &amp;"
    }
    assert "ops" in text_of(trial_event("ops", NOW_MS))
    assert text_of(event("queue-stuck", "mail", text="no worker serves queue 'mail'")) == (
        "*queue mail* cannot start its tasks\n>no worker serves queue 'mail'"
    )


def test_a_text_about_an_approval_asks_its_question() -> None:
    data = {"workflow": "order", "version": 1, "approval": "ship", "title": "Ship order 17?"}
    event = LoggedEvent(seq=7, at_ms=1, type="run-approval-asked", subject="r1", data=data)

    asked = "*run r1* waits for an approval · workflow `order` · approval `ship`\n>Ship order 17?"
    assert text_of(event) == asked


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_event_has_a_text(kind: str) -> None:
    data: Any = dict.fromkeys(EVENT_KINDS[kind].data, "x")

    assert "s1" in text_of(event(kind, "s1", **data))


# --- putting ------------------------------------------------------------------------------------


def test_a_new_webhook_begins_with_what_comes(hooks: Hooks) -> None:
    assert (hooks.record.cursor, hooks.record.secret, hooks.record.state.uid) == (5, "made", "u")
    assert hooks.told == [("webhook-put", {})]


def test_a_changed_webhook_keeps_its_secret_and_its_place(hooks: Hooks) -> None:
    hooks.table.last_seq = 9
    shown = hooks.put(format="slack")

    assert not shown.is_new
    assert not shown.has_new_secret
    assert (hooks.record.cursor, hooks.record.secret) == (5, "made")
    assert hooks.put(secret="given").has_new_secret
    assert hooks.record.secret == "given"


def test_there_are_only_so_many_webhooks(hooks: Hooks) -> None:
    for number in range(limits.MAX_WEBHOOKS - 1):
        hooks.put(f"w{number}")

    with pytest.raises(TooMany):
        hooks.put("one more")
    hooks.put("ops")


def test_a_deleted_webhook_takes_its_deliveries_along(hooks: Hooks) -> None:
    hooks.queue(event())
    hooks.decide(DeleteWebhook(name="ops"))

    assert (hooks.table.webhooks, hooks.table.written) == ({}, {})
    assert hooks.table.deleted == {"ops"}
    with pytest.raises(WebhookNotFound):
        hooks.decide(DeleteWebhook(name="ops"))


# --- queueing -----------------------------------------------------------------------------------


def test_events_are_queued_once_with_the_cursor(hooks: Hooks) -> None:
    assert hooks.queue(event(seq=6), event(seq=7), cursor=8) == 2
    assert hooks.queue(event(seq=6), event(seq=7), cursor=8) == 0
    assert hooks.queue(event(seq=7), event(seq=9), cursor=9) == 1
    assert hooks.record.cursor == 9
    assert sorted(seq for _, seq in hooks.table.written) == [6, 7, 9]


def test_what_another_webhook_of_the_name_took_is_not_queued(hooks: Hooks) -> None:
    assert hooks.queue(event(), uid="earlier") == 0
    assert hooks.queue(event(), webhook="gone") == 0


def test_a_webhook_that_is_off_queues_nothing(hooks: Hooks) -> None:
    hooks.put(enabled=False)

    assert hooks.queue(event(seq=9), cursor=9) == 0
    hooks.table.last_seq = 20
    hooks.put()
    assert hooks.record.cursor == 20


def test_a_gap_in_the_log_is_noted(hooks: Hooks) -> None:
    hooks.queue(has_gap=True)

    assert hooks.record.state.missed_at_ms == NOW_MS


# --- requests -----------------------------------------------------------------------------------


def test_a_success_ends_a_delivery(hooks: Hooks) -> None:
    hooks.queue(event())
    ended = hooks.report(code=204, took_ms=3)

    assert (ended.state, ended.due_ms, ended.code, ended.attempts) == ("delivered", None, 204, 1)
    assert hooks.record.state.delivered == 1
    assert hooks.record.state.last_success_ms == NOW_MS


def test_a_failure_is_tried_again_later(hooks: Hooks) -> None:
    hooks.queue(event())
    failed = hooks.report(code=500, error="answered 500")

    assert (failed.state, failed.due_ms) == ("waiting", NOW_MS + 5_000)
    assert (hooks.record.state.failures, hooks.record.state.failing_since_ms) == (1, NOW_MS)
    hooks.report(2, code=200)
    assert (hooks.record.state.failures, hooks.record.state.failing_since_ms) == (0, None)


def test_pauses_double_up_to_a_bound_with_a_part_by_chance() -> None:
    pauses = [retry_pause_ms(attempt, 0.0) for attempt in range(1, 17)]

    assert pauses[:4] == [5_000, 10_000, 20_000, 40_000]
    assert pauses[-1] == limits.MAX_DELIVERY_PAUSE_MS
    assert retry_pause_ms(1, 0.5) == 5_625
    assert sum(pauses) < 10 * HOUR_MS


def test_a_receiver_is_left_alone_for_as_long_as_it_asks(hooks: Hooks) -> None:
    hooks.queue(event())

    assert hooks.report(error="x", retry_after_ms=60_000).due_ms == NOW_MS + 60_000
    assert hooks.report(2, error="x", retry_after_ms=0).due_ms == NOW_MS + 10_000
    late = hooks.report(3, error="x", retry_after_ms=10**15).due_ms
    assert late == NOW_MS + limits.MAX_DELIVERY_PAUSE_MS


def test_a_delivery_fails_after_its_last_attempt(hooks: Hooks) -> None:
    hooks.queue(event())
    last = hooks.report(limits.MAX_DELIVERY_ATTEMPTS, error="x" * 5_000)

    assert (last.state, last.due_ms) == ("failed", None)
    assert len(last.error or "") == limits.MAX_EVENT_TEXT
    assert hooks.record.state.given_up == 1


def test_a_report_counts_once(hooks: Hooks) -> None:
    hooks.queue(event())
    hooks.report(error="x")
    hooks.report(error="x")
    hooks.report(error="x", uid="earlier")
    hooks.report(2)
    hooks.report(3, error="x")

    assert hooks.record.state.delivered == 1
    assert hooks.table.deliveries["ops", 7].attempts == 2


def test_a_webhook_that_fails_for_a_day_is_disabled_once(hooks: Hooks) -> None:
    hooks.queue(event(seq=7), event(seq=8))
    hooks.report(error="x")
    hooks.now_ms += limits.WEBHOOK_DISABLED_AFTER_MS - 1
    hooks.report(2, error="x")
    assert hooks.record.state.disabled_at_ms is None
    hooks.now_ms += 1
    hooks.report(3, error="x")
    hooks.report(1, seq=8, error="x")

    assert not hooks.record.is_live
    disabled = [data for kind, data in hooks.told if kind == "webhook-disabled"]
    assert disabled == [{"reason": "failing", "failures": 3}]
    assert hooks.record.state.disabled_at_ms == hooks.now_ms


def test_a_receiver_that_is_gone_disables_its_webhook(hooks: Hooks) -> None:
    hooks.queue(event())
    gone = hooks.report(code=410, error="answered 410")

    assert gone.state == "failed"
    assert hooks.record.state.disabled_because == "gone"


def test_enabling_it_lets_a_webhook_begin_afresh(hooks: Hooks) -> None:
    hooks.queue(event(), cursor=7)
    hooks.report(code=410, error="x")
    hooks.table.last_seq = 50
    hooks.put()

    assert hooks.record.is_live
    assert (hooks.record.cursor, hooks.record.state.failures) == (50, 0)
