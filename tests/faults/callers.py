"""Callers that go on whatever happens to the coordinator: clients, and a worker without an SDK.

All calls go over plain HTTP with the words of the contract. What is answered goes into a ledger,
as in the tests without processes; what is not answered is tried again where that is safe.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from rota.core.ids import TaskId, from_text
from rota.core.tasks.model import TaskState
from tests.faults.ledger import Ledger

PATIENCE_S = 60.0
ANSWER_S = 90.0  # for one answer: the longest wait that is asked for, and some more
AGAIN_AFTER_S = 0.02  # a refused connection is tried again at a pace that leaves the processor free
PACED_TASKS = 4  # in each submission of a client that keeps a pace
PLAIN = "plain"  # the tasks that only a worker without an SDK runs: doubling, as the others
MAX_ATTEMPTS = 1_000  # kills use them up; what is tested is that nothing gets lost


class NoAnswer(Exception):  # noqa: N818 - it is no error: it is what a kill looks like
    """The request may have been carried out or not; with the words of a coordinator, if any."""


class Caller:
    """One connection to a coordinator; whenever it has broken, another to the next of them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._addresses = [urlsplit(url).netloc for url in urls]
        self._turn = 0
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body, separators=(",", ":"))
        try:
            if self._connection is None:
                address = self._addresses[self._turn % len(self._addresses)]
                self._connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
            self._connection.request(method, path, content)
            response = self._connection.getresponse()
            answer = json.loads(response.read() or b"null")
        except (OSError, http.client.HTTPException) as error:
            self._go_on()
            raise NoAnswer from error
        if response.status == 503:
            self._go_on()
            raise NoAnswer((answer or {}).get("detail", ""))
        return response.status, answer

    def _go_on(self) -> None:
        self.close()
        self._turn += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def payload_of(number: int) -> bytes:
    return b'{"number":%d}' % number


def known_id(text: str) -> TaskId:
    task_id = from_text(text)
    assert task_id is not None
    return task_id


class Book:
    """A ledger that many threads write, and that can be waited for."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.task_ids: list[str] = []  # of acknowledged submissions
        self.answers = 0  # submissions and completions
        self.accepted = 0  # completions
        self.refusals: list[str] = []  # why a coordinator could not serve, in its words
        self._changed = threading.Condition()

    def submitted(self, task_id: str, number: int, key: str | None) -> None:
        with self._changed:
            self.ledger.submitted(known_id(task_id), payload_of(number), key)
            self.task_ids.append(task_id)
            self._count()

    def leased(self, task_id: str, fence: int) -> None:
        with self._changed:
            self.ledger.leased(known_id(task_id), fence)

    def reported(self, task_id: str, outcome: str, result: int) -> None:
        end = (known_id(task_id), TaskState.SUCCEEDED, b"%d" % result)
        with self._changed:
            if outcome == "accepted":
                self.accepted += 1
                self.ledger.finished(*end)
            elif outcome == "duplicate":
                self.ledger.confirmed(*end)
            self._count()

    def wait_for_more(self, answers: int) -> None:
        with self._changed:
            enough = self.answers + answers
            assert self._changed.wait_for(lambda: self.answers >= enough, PATIENCE_S)

    def wait_until(self, moment: float) -> None:
        """Until this moment of the monotonic clock; what is answered meanwhile is noted."""
        with self._changed:
            self._changed.wait_for(
                lambda: time.monotonic() >= moment, max(0.0, moment - time.monotonic())
            )

    def _count(self) -> None:
        self.answers += 1
        self._changed.notify_all()


class CallingThread(threading.Thread):
    """Makes one call after the other until it is stopped; a call without an answer is no end."""

    def __init__(self, name: str, urls: Sequence[str], book: Book) -> None:
        super().__init__(name=name)
        self.caller = Caller(urls)
        self.book = book
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                try:
                    self.step()
                except NoAnswer as refusal:
                    self.book.refusals += refusal.args
                    self._stop_asked.wait(AGAIN_AFTER_S)
        finally:
            self.caller.close()

    def step(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stop_asked.set()


class Client(CallingThread):
    """Submits, with keys and without, and waits for the last of each batch to be done."""

    def __init__(
        self,
        urls: Sequence[str],
        book: Book,
        seed: int,
        names: Sequence[str],
        *,
        pace_s: float = 0.0,
    ) -> None:
        """Pace: the time from one submission to the next, however long an answer takes."""
        super().__init__(f"client-{seed}", urls, book)
        self._names = names
        self._pace_s = pace_s
        self._next_at = 0.0
        self._dice = random.Random(seed)
        self._numbers = count(seed * 1_000_000)
        self._unanswered: dict[int, str | None] = {}  # keys by number, of the last submission

    def step(self) -> None:
        if self._pace_s:
            self._keep_pace()
        if not self._unanswered:
            size = PACED_TASKS if self._pace_s else self._dice.randint(1, 8)
            numbers = [next(self._numbers) for _ in range(size)]
            has_keys = self._dice.random() < 0.5
            self._unanswered = {number: f"k{number}" if has_keys else None for number in numbers}
        last = self._submit(self._unanswered)
        self._unanswered = {}
        if not self._pace_s:
            self.caller.call("GET", f"/api/tasks/{last}?wait_ms=500")

    def _keep_pace(self) -> None:
        now = time.monotonic()
        self._stop_asked.wait(max(0.0, self._next_at - now))
        # What was missed while nobody answered is not made up for.
        self._next_at = max(self._next_at, now) + self._pace_s

    def _submit(self, keys: dict[int, str | None]) -> str:
        """Submit; without an answer and with keys it is made again, until there is one."""
        name = self._names[min(keys) % len(self._names)]
        tasks = [
            {
                "name": name,
                "payload": {"number": number},
                "key": key,
                "max_attempts": MAX_ATTEMPTS,
            }
            for number, key in keys.items()
        ]
        try:
            status, answer = self.caller.call("POST", "/api/tasks", tasks)
        except NoAnswer:
            if None in keys.values():
                self._unanswered = {}
            raise
        assert status in {200, 201}, answer
        for (number, key), task in zip(keys.items(), answer, strict=True):
            self.book.submitted(task["id"], number, key)
        return str(answer[-1]["id"])


class PlainWorker(CallingThread):
    """A worker in the words of the contract alone; writes down every answer to its results."""

    def __init__(self, urls: Sequence[str], book: Book, worker_id: str, *, most: int = 4) -> None:
        """Most: how many tasks it takes at once."""
        super().__init__(worker_id, urls, book)
        self._most = most
        self._worker_id = worker_id
        self._incarnation: int | None = None
        self._held: dict[str, tuple[int, int]] = {}  # fence and result

    def step(self) -> None:
        if self._incarnation is None:
            self._register()
        elif self._held:
            self._report()
        else:
            self._lease()

    def _register(self) -> None:
        status, answer = self.caller.call(
            "POST",
            "/api/workers",
            {
                "node_id": "here",
                "worker_id": self._worker_id,
                "max_concurrent_tasks": 2 * self._most,
                "tasks": [PLAIN],
                "heartbeat_interval_ms": 1_000,
            },
        )
        assert status == 201, answer
        self._incarnation = answer["incarnation"]

    def _lease(self) -> None:
        # Says that it has nothing: a lease whose answer was lost goes back to its queue.
        self._ask("heartbeat", running=[])
        if self._incarnation is None:
            return
        for lease in self._ask("lease", max=self._most, wait_ms=100).get("leases", []):
            self.book.leased(lease["task_id"], lease["fence"])
            self._held[lease["task_id"]] = (lease["fence"], lease["payload"]["number"] * 2)

    def _report(self) -> None:
        results = [
            {"task_id": task_id, "fence": fence, "ok": True, "result": result}
            for task_id, (fence, result) in self._held.items()
        ]
        for one in self._ask("results", results=results).get("outcomes", []):
            _, result = self._held.pop(one["task_id"])
            self.book.reported(one["task_id"], one["outcome"], result)

    def _ask(self, what: str, **body: Any) -> dict[str, Any]:
        path = f"/api/workers/{self._worker_id}/{what}"
        status, answer = self.caller.call("POST", path, {"incarnation": self._incarnation, **body})
        if status in {404, 409}:
            self._incarnation = None
            self._held.clear()
            return {}
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer
