"""Queues for Node on PostgreSQL: a Node process submits, another works, and this one measures.

The submitting process keeps the time of its own calls, so that neither the line between the two
nor Python is held against it.
"""

import atexit
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.peers import measuring
from benchmarks.peers.measuring import Submitted

PROGRAMS = Path(__file__).with_name("node")
SETTINGS = {
    "pg_boss": "fetch and complete in a loop, batchSize=500, an empty queue polled every 1 ms",
    "graphile_worker": "localQueue.size=500, concurrentJobs=24, completeJobBatchDelay=0",
}
KEYED = {"pg_boss"}
name = os.environ[measuring.VARIANT_VARIABLE]


def command(what: str) -> list[str]:
    return ["node", str(PROGRAMS / f"{name}.mjs"), what]


class NodePeer:
    def __init__(self) -> None:
        self._client = subprocess.Popen(
            command("submit"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        atexit.register(measuring.stop, self._client)
        self._version = self._answer()["version"]

    def describe(self) -> dict[str, Any]:
        return {
            "version": self._version,
            "settings": {
                "store": os.environ[measuring.POSTGRES_SETTINGS_VARIABLE],
                "worker": SETTINGS[name],
            },
        }

    def worker(self) -> list[str]:
        return command("work")

    def submit_one_by_one(self, tasks: int, limit_s: float) -> Submitted:
        return Submitted(**self._ask(do="submit", size=1, tasks=tasks, limit_s=limit_s))

    def submit_in_bulk(self, tasks: int, limit_s: float) -> Submitted:
        size = measuring.BULK
        return Submitted(**self._ask(do="submit", size=size, tasks=tasks, limit_s=limit_s))

    def call(self) -> int:
        return int(self._ask(do="call")["submitted_ns"])

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._client.stdin is not None
        self._client.stdin.write(json.dumps(asked) + "\n")
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._client.stdout is not None
        line = self._client.stdout.readline()
        if not line:
            raise SystemExit(f"the submitting process ended with {self._client.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class KeyedNodePeer(NodePeer):
    """A peer that can also limit how many tasks of a key run."""

    def submit_keyed(self, tasks: int, limit_s: float) -> Submitted:
        asked = {"size": measuring.BULK, "tasks": tasks, "limit_s": limit_s}
        return Submitted(**self._ask(do="submit_keyed", keys=measuring.KEYS, **asked))

    def keyed_worker(self) -> list[str]:
        return command("workKeyed")


Peer = KeyedNodePeer if name in KEYED else NodePeer
