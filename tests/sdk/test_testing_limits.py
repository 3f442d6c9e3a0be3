"""Limits and rates in a user's tests: the clock of the test turns them, too."""

from rota import Concurrency, Rate, Rota
from rota.testing import TestCoordinator

app = Rota()
started: list[int] = []


@app.task(rate=Rate("api", limit=1, per_ms=60_000))
def call_api(number: int) -> None:
    started.append(number)


@app.task(concurrency=Concurrency("user:{user}", limit=1))
def greet(user: int) -> str:
    return f"Hello, {user}!"


def test_a_drain_to_the_end_turns_the_clock_to_each_start_of_a_rate() -> None:
    started.clear()
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        before_ms = coordinator.clock.now_ms()
        for number in range(3):
            call_api.enqueue(number)

        coordinator.drain()
        assert started == [0]
        coordinator.drain(until_finished=True)

        assert started == [0, 1, 2]
        assert coordinator.clock.now_ms() - before_ms == 120_000


def test_tasks_of_one_key_all_run_one_after_the_other() -> None:
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        handles = [greet.enqueue(7) for _ in range(5)]

        coordinator.drain()

        assert [one.result() for one in handles] == ["Hello, 7!"] * 5
