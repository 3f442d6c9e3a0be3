"""Schedules in users' tests: turning the clock fires them."""

from collections.abc import Iterator

import pytest
from msgspec import Raw

from rota import Rota
from rota.core.tasks.model import NewTask
from rota.messages.schedules import SchedulePut, ScheduleView
from rota.sdk.client.requests import get, put
from rota.sdk.transport.transport import Response, TransportRequest
from rota.testing import TestCoordinator
from rota.testing.coordinator import TurnedClock

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000

app = Rota("http://127.0.0.1:1")


@app.task
def clean(since: int = 0) -> int:
    return since


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    with TestCoordinator(clock=TurnedClock(START_MS)) as one:
        one.attach(app)
        yield one


def scheduled(coordinator: TestCoordinator, **options: object) -> None:
    request = SchedulePut(
        cron="0 * * * *",
        task=NewTask(name="clean", payload=Raw(b'{"since": 7}')),
        **options,  # type: ignore[arg-type]  # fields of a schedule
    )
    coordinator.client.run(put("/api/schedules/clean", ScheduleView, request))


def outcomes(coordinator: TestCoordinator) -> list[str]:
    view = coordinator.client.run(get("/api/schedules/clean", ScheduleView))
    return [one.outcome for one in view.firings][::-1]


def test_turning_the_clock_fires_at_each_time_on_the_way(coordinator: TestCoordinator) -> None:
    scheduled(coordinator, overlap="allow", missed="skip")

    coordinator.clock.advance(minutes=5 * 60 + 30)

    assert outcomes(coordinator) == ["fired"] * 5
    coordinator.assert_enqueued(clean, args={"since": 7}, count=5)
    fired_at = [task.created_at_ms for task in coordinator.enqueued(clean)]
    assert fired_at == [START_MS + number * HOUR_MS for number in range(1, 6)]


def test_a_firing_that_waits_runs_in_the_same_drain(coordinator: TestCoordinator) -> None:
    scheduled(coordinator, overlap="queue_one")
    coordinator.clock.advance(minutes=150)

    drained = coordinator.drain()

    assert drained.results("clean") == [7, 7]
    assert outcomes(coordinator) == ["fired", "fired"]


def test_a_firing_after_the_last_lease_runs_in_the_same_drain(
    coordinator: TestCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled(coordinator, overlap="queue_one")
    coordinator.clock.advance(minutes=150)
    exchange = coordinator.exchange

    def exchange_then_fire(request: TransportRequest) -> Response:
        """Answer a call; a duty of the coordinator may run by itself after any of them."""
        response = exchange(request)
        if request.path.endswith("/lease"):
            coordinator.clock.advance()
        return response

    monkeypatch.setattr(coordinator, "exchange", exchange_then_fire)

    assert coordinator.drain().results("clean") == [7, 7]


def test_a_turn_over_too_many_times_is_refused(
    coordinator: TestCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.testing.coordinator.MAX_STOPS", 3)
    scheduled(coordinator)

    with pytest.raises(ValueError, match="more than 3 times"):
        coordinator.clock.advance(minutes=600)
