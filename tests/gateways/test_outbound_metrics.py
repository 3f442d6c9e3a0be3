"""The metrics of webhooks and pushed tasks: how requests ended, how long they took, what waits."""

from collections.abc import Callable

import pytest

from rota.core import limits
from rota.core.webhooks.commands import GONE, DeliveryReport
from rota.engine.metrics.outbound import LATENCY_BOUNDS_S, LatencyHistogram
from tests.gateways.serving import Api
from tests.gateways.test_access import token
from tests.gateways.test_operations import samples
from tests.gateways.test_push import ended, is_in, pushing, receiver, submit
from tests.gateways.test_push import put as push_to
from tests.gateways.test_webhooks import fail
from tests.gateways.test_webhooks import put as put_webhook
from tests.outbound.receiving import Received, Receiver, answer

__all__ = ["pushing", "receiver"]  # fixtures

ANSWERS: dict[str, Callable[[Received], bytes | None]] = {
    "delivered": lambda _: answer(204),
    "refused": lambda _: answer(500),
    "busy": lambda _: answer(503, retry_after="60"),
    "failed": lambda _: b"no HTTP",
}


@pytest.mark.parametrize("outcome", ANSWERS)
async def test_a_delivery_is_counted_by_its_outcome(
    pushing: Api, receiver: Receiver, outcome: str
) -> None:
    receiver.answer = ANSWERS[outcome]
    await put_webhook(pushing, receiver)
    await fail(pushing)
    await receiver.wait_for(1)
    await pushing.turn(0)

    found = await samples(pushing)
    is_delivered = outcome == "delivered"
    assert [one[1:] for one in found if one[0] == "rota_outbound_requests_total"] == [
        tuple(sorted((outcome, "webhook")))
    ]
    assert found["rota_outbound_given_up_total", "webhook"] == 0
    assert found["rota_outbound_requests_in_flight", "webhook"] == 0
    assert found["rota_outbound_request_seconds_count", "webhook"] == 1
    assert found["rota_outbound_request_seconds_bucket", "+Inf", "webhook"] == 1
    assert found["rota_outbound_request_seconds_sum", "webhook"] > 0
    assert found["rota_webhook_deliveries_pending",] == int(not is_delivered)
    assert found["rota_webhooks", "active"] == int(is_delivered)
    assert found["rota_webhooks", "failing"] == int(not is_delivered)


async def test_a_delivery_that_is_not_tried_again_is_given_up(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: answer(410)
    await put_webhook(pushing, receiver)
    await fail(pushing)
    await receiver.wait_for(1)
    await pushing.turn(0)

    found = await samples(pushing)
    assert found["rota_outbound_given_up_total", "webhook"] == 1
    assert found["rota_webhooks", "disabled"] == 1
    assert found["rota_webhook_deliveries_pending",] == 0


@pytest.mark.parametrize("outcome", ANSWERS)
async def test_a_pushed_task_is_counted_by_its_outcome(
    pushing: Api, receiver: Receiver, outcome: str
) -> None:
    receiver.answer = ANSWERS[outcome]
    await push_to(pushing, receiver)
    task_id = await submit(pushing, max_attempts=1)
    if outcome == "busy":
        await is_in(pushing, task_id, "scheduled")
    else:
        await ended(pushing, task_id)

    found = await samples(pushing)
    assert found["rota_outbound_requests_total", *sorted((outcome, "push"))] == 1
    assert found["rota_outbound_given_up_total", "push"] == int(outcome in {"refused", "failed"})
    assert found["rota_outbound_request_seconds_count", "push"] == 1
    assert found["rota_outbound_requests_in_flight", "push"] == 0


async def test_requests_under_way_are_shown(pushing: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    await push_to(pushing, receiver)
    await submit(pushing)
    await receiver.wait_for(1)

    found = await samples(pushing)
    assert found["rota_outbound_requests_in_flight", "push"] == 1
    assert found["rota_outbound_request_seconds_count", "push"] == 0


async def test_neither_names_nor_addresses_of_webhooks_are_shown(
    pushing: Api, receiver: Receiver
) -> None:
    await put_webhook(pushing, receiver, name="very-secret-name")
    await fail(pushing)
    await receiver.wait_for(1)
    await pushing.turn(0)

    page = (await pushing.get("/metrics")).text
    assert "very-secret-name" not in page
    assert "127.0.0.1" not in page


async def test_a_caller_that_is_bound_to_a_queue_sees_nothing_of_webhooks(
    pushing: Api, receiver: Receiver
) -> None:
    await put_webhook(pushing, receiver)
    bound = await token(pushing, "read", queues=("mail",))
    page = await pushing.client.get("/metrics", headers=bound)

    assert page.status_code == 200
    assert "rota_webhook" not in page.text
    assert "rota_outbound" not in page.text


def test_a_duration_is_in_the_class_whose_bound_it_does_not_exceed() -> None:
    histogram = LatencyHistogram()
    for seconds in (0.0, LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[1], 1e9):
        histogram.note(seconds)

    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-1] == 1
    assert sum(histogram.counts) == 4


def test_a_report_is_the_last_one_when_attempts_are_used_up_or_the_receiver_is_gone() -> None:
    def is_last(attempt: int, code: int | None, error: str | None) -> bool:
        report = DeliveryReport(
            webhook="w", uid="u", seq=1, attempt=attempt, code=code, error=error
        )
        return report.is_last

    assert is_last(limits.MAX_DELIVERY_ATTEMPTS, None, "timeout")
    assert is_last(1, GONE, "answered 410")
    assert not is_last(1, 500, "answered 500")
    assert not is_last(limits.MAX_DELIVERY_ATTEMPTS, 200, None)
