"""Webhooks, their deliveries, and pushed queues in the store."""

from typing import Any

import pytest
from msgspec.structs import replace

from rota.core import limits
from rota.core.events import LoggedEvent
from rota.core.outbound.push import PushRecord, PushSpec
from rota.core.webhooks.model import WebhookDelivery, WebhookRecord, WebhookSpec, WebhookState
from rota.store.outbound.push import PushStore
from rota.store.outbound.webhooks import PendingDeliveries, WebhookStore
from rota.store.tasks.queues import QueueStore
from tests.store.opened import Opened

MOST = limits.MAX_ENDED_DELIVERIES


def webhook(name: str = "ops", **changes: Any) -> WebhookRecord:
    fields: dict[str, Any] = {
        "spec": WebhookSpec(url="https://x/", queues=("a\0",), enabled=False),
        "secret": "whsec_x",
        "cursor": 2**62,
        "state": WebhookState(uid="u", created_at_ms=1, updated_at_ms=2, failures=3),
        **changes,
    }
    return WebhookRecord(name=name, **fields)


def delivery(seq: int, webhook: str = "ops", **changes: Any) -> WebhookDelivery:
    event = LoggedEvent(seq=seq, at_ms=1, type="task-failed", subject="s\0", data={"a": [1.5]})
    fields: dict[str, Any] = {"queued_at_ms": 1, "due_ms": seq, **changes}
    return WebhookDelivery(webhook=webhook, event=event, **fields)


@pytest.fixture
def webhooks(store: Opened) -> WebhookStore:
    return WebhookStore(store.tx)


def test_a_webhook_comes_back_as_it_was_put(webhooks: WebhookStore) -> None:
    webhooks.put(webhook("b"))
    webhooks.put(webhook("a"))
    webhooks.put(webhook("b", cursor=7))

    assert webhooks.all() == [webhook("a"), webhook("b", cursor=7)]


def test_a_deleted_webhook_takes_its_deliveries_along(webhooks: WebhookStore) -> None:
    webhooks.put(webhook("a"))
    webhooks.put_deliveries([delivery(1, "a"), delivery(1, "b")])
    webhooks.delete("a")

    assert webhooks.all() == []
    assert webhooks.newest("a", limit=9) == []
    assert webhooks.newest("b", limit=9) == [delivery(1, "b")]


def test_deliveries_come_back_by_number_by_age_and_when_they_are_due(
    webhooks: WebhookStore,
) -> None:
    ended = delivery(3, due_ms=None, state="delivered", code=200)
    webhooks.put_deliveries([delivery(1), delivery(2), ended, delivery(9, "other")])
    webhooks.put_deliveries([delivery(1, due_ms=5, attempts=1)])

    assert webhooks.deliveries("ops", [3, 4]) == [ended]
    assert [one.event.seq for one in webhooks.newest("ops", limit=2)] == [3, 2]
    assert [one.event.seq for one in webhooks.due("ops", now_ms=5, limit=9)] == [2, 1]
    assert webhooks.due("ops", now_ms=1, limit=9) == []
    assert webhooks.pending() == {"ops": PendingDeliveries(2, 2), "other": PendingDeliveries(1, 9)}


def test_only_the_newest_ended_deliveries_stay_and_all_that_wait(webhooks: WebhookStore) -> None:
    webhooks.put_deliveries([delivery(0)])
    ended = [delivery(seq, due_ms=None, state="failed") for seq in range(1, MOST + 11)]
    webhooks.put_deliveries(ended)

    kept = [one.event.seq for one in webhooks.newest("ops", limit=1_000)]
    assert kept == [*range(MOST + 10, 10, -1), 0]


def test_stuck_queues_are_noted_and_dropped(store: Opened) -> None:
    queues = QueueStore(store.tx)
    queues.set_stuck("a", 1)
    queues.set_stuck("b", 2)
    queues.set_stuck("a", 3)
    queues.set_stuck("b", None)

    assert queues.stuck() == {"a": 1}


def test_a_pushed_queue_comes_back_as_it_was_put(store: Opened) -> None:
    pushes = PushStore(store.tx)
    spec = PushSpec(url="https://x/", headers={"a": "b"}, concurrency=3)
    whole = PushRecord(
        queue="fn\0", spec=spec, secret="whsec_x", changed_at_ms=1, closed_until_ms=2**62
    )
    pushes.put(replace(whole, secret="other"))
    pushes.put(whole)
    pushes.put(replace(whole, queue="gone"))
    pushes.delete("gone")

    assert pushes.all() == {"fn\0": whole}
