"""A load generator that costs little: one process, plain sockets, requests written beforehand.

It is run as a program of its own, beside a coordinator, and prints what came of it as JSON. Every
connection of the flood submits one task after the other, as fast as it is answered. Meanwhile a
few workers keep their work: they beat and report results, half of them over a new connection for
each call.
"""

import json
import select
import socket
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from typing import Any

WORKERS = 4
TASKS_OF_WORKER = 200
PAUSE_S = 0.02  # between two calls of one worker
LAST_ANSWERS_S = 30.0
FLOOD, KEPT = "flood", "kept"

Json = Any


def request(method: str, path: str, body: Json) -> bytes:
    content = json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Line:
    """A connection with one request under way."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answer = b""
        self.sent_at_s = 0.0
        self.connect()

    def connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setblocking(False)  # noqa: FBT003 - the socket's own signature

    def send(self, content: bytes) -> None:
        self.sent_at_s = time.perf_counter()
        self.socket.send(content)

    def read(self) -> tuple[int, bytes] | None:
        """Status and body, when the answer is there as a whole."""
        self._answer += self.socket.recv(65_536)
        head, found, body = self._answer.partition(b"\r\n\r\n")
        length = head.rpartition(b"content-length: ")[2]
        if not found or len(body) < int(length.partition(b"\r\n")[0]):
            return None
        self._answer = b""
        return int(head[9:12]), body


class Flood:
    def __init__(self, port: int, connections: int) -> None:
        self._poll = select.epoll()
        self._submission = request("POST", "/api/tasks", {"name": "work", "queue": FLOOD})
        self._lines = {line.socket.fileno(): line for line in self._opened(port, connections)}
        self.statuses: Counter[int] = Counter()
        self.refused_s: list[float] = []
        self.acknowledged: list[str] = []
        self.under_way = 0

    def _opened(self, port: int, count: int) -> list[Line]:
        lines = [Line(port) for _ in range(count)]
        for line in lines:
            self._poll.register(line.socket, select.EPOLLIN)
        return lines

    def begin(self) -> None:
        for line in self._lines.values():
            line.send(self._submission)
            self.under_way += 1

    def turn(self, *, goes_on: bool) -> None:
        """Take the answers that are there, and ask again."""
        for number, _ in self._poll.poll(PAUSE_S):
            line = self._lines[number]
            answer = line.read()
            if answer is None:
                continue
            status, body = answer
            self.statuses[status] += 1
            if status == 201:
                self.acknowledged.append(json.loads(body)["id"])
            else:
                self.refused_s.append(time.perf_counter() - line.sent_at_s)
            if goes_on:
                line.send(self._submission)
            else:
                self.under_way -= 1


class Worker:
    """Beats and reports, and remembers every status it was answered with."""

    def __init__(self, port: int, number: int, tasks: list[Json], incarnation: int) -> None:
        self._is_restless = number % 2 == 1  # it connects again for each call
        path = f"/api/workers/w{number}"
        self._beat = request("POST", f"{path}/heartbeat", {"incarnation": incarnation})
        self._results = [
            request(
                "POST",
                f"{path}/results",
                {
                    "incarnation": incarnation,
                    "results": [{"task_id": one["task_id"], "fence": one["fence"], "ok": True}],
                },
            )
            for one in tasks
        ]
        self._line = Line(port)
        self._is_asking = False
        self._due_s = 0.0
        self._reports_next = False
        self.statuses: Counter[int] = Counter()
        self.unaccepted = 0
        self.slowest_s = 0.0

    def turn(self, now_s: float, *, goes_on: bool) -> bool:
        """Take an answer, or ask; whether a call is under way."""
        if self._is_asking:
            self._take()
        elif goes_on and now_s >= self._due_s:
            self._ask()
        return self._is_asking

    def _ask(self) -> None:
        if self._is_restless:
            self._line.socket.close()
            self._line.connect()
        is_report = self._reports_next and bool(self._results)
        self._line.send(self._results.pop() if is_report else self._beat)
        self._reports_next = not self._reports_next
        self._is_asking = True

    def _take(self) -> None:
        try:
            answer = self._line.read()
        except BlockingIOError:
            return
        if answer is None:
            return
        now_s = time.perf_counter()
        status, body = answer
        self.statuses[status] += 1
        outcomes = json.loads(body).get("outcomes", [])
        self.unaccepted += sum(one["outcome"] != "accepted" for one in outcomes)
        self.slowest_s = max(self.slowest_s, now_s - self._line.sent_at_s)
        self._is_asking, self._due_s = False, now_s + PAUSE_S


# --- before and after ---------------------------------------------------------------------------


def ask(port: int, method: str, path: str, body: Json = None) -> Json:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status < 300, content
        return json.loads(content)
    finally:
        connection.close()


def workers(port: int) -> list[Worker]:
    """Workers that have registered, each with some leased tasks."""
    found = []
    for number in range(WORKERS):
        ask(port, "POST", "/api/tasks", [{"name": "work", "queue": KEPT}] * TASKS_OF_WORKER)
        registration = {
            "worker_id": f"w{number}",
            "node_id": "n1",
            "max_concurrent_tasks": TASKS_OF_WORKER,
            "queues": [KEPT],
        }
        incarnation = ask(port, "POST", "/api/workers", registration)["incarnation"]
        wish = {"incarnation": incarnation, "max": TASKS_OF_WORKER}
        leases = ask(port, "POST", f"/api/workers/w{number}/lease", wish)["leases"]
        assert len(leases) == TASKS_OF_WORKER
        found.append(Worker(port, number, leases, incarnation))
    return found


def stored(port: int) -> set[str]:
    """The ids of all tasks of the flood that the coordinator has."""
    found: set[str] = set()
    cursor = ""
    while True:
        page = ask(port, "GET", f"/api/tasks?queue={FLOOD}&limit=1000&cursor={cursor}")
        found |= {item["id"] for item in page["items"]}
        cursor = page["next_cursor"]
        if not cursor:
            return found


def main(port: int, connections: int, seconds: float) -> None:
    fleet = workers(port)
    flood = Flood(port, connections)
    flood.begin()
    end_s = time.perf_counter() + seconds
    while (now_s := time.perf_counter()) < end_s + LAST_ANSWERS_S:
        goes_on = now_s < end_s
        flood.turn(goes_on=goes_on)
        # All are asked: one that is under way must not keep the next from its turn.
        asking = [worker.turn(now_s, goes_on=goes_on) for worker in fleet]
        if not goes_on and not any(asking) and not flood.under_way:
            break
    refused_s = sorted(flood.refused_s)
    told = sum((worker.statuses for worker in fleet), Counter[int]())
    print(  # noqa: T201 - a program's output
        json.dumps(
            {
                "statuses": flood.statuses,
                "refusal_p50_ms": refused_s[len(refused_s) // 2] * 1000 if refused_s else None,
                "refusal_p99_ms": refused_s[len(refused_s) * 99 // 100] * 1000
                if refused_s
                else None,
                "unanswered": flood.under_way,
                "lost": len({*flood.acknowledged} - stored(port)),
                "worker_statuses": told,
                "worker_unaccepted": sum(worker.unaccepted for worker in fleet),
                "worker_slowest_ms": max(worker.slowest_s for worker in fleet) * 1000,
                "evicted": WORKERS - len(ask(port, "GET", "/api/workers")["items"]),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
