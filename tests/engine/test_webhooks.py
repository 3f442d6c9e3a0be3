"""Webhooks on a running engine: what is taken from the log, delivered, tried again, kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import rota.webhooks
from rota.core import limits
from rota.core.commands import PauseQueue, SetWorkerState
from rota.core.events import EVERYTHING
from rota.core.outbound.signatures import new_secret
from rota.core.tasks.model import NewTask, TaskError
from rota.core.webhooks.commands import DeleteWebhook, PutWebhook
from rota.core.webhooks.model import WebhookDelivery, WebhookSpec
from rota.core.workers.model import WorkerState
from rota.engine.webhooks.queries import WebhookFigures
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running
from tests.outbound.receiving import Received, Receiver, answer, receiving

SECRET = new_secret(bytes(range(32)))
MINUTE_MS = 60_000


class Hooked:
    """An engine with a webhook, and its receiver."""

    def __init__(self, engine: Engine, receiver: Receiver) -> None:
        self.engine = engine
        self.receiver = receiver

    async def put(self, name: str = "ops", **spec: Any) -> None:
        fields = {"url": self.receiver.url, "events": ("task-failed",), **spec}
        command = PutWebhook(
            name=name,
            spec=WebhookSpec(**fields),
            secret=SECRET,
            new_secret=SECRET,
            new_uid=f"uid-{name}",
        )
        await self.engine.execute(command)

    async def fail(self, count: int = 1, **options: Any) -> None:
        """Let tasks fail for good, each with an event of its own."""
        engine = self.engine
        await engine.submit_all(
            [NewTask(name="work", max_attempts=1, **options) for _ in range(count)]
        )
        worker = await engine.register(max_concurrent_tasks=count)
        error = TaskError(type="Broken", message="it broke")
        for task in await engine.lease(worker, count):
            await engine.report(worker, done(task, ok=False, error=error))

    async def look(self, name: str = "ops") -> WebhookFigures:
        found = await self.engine.coordinator.queries.webhooks.by_name(name)
        assert found is not None
        return found

    async def last(self, name: str = "ops") -> WebhookDelivery:
        return (await self.look(name)).deliveries[0]

    async def types(self) -> list[str]:
        """The types of all events in the log."""
        log = self.engine.coordinator.queries.events
        return [one.type for one in (await log.newest(EVERYTHING, limit=1_000)).items]


@pytest.fixture
async def hooked(tmp_path: Path, store_kind: Any, clock: TurnedClock) -> AsyncIterator[Hooked]:
    settings: Any = {"outbound_allow": "127.0.0.1", "stuck_after_ms": 10_000}
    async with (
        receiving() as receiver,
        running(tmp_path / "rota.db", clock, **settings) as engine,
    ):
        yield Hooked(engine, receiver)


def bodies(requests: list[Received]) -> list[Any]:
    return [one.json for one in requests]


# --- deliveries ---------------------------------------------------------------------------------


async def test_an_event_is_delivered_signed_under_its_id(hooked: Hooked) -> None:
    await hooked.fail()
    await hooked.put()
    await hooked.fail(queue="mail")
    await hooked.engine.turn(0)

    (request,) = hooked.receiver.requests
    now_s = hooked.engine.clock.now_ms() / 1000
    event = rota.webhooks.verify(request.headers, request.body, SECRET, now_s=now_s)
    assert (event["type"], event["webhook"], event["data"]["queue"]) == (
        "task-failed",
        "ops",
        "mail",
    )
    assert event["data"]["error"] == {"type": "Broken", "message": "it broke"}
    assert request.headers["webhook-id"] == event["id"] == f"uid-ops-{event['seq']}"
    delivered = await hooked.last()
    assert (delivered.state, delivered.code, delivered.attempts) == ("delivered", 200, 1)


async def test_payloads_and_results_are_not_sent(hooked: Hooked) -> None:
    await hooked.put(events=("*",))
    await hooked.fail(payload=Raw(b'{"password": "hunter2"}'))
    await hooked.engine.turn(0)

    assert hooked.receiver.requests
    assert not any(b"hunter2" in one.body for one in hooked.receiver.requests)


async def test_each_webhook_gets_what_it_wants(hooked: Hooked) -> None:
    await hooked.put("all")
    await hooked.put("mail", queues=("mail",))
    await hooked.fail(queue="mail")
    await hooked.fail(queue="other")
    await hooked.engine.turn(0)

    seen = sorted(
        (one["webhook"], one["data"]["queue"]) for one in bodies(hooked.receiver.requests)
    )
    assert seen == [("all", "mail"), ("all", "other"), ("mail", "mail")]


async def test_a_failed_delivery_is_tried_again_under_the_same_id(hooked: Hooked) -> None:
    hooked.receiver.answer = lambda _: answer(500, b"no")
    await hooked.put()
    await hooked.fail()
    await hooked.engine.turn(0)
    waiting = await hooked.last()
    await hooked.engine.turn(4_999)
    assert len(hooked.receiver.requests) == 1

    hooked.receiver.answer = lambda _: answer(204)
    await hooked.engine.turn(1)

    assert (waiting.state, waiting.code, waiting.error) == ("waiting", 500, "answered 500: no")
    first, second = hooked.receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    ended = await hooked.last()
    assert (ended.state, ended.attempts, ended.error) == ("delivered", 2, None)


async def test_a_receiver_that_cannot_be_reached_is_told_of_without_its_path(
    hooked: Hooked,
) -> None:
    await hooked.put(url="http://127.0.0.1:1/secret-path")
    await hooked.fail()
    await hooked.engine.turn(0)

    failed = await hooked.last()
    assert "cannot be reached" in (failed.error or "")
    assert "secret-path" not in (failed.error or "")
    assert not any("secret-path" in str(line) or SECRET in str(line) for line in hooked.engine.log)


async def test_a_redirect_to_a_private_address_is_a_failure(hooked: Hooked) -> None:
    async with receiving() as other:
        hooked.receiver.answer = lambda _: answer(307, location=other.url)
        await hooked.put()
        await hooked.fail()
        await hooked.engine.turn(0)

        assert other.requests == []
    assert "redirects are not followed" in ((await hooked.last()).error or "")


async def test_a_receiver_that_fails_for_a_day_is_disabled_with_an_event(hooked: Hooked) -> None:
    hooked.receiver.answer = lambda _: answer(503)
    await hooked.put()
    await hooked.fail(2)
    for _ in range(25):
        await hooked.engine.turn(3_600_000)
        await hooked.fail()
    requests = len(hooked.receiver.requests)
    await hooked.fail()
    await hooked.engine.turn(3_600_000)

    found = await hooked.look()
    assert found.record.state.disabled_because == "failing"
    assert len(hooked.receiver.requests) == requests
    assert (await hooked.types()).count("webhook-disabled") == 1


async def test_a_disabled_webhook_that_is_put_again_delivers_what_waits(hooked: Hooked) -> None:
    hooked.receiver.answer = lambda _: answer(410)
    await hooked.put()
    await hooked.fail()
    await hooked.engine.turn(0)
    await hooked.fail()  # while it is disabled
    hooked.receiver.answer = lambda _: answer(200)
    await hooked.put()
    await hooked.fail()
    await hooked.engine.turn(0)

    states = [one.state for one in (await hooked.look()).deliveries]
    assert states == ["delivered", "failed"]


async def test_a_webhook_that_was_deleted_delivers_nothing_more(hooked: Hooked) -> None:
    hooked.receiver.answer = lambda _: answer(500)
    await hooked.put()
    await hooked.fail()
    await hooked.engine.turn(0)
    await hooked.engine.execute(DeleteWebhook(name="ops"))
    await hooked.engine.turn(MINUTE_MS)

    assert len(hooked.receiver.requests) == 1


async def test_one_slow_receiver_does_not_hold_up_another(hooked: Hooked) -> None:
    async with receiving() as quick:
        hooked.receiver.answer = lambda _: None
        await hooked.put("slow")
        await hooked.put("quick", url=quick.url)
        await hooked.fail(20)
        looking = asyncio.ensure_future(hooked.engine.coordinator.tick())
        await quick.wait_for(20)

        # Of the slow one only so many are under way.
        assert len(hooked.receiver.requests) <= limits.MAX_DELIVERIES_OF_WEBHOOK
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_what_does_not_fit_waits_in_the_log(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PENDING_DELIVERIES", 3)
    hooked.receiver.answer = lambda _: answer(500)
    await hooked.put()
    await hooked.fail(10)
    await hooked.engine.turn(0)
    assert (await hooked.look()).pending == 3

    hooked.receiver.answer = lambda _: answer(200)
    for _ in range(6):
        await hooked.engine.turn(MINUTE_MS)

    seqs = {one["seq"] for one in bodies(hooked.receiver.requests)}
    assert len(seqs) == 10
    assert (await hooked.look()).record.state.delivered == 10


async def test_pruned_events_are_noted_as_missed(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PENDING_DELIVERIES", 1)
    hooked.receiver.answer = lambda _: answer(500)
    await hooked.put()
    await hooked.fail(5)
    await hooked.engine.turn(0)
    hooked.receiver.answer = lambda _: answer(200)
    await hooked.engine.turn(hooked.engine.coordinator.settings.events_keep_ms + MINUTE_MS)
    await hooked.fail()
    await hooked.engine.turn(0)

    assert (await hooked.look()).record.state.missed_at_ms is not None


async def test_a_coordinator_that_starts_goes_on_where_the_last_one_stopped(
    tmp_path: Path, store_kind: Any, clock: TurnedClock
) -> None:
    async with receiving() as receiver:
        receiver.answer = lambda _: answer(500)
        async with running(tmp_path / "rota.db", clock, outbound_allow="127.0.0.0/8") as engine:
            first = Hooked(engine, receiver)
            await first.put()
            await first.fail()
            await engine.turn(0)
            await first.fail()  # not taken from the log yet
        receiver.answer = lambda _: answer(200)
        async with running(tmp_path / "rota.db", clock, outbound_allow="127.0.0.0/8") as engine:
            second = Hooked(engine, receiver)
            await engine.turn(MINUTE_MS)

            assert [one.state for one in (await second.look()).deliveries] == ["delivered"] * 2
            ids = [one.headers["webhook-id"] for one in receiver.requests]
            assert len(ids) == 3
            assert len(set(ids)) == 2


async def test_nothing_is_read_while_nothing_happens(hooked: Hooked) -> None:
    await hooked.put()
    await hooked.engine.turn(0)
    hooked.engine.database.read_problem = AssertionError("read")

    await hooked.engine.coordinator.leading.webhooks.run_once()


# --- events for people --------------------------------------------------------------------------


async def test_a_queue_that_cannot_start_tasks_is_reported_once(hooked: Hooked) -> None:
    await hooked.put(events=("queue-stuck", "queue-unstuck"))
    await hooked.engine.submit("work", queue="mail")
    await hooked.engine.turn(0)
    await hooked.engine.turn(9_999)
    assert hooked.receiver.requests == []
    for _ in range(3):
        await hooked.engine.turn(5_000)

    (stuck,) = bodies(hooked.receiver.requests)
    assert (stuck["type"], stuck["subject"]) == ("queue-stuck", "mail")
    # Not `no_workers`, which would tell the tenant of a queue about the workers of others.
    assert stuck["data"]["reason"] == "no_worker_for_queue"
    assert (stuck["data"]["name"], stuck["data"]["queued"]) == ("work", 1)

    await hooked.engine.register()
    await hooked.engine.turn(1_000)
    assert bodies(hooked.receiver.requests)[1]["type"] == "queue-unstuck"


async def test_a_pause_of_workers_and_a_paused_queue_are_no_stuck_queue(hooked: Hooked) -> None:
    await hooked.engine.submit("work", queue="paused")
    await hooked.engine.submit("work", queue="short")
    await hooked.engine.execute(PauseQueue("paused", paused=True))
    await hooked.engine.turn(0)
    await hooked.engine.turn(9_000)
    worker = await hooked.engine.register(queues=("short",))
    await hooked.engine.turn(500)
    await hooked.engine.execute(SetWorkerState(worker_id=worker.id, state=WorkerState.DRAINING))
    await hooked.engine.turn(500)
    await hooked.engine.turn(1_500)

    assert "queue-stuck" not in await hooked.types()


async def test_a_stuck_queue_is_not_reported_again_after_a_restart(
    tmp_path: Path, store_kind: Any, clock: TurnedClock
) -> None:
    types: list[str] = []
    for turns in range(2):
        async with running(tmp_path / "rota.db", clock, stuck_after_ms=1_000) as engine:
            if not turns:
                await engine.submit("work", queue="mail")
            for _ in range(3):
                await engine.turn(1_000)
            async with receiving() as receiver:
                types = await Hooked(engine, receiver).types()

    assert types.count("queue-stuck") == 1
