"""Do processes that are killed, paused or stopped lose or double anything? With real signals."""

import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Running
from tests.faults.callers import PLAIN
from tests.faults.processes import Scene, pause, scene, stop

COORDINATOR_KILLS = 20
WORKER_KILLS = 12
STOPS = 3
TRANSPORTS = ("websocket", "http")

pytestmark = pytest.mark.slow


def submit(staged: Scene, name: str, payload: dict[str, Any]) -> str:
    task = staged.call("POST", "/api/tasks", {"name": name, "payload": payload})
    return str(task["id"])


def register(staged: Scene, worker_id: str, *, heartbeat_ms: int = 5_000) -> int:
    wish = {"node_id": "here", "worker_id": worker_id, "heartbeat_interval_ms": heartbeat_ms}
    return int(staged.call("POST", "/api/workers", wish)["incarnation"])


def lease(staged: Scene, worker_id: str, *, heartbeat_ms: int = 5_000) -> tuple[int, int]:
    """Register and lease the one task there is; gives incarnation and fence."""
    incarnation = register(staged, worker_id, heartbeat_ms=heartbeat_ms)
    wish = {"incarnation": incarnation, "max": 1, "wait_ms": 10_000}
    (granted,) = staged.call("POST", f"/api/workers/{worker_id}/lease", wish)["leases"]
    return incarnation, granted["fence"]


def report(
    staged: Scene, worker_id: str, *, incarnation: int, fence: int, task_id: str, result: int
) -> tuple[int, str]:
    """Report a result; gives the status, and the outcome or the code of the refusal."""
    item = {"task_id": task_id, "fence": fence, "ok": True, "result": result}
    body = {"incarnation": incarnation, "results": [item]}
    status, answer = staged.ask("POST", f"/api/workers/{worker_id}/results", body)
    return status, answer["outcomes"][0]["outcome"] if status == 200 else answer["code"]


@pytest.mark.timeout(300)  # each of its starts takes seconds on a machine that is busy
def test_killing_the_coordinator_again_and_again_under_load_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    dice = random.Random(1)
    with scene(tmp_path) as staged:
        for transport in TRANSPORTS:
            staged.start_worker(heartbeat_ms=1_000, transport=transport)
        staged.start_plain_worker("plain")
        staged.start_clients(3, "double", PLAIN)

        for _ in range(COORDINATOR_KILLS):
            staged.book.wait_for_more(dice.randint(1, 200))
            staged.restart_coordinator(signal.SIGKILL)
        staged.drain()

    assert staged.problems() == []
    assert staged.book.accepted > 10 * COORDINATOR_KILLS


def test_killing_workers_again_and_again_under_load_lets_their_tasks_move_on(
    tmp_path: Path,
) -> None:
    dice = random.Random(2)
    with scene(tmp_path) as staged:
        # Some come back under their own name, and take their work from their ghosts at once.
        kinds = [("first", "websocket"), ("second", "http"), (None, "auto")]

        def start(kind: int) -> Running:
            name, transport = kinds[kind]
            return staged.start_worker(heartbeat_ms=200, worker_id=name, transport=transport)

        workers = [start(kind) for kind in range(len(kinds))]
        staged.start_clients(3, "double")

        for _ in range(WORKER_KILLS):
            staged.book.wait_for_more(dice.randint(1, 60))
            victim = dice.randrange(len(workers))
            workers[victim].signal(signal.SIGKILL)
            workers[victim].ends()
            workers[victim] = start(victim)
        tasks = staged.drain()

    assert staged.problems() == []
    assert max(task["attempt"] for task in tasks) > 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_worker_paused_beyond_its_lease_comes_back_to_find_its_task_done(
    tmp_path: Path, transport: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with scene(tmp_path) as staged:
        paused = staged.start_worker(heartbeat_ms=200, worker_id="paused", transport=transport)
        held = submit(staged, "hold", {"number": 1, "pipe": str(pipe)})
        writing = os.open(pipe, os.O_WRONLY)  # returns when the handler has begun to read

        pause(paused)
        other = staged.start_worker(heartbeat_ms=200, worker_id="other", transport=transport)
        finished = staged.wait_until_finished(held)
        paused.signal(signal.SIGCONT)
        os.close(writing)

        # Alone now, it works on, and has nothing of the past to tell when it ends.
        assert stop(other) == 0
        later = staged.wait_until_finished(submit(staged, "double", {"number": 1}))
        assert stop(paused) == 0
        assert staged.wait_until_finished(held) == finished
    assert (finished["worker_id"], finished["result"]) == ("other", other.pid)
    assert later["worker_id"] == "paused"
    assert staged.recorded("ran")[:2] == [[1, 1, paused.pid], [1, 2, other.pid]]
    outcomes = [line[1:] for line in staged.recorded("outcome") if line[0] == held]
    assert ["accepted", other.pid] in outcomes
    assert all(one == ["stale", paused.pid] for one in outcomes if one[0] != "accepted")
    assert len([one for one in outcomes if one[0] == "accepted"]) == 1


def test_the_result_of_a_worker_that_was_given_up_is_refused_as_stale(tmp_path: Path) -> None:
    with scene(tmp_path) as staged:
        task_id = submit(staged, "double", {"number": 1})
        lost, lost_fence = lease(staged, "lost", heartbeat_ms=200)
        heir, heir_fence = lease(staged, "heir")  # waits until the other is given up
        assert heir_fence > lost_fence

        late = partial(report, staged, "lost", fence=lost_fence, task_id=task_id, result=1)
        good = partial(report, staged, "heir", fence=heir_fence, task_id=task_id, result=2)
        assert late(incarnation=lost) == (404, "worker_not_found")
        back = register(staged, "lost")
        assert late(incarnation=lost) == (409, "stale_incarnation")
        assert late(incarnation=back) == (200, "stale")
        assert good(incarnation=heir) == (200, "accepted")
        assert late(incarnation=back) == (200, "stale")
        assert good(incarnation=heir) == (200, "duplicate")

        assert staged.wait_until_finished(task_id)["result"] == 2


def test_stopping_the_coordinator_under_load_loses_nothing_and_is_no_failure(
    tmp_path: Path,
) -> None:
    with scene(tmp_path) as staged:
        workers = [staged.start_worker(heartbeat_ms=1_000, transport=one) for one in TRANSPORTS]
        staged.start_plain_worker("plain")
        staged.start_clients(2, "double", PLAIN)

        for _ in range(STOPS):
            staged.book.wait_for_more(100)
            ended = staged.restart_coordinator(signal.SIGTERM)
            assert ended.ends() == 0, ended.output
            assert "Traceback" not in ended.output
        staged.drain()
        assert [stop(worker) for worker in workers] == [0, 0]

    assert staged.problems() == []


def test_stopping_workers_under_load_uses_up_no_attempt_and_is_no_failure(tmp_path: Path) -> None:
    with scene(tmp_path) as staged:
        workers = [staged.start_worker(heartbeat_ms=500, transport=one) for one in TRANSPORTS]
        staged.start_clients(3, "double")

        for number in range(2 * STOPS):
            staged.book.wait_for_more(100)
            oldest = workers.pop(0)
            assert stop(oldest) == 0, oldest.output
            assert "Traceback" not in oldest.output
            transport = TRANSPORTS[number % 2]
            workers.append(staged.start_worker(heartbeat_ms=500, transport=transport))
        tasks = staged.drain()
        assert stop(staged.coordinator) == 0, staged.coordinator.output

    assert staged.problems() == []
    assert {task["attempt"] for task in tasks} == {1}
