"""The measurements of Rota: one function each, which starts from an empty store."""

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks import (
    coordinators,
    functions,
    limits,
    schedules,
    shard_decisions,
    shards,
    streams,
    witness,
    workflows,
)
from benchmarks.app import app, call, noop
from benchmarks.coordinators import Coordinator, coordinator, wait_for_worker, worker
from benchmarks.peers.measuring import GAP_S, PICKUP_LIMIT_S, percentiles
from benchmarks.plan import Plan
from benchmarks.processes import Failed
from benchmarks.processor import Meter
from benchmarks.wire import request
from rota.sdk.client.client import Client

CONCURRENCY = 2_000
IDLE_CONCURRENCY = 10
WARM_UP_SAMPLES = 20
SUBMISSIONS = 5  # times `tasks`; otherwise a submission takes too little time to measure
LEASE_SIZE = 100

Facts = dict[str, Any]
Measurement = Callable[[Plan, Path], Facts]


def drain(plan: Plan, folder: Path) -> Facts:
    """One worker process drains tasks that were queued beforehand."""
    return repeated(lambda turn: drained(plan.tasks, folder / f"drain-{turn}"), plan)


def drain_large(plan: Plan, folder: Path) -> Facts:
    """The same with more tasks, to show whether the rate holds."""
    return drained(plan.large_tasks or plan.tasks, folder / "drain-large")


def drained(
    tasks: int, folder: Path, *, store: str | None = None, server_id: int | None = None
) -> Facts:
    with coordinator(folder, store=store) as one:
        first_id, last_id = coordinators.fill(one, tasks)
        with worker(one, concurrency=CONCURRENCY) as process:
            used = {"coordinator": one.process.id, "worker": process.id}
            meter = Meter(used | ({} if server_id is None else {"server": server_id}))
            coordinators.wait_for_task(one, first_id, process)
            meter.done(tasks - coordinators.unfinished(one))
            coordinators.wait_for_task(one, last_id, process)
            coordinators.wait_until_finished(one, process)
            meter.done(tasks)
            times = coordinators.times(one, tasks)
            memory_mib = one.process.memory_mib()
    elapsed_ms = times.last_finished_ms - times.first_started_ms
    return rate(tasks, elapsed_ms / 1000) | {
        "memory_mib": memory_mib,
        "cpu_us": meter.us_per_task(),
    }


def end_to_end(plan: Plan, folder: Path) -> Facts:
    """A client submits in batches while a worker runs the tasks, up to the last completion."""
    return repeated(lambda turn: _end_to_end(plan, folder / f"end-to-end-{turn}"), plan)


def _end_to_end(plan: Plan, folder: Path) -> Facts:
    with coordinator(folder) as one, worker(one, concurrency=CONCURRENCY) as process:
        wait_for_worker(one, process)
        coordinators.submit_at_once(one, plan.tasks, batch=plan.batch, connections=plan.connections)
        coordinators.wait_until_finished(one, process)
        times = coordinators.times(one, plan.tasks)
        memory_mib = one.process.memory_mib()
    elapsed_ms = times.last_finished_ms - times.first_created_ms
    return rate(plan.tasks, elapsed_ms / 1000) | {"memory_mib": memory_mib}


def submit_one(plan: Plan, folder: Path) -> Facts:
    """One call after the other from one thread of one client, with the SDK."""
    with coordinator(folder / "submit-one") as one:
        return submitted_one_by_one(one, plan.one_by_one)


def submitted_one_by_one(one: Coordinator, tasks: int) -> Facts:
    with _Connected(one):
        start_s = time.perf_counter()
        for _ in range(tasks):
            noop.enqueue()
        return rate(tasks, time.perf_counter() - start_s)


def submit_batches(plan: Plan, folder: Path) -> Facts:
    """Batches, prepared beforehand, from one client process over a few connections."""

    def once(turn: int) -> Facts:
        with coordinator(folder / f"submit-batches-{turn}") as one:
            return submitted_in_batches(one, plan)

    return repeated(once, plan)


def submitted_in_batches(one: Coordinator, plan: Plan) -> Facts:
    tasks = SUBMISSIONS * plan.tasks
    elapsed_s = coordinators.submit_at_once(
        one, tasks, batch=plan.batch, connections=plan.connections
    )
    return rate(tasks, elapsed_s) | {"memory_mib": one.process.memory_mib()}


def submit_batches_sdk(plan: Plan, folder: Path) -> Facts:
    """Batches with the SDK from a few threads, with arguments checked and handles created."""
    batches = SUBMISSIONS * plan.tasks // plan.batch // plan.connections

    def submit() -> None:
        for _ in range(batches):
            app.enqueue_many(noop.bind() for _ in range(plan.batch))

    with coordinator(folder / "submit-batches-sdk") as one, _Connected(one):
        threads = [Thread(target=submit, daemon=True) for _ in range(plan.connections)]
        start_s = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed_s = time.perf_counter() - start_s
        tasks = batches * plan.batch * plan.connections
        depth = sum(queue["depth"] for queue in one.connection.ask("GET", "/api/queues")["items"])
        if depth != tasks:
            raise Failed(f"{tasks} tasks were submitted and {depth} are queued")
    return rate(tasks, elapsed_s)


def pickup(plan: Plan, folder: Path) -> Facts:
    """One task at a time on an idle system: from the start of the call to that of the handler."""
    with coordinator(folder / "pickup") as one:
        facts = picked_up(one, one, plan.samples)
        return facts | {"memory_mib": one.process.memory_mib()}


def picked_up(submitting: Coordinator, working: Coordinator, samples: int) -> Facts:
    """Submit to one coordinator; the only worker is at the other, which may be the same."""
    with (
        worker(working, concurrency=IDLE_CONCURRENCY) as process,
        _Connected(submitting),
    ):
        listener = witness.Listener(working.folder)
        wait_for_worker(working, process)
        latencies_ms: list[float] = []
        for _ in range(WARM_UP_SAMPLES + samples):
            time.sleep(random.uniform(*GAP_S))
            submitted_ns = time.monotonic_ns()
            call.enqueue(submitted_ns)
            latency_ms = listener.latency_ms(submitted_ns, limit_s=PICKUP_LIMIT_S)
            if latency_ms is None:
                raise Failed(f"a task was not picked up within {PICKUP_LIMIT_S:.0f} s")
            latencies_ms.append(latency_ms)
        listener.close()
    return dict(percentiles(latencies_ms[WARM_UP_SAMPLES:]))


def claim(plan: Plan, folder: Path) -> Facts:
    """Claims from a short queue and from long ones, which are refilled after each claim."""
    with coordinator(folder / "claim") as one:
        registration = {
            "worker_id": "claimer",
            "node_id": "benchmark",
            "tasks": ["noop"],
            "max_concurrent_tasks": LEASE_SIZE,
            "heartbeat_interval_ms": 600_000,
        }
        incarnation = one.connection.ask("POST", "/api/workers", registration)["incarnation"]
        depth = 0
        facts: Facts = {
            "lease_size": LEASE_SIZE,
            "calls": plan.claim_calls,
            "empty_call_us": _median_us(one, incarnation, plan, expected=0),
            "depths": {},
        }
        for wanted in plan.claim_depths:
            coordinators.fill(one, wanted - depth)
            depth = wanted
            median_us = _median_us(one, incarnation, plan, expected=LEASE_SIZE)
            facts["depths"][str(depth)] = {
                "us_per_task": median_us / LEASE_SIZE,
                "memory_mib": one.process.memory_mib(),
            }
        shallow, *_, deep = (entry["us_per_task"] for entry in facts["depths"].values())
        return facts | {"ratio": deep / shallow}


def _median_us(one: Coordinator, incarnation: int, plan: Plan, *, expected: int) -> float:
    return statistics.median(
        _claim_us(one, incarnation, expected=expected) for _ in range(plan.claim_calls)
    )


def _claim_us(one: Coordinator, incarnation: int, *, expected: int) -> float:
    """Time one claim; then complete the claimed tasks and queue as many again, untimed."""
    lease = request(
        "POST",
        "/api/workers/claimer/lease",
        f'{{"incarnation":{incarnation},"max":{LEASE_SIZE}}}'.encode(),
    )
    start_s = time.perf_counter()
    answer = one.connection.send(lease)
    elapsed_us = (time.perf_counter() - start_s) * 1e6
    leases = coordinators.leases(answer)
    if len(leases) != expected:
        raise Failed(f"{len(leases)} tasks were claimed instead of {expected}")
    if not leases:
        return elapsed_us
    results = [
        {"task_id": lease.task_id, "fence": lease.fence, "ok": True, "result": None}
        for lease in leases
    ]
    report = {"incarnation": incarnation, "results": results}
    one.connection.ask("POST", "/api/workers/claimer/results", report)
    one.connection.send(coordinators.submission(LEASE_SIZE))
    return elapsed_us


class _Connected:
    """Connects the tasks of `benchmarks.app` to this coordinator."""

    def __init__(self, one: Coordinator) -> None:
        self._url = one.url

    def __enter__(self) -> None:
        app.use(Client.connect(self._url))

    def __exit__(self, *_: object) -> None:
        app.close()


def rate(tasks: int, elapsed_s: float) -> Facts:
    return {"tasks": tasks, "seconds": elapsed_s, "per_s": tasks / max(elapsed_s, 1e-9)}


def repeated(once: Callable[[int], Facts], plan: Plan) -> Facts:
    """The round with the median rate, and the rates of all rounds."""
    turns = sorted((once(turn) for turn in range(plan.repeats)), key=lambda facts: facts["per_s"])
    return turns[len(turns) // 2] | {"all_per_s": [facts["per_s"] for facts in turns]}


MEASUREMENTS: dict[str, Measurement] = {
    "drain": drain,
    "drain-large": drain_large,
    "end-to-end": end_to_end,
    "submit-one": submit_one,
    "submit-batches": submit_batches,
    "submit-batches-sdk": submit_batches_sdk,
    "pickup": pickup,
    "claim": claim,
    **limits.MEASUREMENTS,
    **schedules.MEASUREMENTS,
    **workflows.MEASUREMENTS,
    **functions.MEASUREMENTS,
    **shard_decisions.MEASUREMENTS,
    **shards.MEASUREMENTS,
    **streams.MEASUREMENTS,
}
