"""The cost of claims from queues whose tasks have limits.

Three coordinators with the same number of tasks that can start: alone, behind many tasks of keys
that are full, and spread over many keys. Their claims are timed in turns.
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import coordinators
from benchmarks.comparing import Facts
from benchmarks.coordinators import Coordinator, coordinator
from benchmarks.plan import Plan
from benchmarks.processes import Failed
from benchmarks.wire import request

LEASE_SIZE = 100
BATCH = 1_000
BLOCKED_KEYS = 100  # of the tasks that cannot start


class Claimer:
    """A worker that claims, completes what it has claimed, and queues as much again."""

    def __init__(self, one: Coordinator) -> None:
        self._one = one
        registration = {
            "worker_id": "claimer",
            "node_id": "benchmark",
            "tasks": ["noop"],
            "max_concurrent_tasks": LEASE_SIZE,
            "heartbeat_interval_ms": 600_000,
        }
        self._incarnation = one.connection.ask("POST", "/api/workers", registration)["incarnation"]
        self.costs_us: list[float] = []

    def submit(self, tasks: list[dict[str, Any]]) -> None:
        for start in range(0, len(tasks), BATCH):
            body = msgspec.json.encode(tasks[start : start + BATCH])
            self._one.connection.send(request("POST", "/api/tasks", body))

    def claim(self, again: list[dict[str, Any]]) -> None:
        """Time one claim; then complete the tasks and queue others, untimed."""
        body = f'{{"incarnation":{self._incarnation},"max":{LEASE_SIZE}}}'.encode()
        lease = request("POST", "/api/workers/claimer/lease", body)
        start_s = time.perf_counter()
        answer = self._one.connection.send(lease)
        self.costs_us.append((time.perf_counter() - start_s) * 1e6 / LEASE_SIZE)
        leases = coordinators.leases(answer)
        if len(leases) != LEASE_SIZE:
            raise Failed(f"{len(leases)} tasks were claimed instead of {LEASE_SIZE}")
        results = [
            {"task_id": one.task_id, "fence": one.fence, "ok": True, "result": None}
            for one in leases
        ]
        report = {"incarnation": self._incarnation, "results": results}
        self._one.connection.ask("POST", "/api/workers/claimer/results", report)
        self.submit(again)

    def figures(self) -> Facts:
        return {
            "us_per_task": statistics.median(self.costs_us),
            "memory_mib": self._one.process.memory_mib(),
        }


def plain(count: int) -> list[dict[str, Any]]:
    return [{"name": "noop"} for _ in range(count)]


def keyed(count: int, keys: int, *, first: int = 0, limit: int = 1_000) -> list[dict[str, Any]]:
    return [
        {"name": "noop", "concurrency": {"key": f"key {(first + n) % keys}", "limit": limit}}
        for n in range(count)
    ]


def limits(plan: Plan, folder: Path) -> Facts:
    """Claims beside blocked keys, and over many keys, against claims without any."""
    with ExitStack() as stack:
        claimers = {
            name: Claimer(stack.enter_context(coordinator(folder / f"limits-{name}")))
            for name in ("plain", "blocked", "spread")
        }
        claimers["plain"].submit(plain(BATCH))
        claimers["blocked"].submit(keyed(plan.blocked_tasks, BLOCKED_KEYS, limit=0))
        claimers["blocked"].submit(plain(BATCH))
        claimers["spread"].submit(keyed(plan.spread_tasks, plan.spread_keys))
        for turn in range(plan.claim_calls):
            claimers["plain"].claim(plain(LEASE_SIZE))
            claimers["blocked"].claim(plain(LEASE_SIZE))
            first = turn * LEASE_SIZE
            claimers["spread"].claim(keyed(LEASE_SIZE, plan.spread_keys, first=first))
        found = {name: one.figures() for name, one in claimers.items()}
    base_us = found["plain"]["us_per_task"]
    return {
        **found,
        "lease_size": LEASE_SIZE,
        "calls": plan.claim_calls,
        "blocked_tasks": plan.blocked_tasks,
        "spread_tasks": plan.spread_tasks,
        "spread_keys": plan.spread_keys,
        "blocked_ratio": found["blocked"]["us_per_task"] / base_us,
        "spread_ratio": found["spread"]["us_per_task"] / base_us,
    }


MEASUREMENTS = {"limits": limits}
