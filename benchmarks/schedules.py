"""The measurements of schedules: what they cost while none is due, and how late they fire.

Both have as many schedules as the plan says, each with a task of its own. The lateness is taken at
the handler, by the wall clock that the coordinator and the worker share: it includes the commit of
the firing, the lease of the task and the way to the worker.
"""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from benchmarks import witness
from benchmarks.coordinators import Coordinator, coordinator, wait_for_worker, worker
from benchmarks.peers.measuring import percentiles
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.processes import Failed
from benchmarks.processor import spent_s
from benchmarks.wire import Connection, request

Facts = dict[str, Any]

CONNECTIONS = 8
SETTLE_S = 3.0  # for the work that follows from storing the schedules
MINUTE_MS = 60_000
DAY_MS = 86_400_000
SLACK_S = 5.0  # after the minute, for firings that are late
CONCURRENCY = 100
SEEN_LATE_MS = 100.0  # the bar; how many firings were later is in the raw figures


def idle(plan: Plan, folder: Path) -> Facts:
    """Schedules of which none is due: the coordinator's share of a core, and its memory."""
    with coordinator(folder / "schedules-idle") as one:
        return _idle(one, plan, processes=[one.process.id])


def idle_on_postgres(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: schedules of which none is due; the share of a core counts the server's."""
    with server.database() as store, coordinator(folder / "pg-sched-idle", store=store) as one:
        return _idle(one, plan, processes=[one.process.id, server.process_id])


def _idle(one: Coordinator, plan: Plan, *, processes: list[int]) -> Facts:
    before = _core_percent(processes, plan.idle_s)
    memory_before = one.process.memory_mib()
    half_a_day_on_ms = (_now_ms() + DAY_MS // 2) % DAY_MS
    seconds = _put(one, plan.schedules, every_ms=DAY_MS, offset_ms=lambda _: half_a_day_on_ms)
    time.sleep(SETTLE_S)
    percent = _core_percent(processes, plan.idle_s)
    return {
        "schedules": plan.schedules,
        "put_per_s": plan.schedules / seconds,
        "idle_percent": percent,
        "empty_percent": before,
        "added_percent": max(0.0, percent - before),
        "memory_mib": one.process.memory_mib(),
        "empty_mib": memory_before,
    }


def fire(plan: Plan, folder: Path) -> Facts:
    """Each schedule fires once a minute: from its time to the start of the handler."""
    with coordinator(folder / "schedules-fire") as one:
        return _fire(one, plan, processes=[one.process.id])


def fire_on_postgres(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: each schedule fires once a minute, up to the start of the handler."""
    with server.database() as store, coordinator(folder / "pg-sched-fire", store=store) as one:
        return _fire(one, plan, processes=[one.process.id, server.process_id])


def _fire(one: Coordinator, plan: Plan, *, processes: list[int]) -> Facts:
    with worker(one, concurrency=CONCURRENCY) as process:
        wait_for_worker(one, process)
        step_ms = MINUTE_MS / plan.schedules
        _put(one, plan.schedules, every_ms=MINUTE_MS, offset_ms=lambda n: int(n * step_ms))
        time.sleep(SETTLE_S)
        first_ms = _now_ms()
        percent = _core_percent(processes, MINUTE_MS / 1000)
        time.sleep(SLACK_S)
        seen = witness.firings(one.folder)
    late_ms = [
        started_ms - nominal_ms
        for nominal_ms, started_ms in seen
        if first_ms <= nominal_ms < first_ms + MINUTE_MS
    ]
    if len(late_ms) != plan.schedules:
        raise Failed(f"{plan.schedules} schedules fired {len(late_ms)} times in a minute")
    return {
        "schedules": plan.schedules,
        "firings": len(late_ms),
        "fire_percent": percent,
        "worst_ms": max(late_ms),
        "too_late": sum(late > SEEN_LATE_MS for late in late_ms),
        **percentiles(late_ms),
    }


def _put(one: Coordinator, count: int, *, every_ms: int, offset_ms: Callable[[int], int]) -> float:
    """Store the schedules over several connections; return the seconds it took."""
    problems: list[Exception] = []

    def put(numbers: range) -> None:
        try:
            connection = Connection(one.port)
            for number in numbers:
                body = msgspec.json.encode(
                    {
                        "every_ms": every_ms,
                        "offset_ms": offset_ms(number),
                        "task": {"name": "fired"},
                        "with_times": True,
                    }
                )
                connection.send(request("PUT", f"/api/schedules/job-{number}", body))
            connection.close()
        except (OSError, Failed) as error:
            problems.append(error)

    shares = [range(first, count, CONNECTIONS) for first in range(CONNECTIONS)]
    threads = [Thread(target=put, args=(share,), daemon=True) for share in shares]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Failed(f"schedules could not be stored: {problems[0]}")
    return time.perf_counter() - start_s


def _core_percent(processes: list[int], seconds: float) -> float:
    """The share of a core that the processes and their descendants use in that time."""
    before_s, start_s = sum(map(spent_s, processes)), time.monotonic()
    time.sleep(seconds)
    used_s = sum(map(spent_s, processes)) - before_s
    return 100 * used_s / (time.monotonic() - start_s)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


MEASUREMENTS = {"schedules-idle": idle, "schedules-fire": fire}
POSTGRES_MEASUREMENTS = {
    "postgres-schedules-idle": idle_on_postgres,
    "postgres-schedules-fire": fire_on_postgres,
}
