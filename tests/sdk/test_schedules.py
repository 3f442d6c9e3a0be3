"""Schedules in code: declared beside their tasks, deployed when a worker registers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota import Rota
from rota.errors import Invalid
from rota.messages.schedules import ScheduleView
from rota.sdk.client import schedule_calls
from rota.sdk.client.client import Client
from rota.testing import TestCoordinator
from rota.testing.coordinator import TurnedClock
from tests.sdk.serving import PATIENCE_S, Server, token_of, working

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def make_app(**options: Any) -> Rota:
    """A program with two schedules."""
    app = Rota("http://127.0.0.1:1", name="shop")

    @app.schedule("0 * * * *", overlap="allow", kwargs={"days": 7}, **options)
    @app.task(queue="cleaning", max_attempts=9)
    def clean(days: int = 30) -> int:
        return days

    @app.task
    def greet(name: str) -> str:
        return f"hello {name}"

    flow = app.workflow("morning")
    flow.node("greet", task=greet, input={"name": "input.name"}, output={"output.said": "result"})
    app.schedule("30 * * * *", name="mornings", input={"name": "ann"})(flow)
    return app


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    with TestCoordinator(clock=TurnedClock(START_MS)) as one:
        yield one


def look(coordinator: TestCoordinator, name: str) -> ScheduleView:
    return coordinator.client.run(schedule_calls.get_schedule(name))


def test_a_decorated_task_is_still_the_task() -> None:
    app = make_app()

    assert app.tasks["clean"].function(3) == 3
    assert app.schedules.keys() == {"clean", "mornings"}


def test_schedules_of_attached_apps_fire_when_the_clock_turns(
    coordinator: TestCoordinator,
) -> None:
    coordinator.attach(make_app())

    coordinator.clock.advance(minutes=80)
    drained = coordinator.drain(until_finished=True)

    assert drained.results("clean") == [7]
    assert drained.results("greet") == ["hello ann"]
    clean = look(coordinator, "clean")
    assert (clean.cron, clean.overlap, clean.source) == ("0 * * * *", "allow", "shop")
    assert (clean.task["queue"], clean.task["max_attempts"]) == ("cleaning", 9)
    assert [one.outcome for one in look(coordinator, "mornings").firings] == ["fired"]


def test_code_that_changes_changes_its_schedules_and_leaves_orphans(
    coordinator: TestCoordinator,
) -> None:
    coordinator.attach(make_app())
    newer = Rota("http://127.0.0.1:1", name="shop")

    @newer.schedule("0 5 * * *", timezone="Europe/Berlin", exclude=["2026-12-25"])
    @newer.task
    def clean(days: int = 30) -> int:
        return days

    coordinator.attach(newer)

    assert look(coordinator, "clean").timezone == "Europe/Berlin"
    assert not look(coordinator, "clean").orphaned
    assert look(coordinator, "mornings").orphaned


@pytest.mark.parametrize(
    ("cron", "options", "problem"),
    [
        (("0 25 * * *",), {}, "not a cron expression"),
        ((), {}, "give one of cron"),
        (("0 3 * * *",), {"timezone": "Mars"}, "not a time zone"),
        (("0 3 * * *",), {"overlap": "maybe"}, "overlap"),
        (("0 3 * * *",), {"jitter": 5}, "jitter"),
        (("0 3 * * *",), {"kwargs": {"weeks": 1}}, "weeks"),
    ],
)
def test_a_mistake_shows_when_the_program_is_loaded(
    cron: tuple[str, ...], options: dict[str, Any], problem: str
) -> None:
    app = Rota("http://127.0.0.1:1")

    with pytest.raises(Invalid, match=problem):

        @app.schedule(*cron, **options)
        @app.task
        def clean(days: int = 30) -> None: ...


def test_a_name_is_given_once_and_a_function_has_to_be_a_task() -> None:
    app = make_app()

    with pytest.raises(Invalid, match="a schedule named 'clean' already"):
        app.schedule("0 3 * * *")(app.tasks["clean"])
    with pytest.raises(Invalid, match=r"goes above @app\.task"):
        app.schedule("0 3 * * *")(print)  # type: ignore[type-var]  # on purpose


def test_an_app_without_a_name_is_known_by_the_module_of_its_tasks(
    coordinator: TestCoordinator,
) -> None:
    app = Rota("http://127.0.0.1:1")

    @app.schedule(every_ms=HOUR_MS)
    @app.task
    def clean() -> None: ...

    coordinator.attach(app)

    assert look(coordinator, "clean").source == __name__


@pytest.mark.parametrize("scope", ["admin", "worker"])
def test_a_worker_deploys_the_schedules_of_its_app_when_it_registers(
    tmp_path: Path, scope: str
) -> None:
    """A token that may not submit cannot deploy; the worker serves its tasks all the same."""
    with Server(tmp_path) as server:
        operator = Rota(server.url)
        app = Rota(server.url, token_of(server, scope), name="shop")

        @app.schedule(every_ms=HOUR_MS)
        @app.task
        def clean() -> str:
            return "done"

        with capture_logs() as log, working(app):
            assert operator.enqueue("clean", {}).result(PATIENCE_S) == "done"
            found = until_deployed(operator, log)
        operator.close()
        app.close()

    assert found == (scope == "admin")


def until_deployed(app: Rota, log: Any) -> bool:
    """Whether the schedules arrive, or the worker has said that they cannot."""
    while True:
        if app.client.run(schedule_calls.list_schedules()).items:
            return True
        if any(one["event"] == "schedules_not_deployed" for one in log):
            return False


def test_the_client_of_schedules_reaches_every_call(coordinator: TestCoordinator) -> None:
    coordinator.attach(make_app())
    run: Client = coordinator.client

    paused = run.run(schedule_calls.pause_schedule("clean", note="n"))
    times = run.run(schedule_calls.next_times("clean", count=2))
    fired = run.run(schedule_calls.run_schedule("clean"))
    resumed = run.run(schedule_calls.resume_schedule("clean"))
    gone = run.run(schedule_calls.delete_schedule("clean"))
    left = run.run(schedule_calls.list_schedules())

    assert (paused.note, resumed.paused, gone.name) == ("n", False, "clean")
    assert times.items == [START_MS + HOUR_MS, START_MS + 2 * HOUR_MS]
    assert fired.manual
    assert [one.name for one in left.items] == ["mornings"]
