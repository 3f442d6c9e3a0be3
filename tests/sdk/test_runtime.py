"""A worker comes, stays through all kinds of trouble, and leaves in good order."""

import asyncio
import threading
from pathlib import Path

import pytest

from rota import Cancelled, Rota, StopReason, current
from rota.core.tasks.model import TaskState
from rota.errors import Invalid, Unauthorized, WorkerNotFound
from rota.sdk.client import calls
from rota.sdk.worker.worker import Worker
from tests.sdk.serving import PATIENCE_S, RunningWorker, Server, first_ended, working

pytestmark = pytest.mark.usefixtures("transport")


class Gate:
    """A handler's stop: the test sees that it came, and lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.reached.release()
        assert self._open.wait(PATIENCE_S)

    async def apass_through(self) -> None:
        await asyncio.to_thread(self.pass_through)

    def wait_reached(self) -> None:
        assert self.reached.acquire(timeout=PATIENCE_S)

    def open(self) -> None:
        self._open.set()


def test_a_stopped_worker_finishes_what_it_runs_and_leaves(app: Rota) -> None:
    gate = Gate()

    @app.task
    def work() -> str:
        gate.pass_through()
        return "finished"

    with working(app) as running:
        handle = work.enqueue()
        gate.wait_reached()
        running.worker.stop()
        gate.open()

        assert running.ended() is StopReason.STOPPED
        assert handle.result(PATIENCE_S) == "finished"
        assert running.worker.worker_id is not None
        with pytest.raises(WorkerNotFound):
            app.client.run(calls.get_worker(running.worker.worker_id))


@pytest.mark.parametrize("is_async", [True, False])
def test_what_does_not_finish_in_time_is_handed_back_unharmed(app: Rota, is_async: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    gate = Gate()

    if is_async:

        @app.task(name="work")
        async def awork() -> None:
            gate.reached.release()
            await asyncio.Event().wait()
    else:

        @app.task(name="work")
        def work() -> None:
            gate.reached.release()
            while not current().is_cancelled:
                pass

    with working(app, drain_s=0.05) as running:
        handle = app.enqueue("work")
        gate.wait_reached()

        assert running.stop() is StopReason.STOPPED

    view = handle.view()
    assert view.state is TaskState.QUEUED
    assert view.attempt == 0


def test_asked_twice_a_worker_leaves_at_once(app: Rota) -> None:
    gate = Gate()

    @app.task
    def work() -> None:
        gate.pass_through()

    with working(app, drain_s=3600) as running:
        handle = work.enqueue()
        gate.wait_reached()
        running.worker.stop()
        running.worker.stop()

        assert running.ended() is StopReason.STOPPED
        assert handle.status() is TaskState.QUEUED
        gate.open()


def test_a_worker_that_was_stopped_before_it_ran_does_not_run(app: Rota) -> None:
    @app.task
    async def work() -> None: ...

    worker = Worker(app)
    worker.stop()

    assert asyncio.run(worker.arun()) is StopReason.STOPPED


def test_a_worker_is_recycled_after_so_many_tasks(app: Rota) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    handles = app.enqueue_many(work.bind(number) for number in range(5))
    with working(app, max_tasks=3) as running:
        assert running.ended() is StopReason.RECYCLED

    states = [handle.status() for handle in handles]
    assert states == [TaskState.SUCCEEDED] * 3 + [TaskState.QUEUED] * 2


def test_a_worker_the_coordinator_forgot_registers_again(app: Rota) -> None:
    @app.task
    async def work() -> str:
        return "done"

    with working(app, worker_id="forgotten") as running:
        app.client.run(calls.leave_worker("forgotten"))
        running.wait_registered()

        assert work.enqueue().result(PATIENCE_S) == "done"
        assert running.worker.worker_id == "forgotten"


def test_a_handler_under_way_when_the_worker_was_forgotten_is_stopped(app: Rota) -> None:
    started, stopped = threading.Semaphore(0), threading.Event()

    @app.task
    async def work() -> None:
        started.release()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with working(app, worker_id="forgotten", drain_s=0):
        work.enqueue()
        assert started.acquire(timeout=PATIENCE_S)
        app.client.run(calls.leave_worker("forgotten"))

        assert stopped.wait(PATIENCE_S)
        assert started.acquire(timeout=PATIENCE_S)  # it is given out again


def test_a_result_finished_while_the_coordinator_was_away_is_delivered(
    server: Server, app: Rota
) -> None:
    gate = Gate()
    attempts: list[int] = []

    @app.task
    def work() -> str:
        attempts.append(current().attempt)
        gate.pass_through()
        return "kept"

    with working(app, heartbeat_interval_ms=10_000):
        handle = work.enqueue()
        gate.wait_reached()
        server.wait_parked()
        server.stop()
        gate.open()
        server.start()

        assert handle.result(PATIENCE_S) == "kept"

    assert attempts == [1]


def test_an_idle_worker_survives_a_restart_of_the_coordinator(server: Server, app: Rota) -> None:
    @app.task
    async def work() -> str:
        return "done"

    with working(app):
        server.wait_parked()
        server.stop()
        server.start()

        assert work.enqueue().result(PATIENCE_S) == "done"


def test_a_worker_waits_for_a_coordinator_that_is_not_there_yet(tmp_path: Path) -> None:
    server = Server(tmp_path).start()
    server.stop()
    with Rota(server.url) as app:

        @app.task
        async def work() -> str:
            return "done"

        running = RunningWorker(app)
        with server:
            running.wait_registered()
            assert work.enqueue().result(PATIENCE_S) == "done"
            running.stop()


def test_a_handler_that_blocks_the_event_loop_does_not_look_dead(app: Rota) -> None:
    attempts: list[int] = []

    @app.task
    async def busy() -> str:
        attempts.append(current().attempt)
        beats: set[int] = set()
        health = ""
        while len(beats) < 6:  # twice as many intervals as a silent worker is given
            view = app.client.run(calls.get_worker("busy"))  # blocks the loop on purpose
            beats.add(view.last_heartbeat_ms)
            health = view.health
        return health

    with working(app, worker_id="busy", heartbeat_interval_ms=300):
        assert busy.enqueue().result(PATIENCE_S) == "healthy"

    assert attempts == [1]


def test_handlers_are_stopped_when_the_worker_cannot_renew_in_time(tmp_path: Path) -> None:
    gate = Gate()
    reasons: list[str] = []
    stopped = threading.Event()

    with (
        Server(tmp_path, degraded_after=2.0, unhealthy_after=3.0) as server,
        Rota(server.url) as app,
    ):

        @app.task
        def work() -> str:
            if current().attempt == 1 and not reasons:
                gate.reached.release()
                try:
                    while True:
                        current().check_cancelled()
                except Cancelled as error:
                    reasons.append(error.reason)
                    stopped.set()
                    raise
            return "moved on"

        with working(app, heartbeat_interval_ms=500):
            handle = work.enqueue()
            gate.wait_reached()
            server.wait_parked()
            server.stop()
            assert stopped.wait(PATIENCE_S)
            server.start()

            assert handle.result(PATIENCE_S) == "moved on"

    assert reasons == ["lost"]


def test_of_two_processes_under_one_id_one_gives_way(app: Rota) -> None:
    @app.task
    async def work() -> str:
        return "done"

    with (
        working(app, worker_id="twin", heartbeat_interval_ms=100) as first,
        working(app, worker_id="twin", heartbeat_interval_ms=100) as second,
    ):
        loser = first_ended(first, second)

        assert loser.ended() is StopReason.REPLACED
        assert work.enqueue().result(PATIENCE_S) == "done"


def test_a_worker_whose_token_is_not_known_says_so_and_stops(server: Server) -> None:
    app = Rota(server.url, token="rota_" + "x" * 43)

    @app.task
    async def work() -> None: ...

    with app, pytest.raises(Unauthorized):
        asyncio.run(Worker(app).arun())


def test_a_worker_is_set_up_with_sense() -> None:
    app = Rota("http://127.0.0.1:1")
    with pytest.raises(Invalid, match="no tasks"):
        Worker(app)

    @app.task
    async def work() -> None: ...

    with pytest.raises(Invalid, match="no task named 'play'; it has: work"):
        Worker(app, tasks=["play"])
    with pytest.raises(Invalid, match="max_concurrent_tasks"):
        Worker(app, concurrency=0)
    with pytest.raises(Invalid, match="max_tasks"):
        Worker(app, max_tasks=0)
    with pytest.raises(Invalid, match="drain_s"):
        Worker(app, drain_s=-1)
