"""Schedules that start functions: each firing is a run of the code, with its arguments."""

from collections.abc import Iterator

import pytest

from rota import Rota, Run
from rota.messages.schedules import ScheduleView
from rota.sdk.client.requests import get
from rota.testing import TestCoordinator
from rota.testing.coordinator import TurnedClock

START_MS = 1_800_000_000_000

app = Rota("http://127.0.0.1:1")
done: list[str] = []


async def sweep(place: str) -> str:
    done.append(place)
    return place


@app.schedule("0 * * * *", args=["hall"], kwargs={"times": 2}, overlap="skip")
@app.workflow
async def clean(ctx: Run, place: str, times: int = 1) -> int:
    for _ in range(times):
        await ctx.step(sweep, place)
    await ctx.event("dry")
    return times


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    done.clear()
    with TestCoordinator(clock=TurnedClock(START_MS)) as one:
        one.attach(app)
        yield one


def firings(coordinator: TestCoordinator) -> ScheduleView:
    found: ScheduleView = coordinator.client.run(get("/api/schedules/clean", ScheduleView))
    return found


def test_a_firing_starts_a_function_with_the_arguments_of_the_schedule(
    coordinator: TestCoordinator,
) -> None:
    coordinator.clock.advance(minutes=60)
    coordinator.drain()

    (firing,) = firings(coordinator).firings
    assert firing.run_id is not None
    handle = clean.handle(firing.run_id)
    assert (firing.outcome, handle.status(), done) == ("fired", "running", ["hall", "hall"])
    handle.signal("dry")
    assert handle.result() == 2


def test_a_function_that_waits_has_not_ended_for_its_schedule(
    coordinator: TestCoordinator,
) -> None:
    coordinator.clock.advance(minutes=60)
    coordinator.drain()
    coordinator.clock.advance(minutes=60)
    first = firings(coordinator).firings
    clean.handle(first[-1].run_id or "").signal("dry")
    coordinator.drain()

    coordinator.clock.advance(minutes=60)

    outcomes = [one.outcome for one in firings(coordinator).firings][::-1]
    assert [one == "fired" for one in outcomes] == [True, False, True]
    assert done == ["hall", "hall"]
    coordinator.drain()
    assert len(done) == 4
