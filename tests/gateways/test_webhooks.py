"""Webhooks over HTTP: made, shown without their secret, tested, refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota.webhooks
from rota.core import limits
from tests.gateways.serving import Api, Json, served
from tests.gateways.test_kv import refusal
from tests.outbound.receiving import Receiver, answer, receiving

SECRET = "whsec_" + "A" * 44  # of 33 bytes


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, outbound_allow="127.0.0.1") as running:
        yield running


async def send(api: Api, url: str, name: str = "ops", **body: Any) -> httpx.Response:
    return await api.client.put(f"/api/webhooks/{name}", json={"url": url, **body})


async def put(api: Api, receiver: Receiver, name: str = "ops", **body: Any) -> Json:
    made = await send(api, receiver.url, name, **body)
    assert made.status_code in {200, 201}, made.text
    return made.json()


async def fail(api: Api, **task: Any) -> None:
    job = await api.submit(max_attempts=1, **task)
    await api.post(f"/api/jobs/{job['id']}/start")
    await api.post(f"/api/jobs/{job['id']}/fail", {"error": "broken"})


async def test_a_secret_is_shown_once(hooked: Api, receiver: Receiver) -> None:
    made = await send(hooked, receiver.url)
    secret = made.json()["secret"]
    changed = await put(hooked, receiver, description="for the team")
    shown = await hooked.get("/api/webhooks/ops")
    listed = await hooked.get("/api/webhooks")
    events = await hooked.get("/api/events")

    assert made.status_code == 201
    assert secret.startswith("whsec_")
    assert changed["secret"] is None
    assert changed["description"] == "for the team"
    for answered in (shown, listed, events):
        assert secret not in answered.text
    # The path of a URL is often a secret, too.
    assert receiver.url not in events.text
    replaced = await put(hooked, receiver, secret=SECRET)
    assert replaced["secret"] == SECRET


async def test_an_event_is_delivered_and_the_delivery_is_shown(
    hooked: Api, receiver: Receiver
) -> None:
    made = await put(hooked, receiver)
    await fail(hooked, queue="mail")
    (request, *_) = await receiver.wait_for(1)
    await hooked.turn(0)

    event = rota.webhooks.verify(
        request.headers, request.body, made["secret"], now_s=hooked.clock.now_ms() / 1000
    )
    shown = (await hooked.get("/api/webhooks/ops")).json()
    (delivery,) = shown["deliveries"]
    assert event["data"]["queue"] == "mail"
    assert (delivery["id"], delivery["state"], delivery["code"]) == (event["id"], "delivered", 200)
    assert (shown["state"], shown["delivered"], shown["pending"]) == ("active", 1, 0)


async def test_a_failing_receiver_shows_why_and_when_it_is_tried_again(
    hooked: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: answer(503, retry_after="90")
    await put(hooked, receiver)
    await fail(hooked)
    await receiver.wait_for(1)
    await hooked.turn(0)

    shown = (await hooked.get("/api/webhooks/ops")).json()
    (delivery,) = shown["deliveries"]
    assert (shown["state"], shown["failures"], shown["pending"]) == ("failing", 1, 1)
    assert (delivery["code"], delivery["error"]) == (503, "answered 503")
    assert delivery["next_at_ms"] == hooked.clock.now_ms() + 90_000


async def test_a_test_sends_one_signed_event_and_changes_nothing(
    hooked: Api, receiver: Receiver
) -> None:
    made = await put(hooked, receiver, enabled=False, format="slack")
    taken = (await hooked.post("/api/webhooks/ops/test")).json()
    receiver.answer = lambda _: answer(404, b"no such hook")
    refused = (await hooked.post("/api/webhooks/ops/test")).json()

    assert (taken["ok"], taken["code"]) == (True, 200)
    assert (refused["ok"], refused["error"]) == (False, "answered 404: no such hook")
    request = receiver.requests[0]
    body = rota.webhooks.verify(
        request.headers, request.body, made["secret"], now_s=hooked.clock.now_ms() / 1000
    )
    assert "ops" in body["text"]
    shown = (await hooked.get("/api/webhooks/ops")).json()
    assert (shown["state"], shown["failures"], shown["deliveries"]) == ("off", 0, [])


async def test_a_deleted_webhook_is_gone(hooked: Api, receiver: Receiver) -> None:
    await put(hooked, receiver)
    gone = await hooked.delete("/api/webhooks/ops")

    assert gone.status_code == 200
    assert "secret" not in {key for key, value in gone.json().items() if value}
    for missing in (
        await hooked.get("/api/webhooks/ops"),
        await hooked.delete("/api/webhooks/ops"),
        await hooked.post("/api/webhooks/ops/test"),
    ):
        assert refusal(missing)[:2] == (404, "webhook_not_found")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://user:word@hooks.example/",
        "http://hooks.example/\r\nx: y",
        "http://hooks.example/#x",
        "hooks.example",
        "",
    ],
)
async def test_a_url_that_must_not_be_called_is_refused_when_it_is_put(api: Api, url: str) -> None:
    assert refusal(await send(api, url))[:2] == (400, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"events": ["task-exploded"]},
        {"events": []},
        {"events": ["task-failed"] * (limits.MAX_WEBHOOK_EVENTS + 1)},
        {"queues": ["a*b"]},
        {"format": "xml"},
        {"secret": "short"},
        {"secret": "whsec_AAAA"},
        {"surprise": 1},
        {"description": "x" * 1_001},
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(api: Api, body: Json) -> None:
    refused = await send(api, "https://hooks.example/", **body)

    assert refusal(refused)[:2] == (400, "invalid")
    assert (await api.get("/api/webhooks")).json() == {"items": []}


async def test_a_name_that_leads_to_this_machine_is_not_called(api: Api) -> None:
    async with receiving() as receiver:
        made = await send(api, f"http://localhost:{receiver.port}/")
        tested = (await api.post("/api/webhooks/ops/test")).json()

        assert made.status_code == 201
        assert not tested["ok"]
        assert "outbound_allow" in tested["error"]
        assert receiver.requests == []


async def test_a_closed_list_refuses_what_it_does_not_name(tmp_path: Path) -> None:
    settings = {"outbound_allow": "hooks.example", "outbound_only_allowed": True}
    async with served(tmp_path, **settings) as api:
        listed = await send(api, "https://hooks.example/a")
        other = await send(api, "https://other.example/a")

    assert listed.status_code == 201
    assert refusal(other)[:2] == (400, "invalid")
