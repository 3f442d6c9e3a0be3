"""Fill a coordinator with something of everything over HTTP, and leave it in the middle.

The stores beside this file were made by it, with the code of the version that their names say:

    python -m tests.old_stores.filling http://127.0.0.1:7070

It speaks plain HTTP, so that it runs against any version.
"""

import json
import sys
import urllib.request
from typing import Any
from urllib.parse import quote

WORKER = "old-worker"
WORKFLOWS: dict[str, dict[str, Any]] = {
    "old_panel": {
        "initial_node": "ask",
        "nodes": {
            "ask": {
                "task": "ask",
                "input": {"q": "input.question"},
                "output": {"state.draft": "result.text"},
            },
            "judge": {"task": "judge", "input": {"draft": "state.draft", "by": "branch.item"}},
            "tally": {
                "task": "tally",
                "input": {"verdicts": "state.verdicts"},
                "output": {"output.winner": "result.winner"},
            },
        },
        "transitions": [
            {"id": "panel", "from": "ask", "to": "judge", "foreach": "input.judges"},
            {
                "from": "judge",
                "to": "tally",
                "synchronization": {
                    "wait_for": "all",
                    "joins_transition": "panel",
                    "merge": {"source": "branch.output.verdict", "target": "state.verdicts"},
                },
            },
        ],
        "output": {"winner": "output.winner"},
    },
    "old_approval": {
        "initial_node": "prepare",
        "nodes": {
            "prepare": {"task": "prepare", "compensate": "undo_prepare"},
            "wait": {"wait_for": {"event": "go"}},
            "finish": {"task": "finish", "output": {"output.done": "result.done"}},
        },
        "transitions": [{"from": "prepare", "to": "wait"}, {"from": "wait", "to": "finish"}],
        "output": {"done": "output.done"},
    },
    "old_nap": {
        "initial_node": "nap",
        "nodes": {"nap": {"sleep_ms": 1_000}, "wake": {"task": "wake"}},
        "transitions": [{"from": "nap", "to": "wake"}],
    },
}
RESULTS: dict[str, Any] = {
    "ask": {"text": "a draft"},
    "judge": {"verdict": "yes"},
    "tally": {"winner": "yes"},
    "prepare": {"ready": True},
    "finish": {"done": True},
}


class Filler:
    def __init__(self, url: str) -> None:
        self._url = url
        self.incarnation = 0

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def register(self) -> None:
        body = {
            "worker_id": WORKER,
            "node_id": "n",
            "max_concurrent_tasks": 50,
            "heartbeat_interval_ms": 60_000,
        }
        self.incarnation = self.call("POST", "/api/workers", body)["incarnation"]

    def lease(self, most: int, *, wait_ms: int = 0) -> list[dict[str, Any]]:
        body = {"incarnation": self.incarnation, "max": most, "wait_ms": wait_ms}
        leases: list[dict[str, Any]] = self.call("POST", f"/api/workers/{WORKER}/lease", body)[
            "leases"
        ]
        return leases

    def report(self, results: list[dict[str, Any]]) -> None:
        body = {"incarnation": self.incarnation, "results": results}
        self.call("POST", f"/api/workers/{WORKER}/results", body)

    def work(self, most: int, *, wait_ms: int = 0) -> int:
        """Finish up to this many tasks, as each of their names says; how many there were."""
        leases = self.lease(most, wait_ms=wait_ms)
        self.report([_result(lease) for lease in leases])
        return len(leases)


def _result(lease: dict[str, Any]) -> dict[str, Any]:
    about = {"task_id": lease["task_id"], "fence": lease["fence"]}
    if lease["name"] == "old.fails":
        error = {"type": "ValueError", "message": "broken on purpose", "retryable": False}
        return {**about, "ok": False, "error": error}
    if lease["name"] == "old.retried" and lease["attempt"] == 1:
        return {
            **about,
            "ok": False,
            "error": {"type": "OSError", "message": "once more", "retryable": True},
        }
    return {**about, "ok": True, "result": RESULTS.get(lease["name"], {"of": lease["name"]})}


def fill(url: str) -> None:
    filler = Filler(url)
    call = filler.call
    filler.register()

    # Finished tasks: succeeded, failed for good, cancelled.
    call(
        "POST",
        "/api/tasks",
        [{"name": "old.done", "payload": {"n": n}, "labels": ["old"]} for n in range(5)],
    )
    call(
        "POST",
        "/api/tasks",
        [{"name": "old.fails", "max_attempts": 1}, {"name": "old.keyed", "key": "done-once"}],
    )
    cancelled = call("POST", "/api/tasks", {"name": "old.cancelled", "delay_ms": 3_600_000})
    call("POST", f"/api/tasks/{cancelled['id']}/cancel")
    while filler.work(50):
        pass

    # Runs: one finished, one in the middle of its fan-out, one that waits, one that sleeps.
    for name, definition in WORKFLOWS.items():
        call("PUT", f"/api/workflows/{name}", {"name": name, **definition})
    panel = {"workflow": "old_panel", "input": {"question": "why", "judges": ["a", "b", "c"]}}
    call("POST", "/api/runs", {**panel, "key": "finished-run"})
    while filler.work(50):
        pass
    call("POST", "/api/runs", {"workflow": "old_approval", "input": {}, "key": "waiting-run"})
    filler.work(1)
    call("POST", "/api/runs", {**panel, "key": "open-run"})
    filler.work(1)  # ask
    filler.work(1)  # one of three judges
    call("POST", "/api/runs", {"workflow": "old_nap", "input": {}, "key": "sleeping-run"})

    # Live tasks: queued in two queues, scheduled, to be retried, leased and never reported.
    call(
        "POST",
        "/api/tasks",
        [{"name": "old.waits", "payload": {"n": n}, "key": f"waits-{n}"} for n in range(20)],
    )
    call(
        "POST",
        "/api/tasks",
        {"name": "old.other_queue", "queue": "reports", "priority": 5, "key": "done-once"},
    )
    call("POST", "/api/tasks", {"name": "old.later", "delay_ms": 1_000, "key": "later"})
    call(
        "POST",
        "/api/tasks",
        {"name": "old.retried", "priority": 100, "backoff": {"kind": "none", "initial_ms": 1}},
    )
    filler.work(1)
    call("POST", "/api/tasks", {"name": "old.leased", "priority": 100, "key": "leased"})
    filler.lease(1)

    # Everything else that is kept.
    call("PUT", f"/api/memory/{quote('config/theme', safe='')}", {"value": {"dark": True}})
    call(
        "POST", "/api/locks/old-lock/acquire", {"owner": "someone", "ttl_ms": 60_000, "wait_ms": 0}
    )
    call("POST", "/api/queues/paused/pause")
    call("PUT", "/api/services/old_service", {"shard_count": 8})
    call("POST", "/api/tokens", {"name": "old reader", "scopes": ["read"]})


if __name__ == "__main__":
    fill(sys.argv[1])
