"""Deliveries and pushed tasks while coordinators are killed: each arrives, under one id."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.faults.callers import PATIENCE_S
from tests.faults.postgres import PostgresPlace
from tests.faults.processes import Scene, scene

KILLS = 5
FAILURES = 20  # tasks that fail before each kill
LOOK_AGAIN_S = 0.05
FLAGS = ("--outbound-allow", "127.0.0.1")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Inbox:
    """What a receiver has got: the ids of each event, by its subject."""

    def __init__(self) -> None:
        self.ids: dict[str, set[str]] = {}
        self.requests = 0
        self._lock = threading.Lock()

    def note(self, subject: str, message_id: str) -> None:
        with self._lock:
            self.requests += 1
            self.ids.setdefault(subject, set()).add(message_id)

    def wait_for(self, subjects: set[str]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not subjects <= self.ids.keys():
            missing = len(subjects - self.ids.keys())
            assert time.monotonic() < deadline_s, f"{missing} events have not arrived"
            time.sleep(LOOK_AGAIN_S)


@contextmanager
def receiving(inbox: Inbox) -> Iterator[str]:
    """A receiver in threads; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            subject = event.get("subject") or event["task_id"]
            inbox.note(subject, self.headers["webhook-id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fail_tasks(staged: Scene) -> set[str]:
    tasks = [{"name": "work", "max_attempts": 1}] * FAILURES
    ids = {one["id"] for one in staged.call("POST", "/api/tasks", tasks)}
    for task_id in ids:
        staged.call("POST", f"/api/jobs/{task_id}/start")
        staged.call("POST", f"/api/jobs/{task_id}/fail", {"error": "broken"})
    return ids


def test_every_event_arrives_when_the_coordinator_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    inbox, failed = Inbox(), set[str]()
    with receiving(inbox) as url, scene(tmp_path, flags=FLAGS) as staged:
        staged.call("PUT", "/api/webhooks/ops", {"url": url, "events": ["task-failed"]})

        for _ in range(KILLS):
            failed |= fail_tasks(staged)
            staged.restart_coordinator(signal.SIGKILL)
        inbox.wait_for(failed)

    assert inbox.ids.keys() == failed
    assert {len(ids) for ids in inbox.ids.values()} == {1}


def test_every_event_arrives_when_the_leader_is_killed_and_another_takes_over(
    tmp_path: Path, place: PostgresPlace
) -> None:
    inbox, failed = Inbox(), set[str]()
    flags = (*FLAGS, "--leader-lease-ms", "1000")
    with receiving(inbox) as url, scene(tmp_path, place, replicas=2, flags=flags) as staged:
        staged.call("PUT", "/api/webhooks/ops", {"url": url, "events": ["task-failed"]})

        for number in range(KILLS):
            failed |= fail_tasks(staged)
            staged.kill_coordinator(number % 2)
            staged.wait_all_serve()
        failed |= fail_tasks(staged)
        inbox.wait_for(failed)

    assert inbox.ids.keys() == failed
    assert {len(ids) for ids in inbox.ids.values()} == {1}


def test_every_pushed_task_ends_when_the_coordinator_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    inbox, submitted = Inbox(), set[str]()
    with receiving(inbox) as url, scene(tmp_path, flags=FLAGS) as staged:
        staged.call("PUT", "/api/queues/fn/push", {"url": url, "concurrency": 5})

        for _ in range(KILLS):
            tasks = [{"name": "work", "queue": "fn", "max_attempts": 100}] * FAILURES
            submitted |= {one["id"] for one in staged.call("POST", "/api/tasks", tasks)}
            staged.restart_coordinator(signal.SIGKILL)
        inbox.wait_for(submitted)
        for task_id in submitted:
            ended = staged.call("GET", f"/api/tasks/{task_id}?wait_ms=30000")
            assert ended["state"] == "succeeded"

    assert inbox.ids.keys() == submitted
    assert {len(ids) for ids in inbox.ids.values()} == {1}
