"""The leader is gone while its requests are under way: the next leader makes them again."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.faults.callers import PATIENCE_S
from tests.faults.leading import SHORT_LEASE, Leading, ask, leader_of, next_leader, others
from tests.faults.postgres import PostgresPlace
from tests.faults.processes import Scene, scene

TASKS = 4  # pushed at once, and as many that fail
FLAGS = ("--outbound-allow", "127.0.0.1", *SHORT_LEASE)
RUNNING_OUT = 3  # attempts of a pushed task; the loss of its worker uses up one

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class HoldingReceiver:
    """Answers no request before it is told to, and notes each with its id."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()  # path, subject, id -> requests
        self._changed = threading.Condition()
        self._may_answer = threading.Event()

    def take(self, path: str, subject: str, message_id: str) -> None:
        with self._changed:
            self.requests[path, subject, message_id] += 1
            self._changed.notify_all()
        assert self._may_answer.wait(PATIENCE_S)

    def release(self) -> None:
        """Answer all requests, those that are held first."""
        self._may_answer.set()

    def wait_for(self, times: int) -> None:
        """Wait until as many requests, or more, have come for every pushed and failed task."""

        def have_come() -> bool:
            counts = self.requests.values()
            return len(counts) == 2 * TASKS and min(counts) >= times

        with self._changed:
            assert self._changed.wait_for(have_come, PATIENCE_S), self.requests

    def subjects(self, path: str) -> dict[str, set[str]]:
        """The ids under which each subject has come."""
        found: dict[str, set[str]] = {}
        for (where, subject, message_id), _ in list(self.requests.items()):
            if where == path:
                found.setdefault(subject, set()).add(message_id)
        return found


@contextmanager
def holding(receiver: HoldingReceiver) -> Iterator[str]:
    """Serve the receiver in threads; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            subject = message.get("subject") or message["task_id"]
            receiver.take(self.path, subject, self.headers["webhook-id"])
            try:
                self.send_response(204)
                self.end_headers()
            except OSError:
                pass  # the leader that has sent it is dead

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        receiver.release()
        server.shutdown()
        thread.join()
        server.server_close()


def set_up(staged: Scene, url: str) -> None:
    hook = {"url": f"{url}/hook", "events": ["task-failed"]}
    staged.call("PUT", "/api/webhooks/ops", hook)
    staged.call("PUT", "/api/queues/fn/push", {"url": f"{url}/push", "concurrency": TASKS})


def begin_requests(staged: Scene, receiver: HoldingReceiver) -> tuple[set[str], set[str]]:
    """Push tasks, and fail others, until requests for all are under way; the ids of both."""
    pushed = [{"name": "work", "queue": "fn", "max_attempts": RUNNING_OUT}] * TASKS
    pushed_ids = {one["id"] for one in staged.call("POST", "/api/tasks", pushed)}
    failing = [{"name": "work", "max_attempts": 1}] * TASKS
    failed_ids = {one["id"] for one in staged.call("POST", "/api/tasks", failing)}
    for task_id in failed_ids:
        staged.call("POST", f"/api/jobs/{task_id}/start")
        staged.call("POST", f"/api/jobs/{task_id}/fail", {"error": "broken"})
    receiver.wait_for(1)
    return pushed_ids, failed_ids


def ends(url: str, kind: str) -> int:
    """How many tasks have ended in this way, by the event log."""
    events: list[dict[str, Any]] = ask(url, "GET", f"/api/events?type={kind}&limit=1000")["items"]
    return sum(one["data"].get("count", 1) for one in events)


def take_over(staged: Scene, leader: Leading, number: signal.Signals) -> str:
    """Send the leader a signal, and wait for another one; the answer is its URL."""
    (other,) = others(staged, leader.replica)
    staged.coordinators[leader.replica].signal(number)
    if number is signal.SIGKILL:
        staged.coordinators[leader.replica].ends()
    next_leader(staged, leader, seen_by=other)
    return staged.urls[other]


def check_ended_once(url: str, pushed: set[str]) -> None:
    for task_id in pushed:
        task = ask(url, "GET", f"/api/tasks/{task_id}?wait_ms=30000")
        assert task["state"] == "succeeded", task
    assert ends(url, "task-succeeded") == len(pushed)


def check_deliveries(url: str, receiver: HoldingReceiver, failed: set[str]) -> None:
    """Each delivery is noted as delivered, and there is one for each failed task."""
    webhook = ask(url, "GET", "/api/webhooks/ops")
    assert webhook["pending"] == 0, webhook
    assert ends(url, "task-failed") == len(failed)
    assert receiver.subjects("/hook").keys() == failed


def test_requests_under_way_are_made_again_when_the_leader_is_killed(
    tmp_path: Path, place: PostgresPlace
) -> None:
    receiver = HoldingReceiver()
    with holding(receiver) as address, scene(tmp_path, place, replicas=2, flags=FLAGS) as staged:
        set_up(staged, address)
        leader = leader_of(staged)
        pushed, failed = begin_requests(staged, receiver)

        url = take_over(staged, leader, signal.SIGKILL)
        receiver.wait_for(2)  # all again, while nothing has been answered yet
        receiver.release()

        check_ended_once(url, pushed)
        staged.wait(lambda: ask(url, "GET", "/api/webhooks/ops")["pending"] == 0)
        check_deliveries(url, receiver, failed)

    assert receiver.subjects("/push") == {one: {one} for one in pushed}
    assert {len(ids) for ids in receiver.subjects("/hook").values()} == {1}


def test_a_leader_that_was_frozen_reports_too_late(tmp_path: Path, place: PostgresPlace) -> None:
    receiver = HoldingReceiver()
    with holding(receiver) as address, scene(tmp_path, place, replicas=2, flags=FLAGS) as staged:
        set_up(staged, address)
        leader = leader_of(staged)
        pushed, failed = begin_requests(staged, receiver)

        url = take_over(staged, leader, signal.SIGSTOP)
        receiver.wait_for(2)
        receiver.release()  # the answers to the frozen leader wait in its sockets
        check_ended_once(url, pushed)
        staged.coordinators[leader.replica].signal(signal.SIGCONT)
        staged.wait_all_ready()
        staged.wait(lambda: ask(url, "GET", "/api/webhooks/ops")["pending"] == 0)

        check_ended_once(url, pushed)
        check_deliveries(url, receiver, failed)

    assert receiver.subjects("/push") == {one: {one} for one in pushed}
    assert {len(ids) for ids in receiver.subjects("/hook").values()} == {1}
