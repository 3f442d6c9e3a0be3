"""The cost of limits: of claims beside them and under them, and of tasks that have none.

- Three coordinators with the same number of tasks that can start: alone, behind many tasks of keys
  that are full, and spread over many keys. Their claims are timed in turns.
- Three coordinators with tasks that have no keys: of the last version without limits, of this one,
  and of this one beside tasks that have keys. All their calls are timed in turns.
- A drain of tasks of many keys, one at a time for each, which peers have as well.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import coordinators
from benchmarks.comparing import Facts
from benchmarks.coordinators import Coordinator, coordinator, worker
from benchmarks.peers.measuring import KEYS
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.processes import ROOT, Failed, LeftOut
from benchmarks.processor import spent_s
from benchmarks.wire import request

LEASE_SIZE = 100
BATCH = 1_000
BLOCKED_KEYS = 100  # of the tasks that cannot start
CONCURRENCY = 2_000  # of the worker that drains
BEFORE_LIMITS = "df7b61cd28a33c0c83de63b844b4d50433494b7c"  # the last commit without limits
WARM_UP_TURNS = 50


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
        self.costs_us: dict[str, list[float]] = {"claim": [], "report": [], "submit": []}

    def submit(self, tasks: list[dict[str, Any]]) -> None:
        for start in range(0, len(tasks), BATCH):
            body = msgspec.json.encode(tasks[start : start + BATCH])
            self._one.connection.send(request("POST", "/api/tasks", body))

    def claim(self, again: list[dict[str, Any]]) -> None:
        """Claim, complete what was claimed, and queue others; each call is timed."""
        body = f'{{"incarnation":{self._incarnation},"max":{LEASE_SIZE}}}'.encode()
        lease = request("POST", "/api/workers/claimer/lease", body)
        start_s = time.perf_counter()
        answer = self._one.connection.send(lease)
        self._note("claim", start_s)
        leases = coordinators.leases(answer)
        if len(leases) != LEASE_SIZE:
            raise Failed(f"{len(leases)} tasks were claimed instead of {LEASE_SIZE}")
        results = [
            {"task_id": one.task_id, "fence": one.fence, "ok": True, "result": None}
            for one in leases
        ]
        report = {"incarnation": self._incarnation, "results": results}
        done = request("POST", "/api/workers/claimer/results", msgspec.json.encode(report))
        start_s = time.perf_counter()
        self._one.connection.send(done)
        self._note("report", start_s)
        more = request("POST", "/api/tasks", msgspec.json.encode(again))
        start_s = time.perf_counter()
        self._one.connection.send(more)
        self._note("submit", start_s)

    def _note(self, call: str, start_s: float) -> None:
        self.costs_us[call].append((time.perf_counter() - start_s) * 1e6 / LEASE_SIZE)

    def forget(self) -> None:
        """Forget what was measured so far."""
        for costs_us in self.costs_us.values():
            costs_us.clear()

    def processor_s(self) -> float:
        return spent_s(self._one.process.id)

    def figures(self) -> Facts:
        medians_us = {call: statistics.median(costs) for call, costs in self.costs_us.items()}
        return {
            "us_per_task": medians_us["claim"],
            "calls_us": medians_us,
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


def without_keys(plan: Plan, folder: Path) -> Facts:
    """Tasks without keys, by the last version without limits, by this one, and beside keys."""
    with ExitStack() as stack:
        return _without_keys(plan, folder, stack, "no-keys", lambda: None)


def without_keys_on_postgres(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: tasks without keys, by the version before limits, this one, beside keys."""
    with ExitStack() as stack:
        return _without_keys(
            plan, folder, stack, "pg-no-keys", lambda: stack.enter_context(server.database())
        )


def _without_keys(
    plan: Plan, folder: Path, stack: ExitStack, place: str, store: Callable[[], str | None]
) -> Facts:
    source = _version_before(folder / f"{place}-source")
    environments = {"before": {"PYTHONPATH": str(source)}, "now": None, "beside": None}
    claimers = {
        name: Claimer(
            stack.enter_context(
                coordinator(folder / f"{place}-{name}", store=store(), environment=environment)
            )
        )
        for name, environment in environments.items()
    }
    claimers["beside"].submit(keyed(plan.blocked_tasks // 10, BLOCKED_KEYS, limit=0))
    for one in claimers.values():
        one.submit(plain(BATCH))
    _take_turns(list(claimers.values()), WARM_UP_TURNS)
    for one in claimers.values():
        one.forget()
    before_s = {name: one.processor_s() for name, one in claimers.items()}
    _take_turns(list(claimers.values()), plan.plain_turns)
    tasks = plan.plain_turns * LEASE_SIZE
    costs_us = {
        name: (one.processor_s() - before_s[name]) / tasks * 1e6 for name, one in claimers.items()
    }
    found = {
        name: one.figures() | {"processor_us": costs_us[name]} for name, one in claimers.items()
    }
    totals_us = {name: sum(facts["calls_us"].values()) for name, facts in found.items()}
    return {
        **found,
        "turns": plan.plain_turns,
        "commit": BEFORE_LIMITS,
        "plain_ratio": totals_us["now"] / totals_us["before"],
        "beside_ratio": totals_us["beside"] / totals_us["before"],
        "plain_processor_ratio": costs_us["now"] / costs_us["before"],
        "beside_processor_ratio": costs_us["beside"] / costs_us["before"],
    }


def _take_turns(claimers: Sequence[Claimer], turns: int) -> None:
    """Let each claim once a turn; who is first changes from turn to turn."""
    tasks = plain(LEASE_SIZE)
    for turn in range(turns):
        first = turn % len(claimers)
        for one in (*claimers[first:], *claimers[:first]):
            one.claim(tasks)


def _version_before(folder: Path) -> Path:
    """The package as it was before limits, from the history of the checkout."""
    folder.mkdir()
    archive = folder / "source.tar"
    for command in (
        ["git", "archive", f"--output={archive}", BEFORE_LIMITS, "src"],
        ["tar", "--extract", f"--file={archive}", f"--directory={folder}"],
    ):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode != 0:
            raise LeftOut(f"the history has no version before limits: {done.stderr.strip()[-200:]}")
    return folder / "src"


def keyed_drain(plan: Plan, folder: Path) -> Facts:
    """One worker process drains tasks of many keys, one at a time for each key."""
    return _drained(plan.tasks, folder / "keyed")


def keyed_drain_on_postgres(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: one worker process drains tasks of many keys, one at a time for each key."""
    with server.database() as store:
        return _drained(plan.tasks, folder / "pg-keyed", store=store)


def _drained(tasks: int, folder: Path, *, store: str | None = None) -> Facts:
    with coordinator(folder, store=store) as one:
        queued = keyed(tasks, KEYS, limit=1)
        for start in range(0, tasks, BATCH):
            body = msgspec.json.encode(queued[start : start + BATCH])
            one.connection.send(request("POST", "/api/tasks", body))
        with worker(one, concurrency=CONCURRENCY) as process:
            coordinators.wait_until_finished(one, process)
            times = coordinators.times(one, tasks)
    seconds = (times.last_finished_ms - times.first_started_ms) / 1000
    return {"tasks": tasks, "keys": KEYS, "seconds": seconds, "per_s": tasks / seconds}


MEASUREMENTS = {"limits": limits, "without-keys": without_keys, "keyed": keyed_drain}
POSTGRES_MEASUREMENTS = {
    "postgres-without-keys": without_keys_on_postgres,
    "postgres-keyed": keyed_drain_on_postgres,
}
