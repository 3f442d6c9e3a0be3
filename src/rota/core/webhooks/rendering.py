"""The body of a delivery: the event as JSON, or a line of text for people.

A delivery has the facts of an event and nothing of the payload or the result of a task.
"""

from typing import Any

import msgspec

from rota.core import limits
from rota.core.events import LoggedEvent
from rota.core.webhooks.model import WebhookFormat

TEST_TYPE = "webhook-test"  # of a dry delivery; not in the log
_encode = msgspec.json.Encoder().encode

# What has happened to the subject, in words.
_VERBS = {
    "task-failed": "failed",
    "task-retrying": "will be retried",
    "task-cancelled": "was cancelled",
    "run-failed": "failed",
    "run-timed-out": "ran past its time limit",
    "run-cancelled": "was cancelled",
    "run-completed": "completed",
    "run-paused": "is paused",
    "run-approval-asked": "waits for an approval",
    "queue-paused": "is paused",
    "queue-resumed": "is resumed",
    "queue-full": "refuses submissions: it is full",
    "queue-stuck": "cannot start its tasks",
    "queue-unstuck": "can start its tasks again",
    "queue-target-missed": "has tasks that wait longer than its target",
    "queue-target-met": "meets its target again",
    "worker-unregistered": "was unregistered",
    "worker-health": "changed its health",
    "schedule-refused": "could not fire",
    "schedule-paused": "is paused",
    "webhook-disabled": "is disabled",
}


def body_of(event: LoggedEvent, *, webhook: str, message_id: str, form: WebhookFormat) -> bytes:
    """The body of the request for one event."""
    if form == "slack":
        return _encode({"text": text_of(event)})
    document = {
        "id": message_id,
        "type": event.type,
        "webhook": webhook,
        "seq": event.seq,
        "at_ms": event.at_ms,
        "subject": event.subject,
        "data": event.data,
    }
    body = _encode(document)
    if len(body) > limits.MAX_WEBHOOK_BODY_BYTES:
        body = _encode(document | {"data": {}, "is_cut": True})
    return body


def trial_event(webhook: str, now_ms: int) -> LoggedEvent:
    """The event of a dry delivery."""
    return LoggedEvent(seq=0, at_ms=now_ms, type=TEST_TYPE, subject=webhook)


def text_of(event: LoggedEvent) -> str:
    """One line about an event, for receivers in the style of Slack.

    Names and errors come from callers. Their `&`, `<` and `>` are escaped, because `<!channel>`
    and `<https://…>` would notify people and make links.
    """
    if event.type == TEST_TYPE:
        return f"A test of webhook *{_escaped(event.subject)}*: deliveries arrive here."
    noun = event.type.partition("-")[0]
    verb = _VERBS.get(event.type, f"({event.type})")
    parts = [f"*{noun} {_escaped(event.subject)}* {verb}"]
    parts += [f"{label} `{_escaped(value)}`" for label, value in _facts(event)]
    text = " · ".join(parts)
    detail = _detail(event.data)
    return f"{text}\n>{_escaped(detail)}" if detail else text


def _facts(event: LoggedEvent) -> list[tuple[str, Any]]:
    data = event.data
    shown = ["name", "workflow", "approval", "queue", "reason", "health", "attempt", "queued"]
    if event.type.startswith("queue-"):
        shown.remove("queue")
    return [(name, data[name]) for name in shown if data.get(name) is not None]


def _detail(data: dict[str, Any]) -> str:
    error = data.get("error")
    if isinstance(error, dict):
        return f"{error.get('type', '')}: {error.get('message', '')}".strip(": ")
    found = data.get("text") or error or data.get("note") or data.get("title") or ""
    return str(found)


def _escaped(value: object) -> str:
    text = " ".join(str(value)[: limits.MAX_EVENT_TEXT].split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
