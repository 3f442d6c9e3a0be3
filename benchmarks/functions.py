"""The measurements of durable functions, with one worker process.

The functions of `benchmarks.app` have no-op steps. Callers start runs over HTTP and wait for their
ends in the same call, as `execute` of the SDK does. Rates count from the first start to the last
end, by the coordinator's own clock. DBOS runs functions of as many steps in the same run of the
benchmark, queued and called directly.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.coordinators import Coordinator, coordinator, wait_for_worker, worker
from benchmarks.plan import Plan
from benchmarks.processes import Failed, Process
from benchmarks.wire import Connection

CONCURRENCY = 64  # functions at once
CHILDREN = 100
REPLAYED_STEPS = 1_000
SLEEP_MS = 600_000
WARM_UP_RUNS = 3
WAIT_MS = 60_000
POLL_S = 0.05

Facts = dict[str, Any]


def three_steps(plan: Plan, folder: Path) -> Facts:
    """Functions of three steps, 64 at once: each caller waits for one before it starts the next."""
    turns = [_rate(plan, folder / f"functions-three-{turn}") for turn in range(plan.repeats)]
    turns.sort(key=lambda facts: float(facts["per_s"]))
    return turns[len(turns) // 2] | {"all_per_s": [facts["per_s"] for facts in turns]}


def one_by_one(plan: Plan, folder: Path) -> Facts:
    """Functions of three steps by one caller, one after the other."""
    with _serving(folder / "functions-one") as (one, _):
        taken_ms = _one_by_one(one, "three_steps", plan.functions)
    seconds = sum(taken_ms) / 1000
    rate = {"runs": len(taken_ms), "seconds": seconds, "per_s": len(taken_ms) / seconds}
    return _percentiles(taken_ms) | rate


def children(plan: Plan, folder: Path) -> Facts:
    """A function that starts a hundred child runs and waits for all of them."""
    with _serving(folder / "functions-children") as (one, _):
        taken_ms = _one_by_one(one, "family", plan.fans, {"size": CHILDREN})
    return _percentiles(taken_ms) | {"children": CHILDREN}


def sleepers(plan: Plan, folder: Path) -> Facts:
    """Functions that sleep: the memory that they take in all, and the tasks that they occupy."""
    with _serving(folder / "functions-sleepers") as (one, process):
        before_mb = _memory_mb(one.process, process)
        _at_once(one, "sleeper", {"sleep_ms": SLEEP_MS}, plan.sleepers, waits=False)
        _wait_until_suspended(one, process)
        overview = one.connection.ask("GET", "/api/overview")
        if overview["runs"].get("running") != plan.sleepers:
            raise Failed(f"{plan.sleepers} functions were to sleep: {overview['runs']}")
        return {
            "sleepers": plan.sleepers,
            "added_mb": _memory_mb(one.process, process) - before_mb,
            "occupied": overview["tasks"]["queued"] + overview["tasks"]["running"],
        }


def replay(plan: Plan, folder: Path) -> Facts:
    """A worker that never saw a function reads its log, replays a thousand steps, and ends it.

    The time is that from a signal that lets the function go on to its end, as a caller sees it.
    """
    taken_ms = []
    with coordinator(folder / "functions-replay") as one:
        with worker(one, concurrency=CONCURRENCY) as process:
            wait_for_worker(one, process)
            started = [
                _start(one.connection, "long", {"steps": REPLAYED_STEPS})
                for _ in range(plan.replays)
            ]
            _wait_until_suspended(one, process)
        with worker(one, concurrency=CONCURRENCY) as process:
            wait_for_worker(one, process)
            for run_id in started:
                start_s = time.perf_counter()
                one.connection.ask("POST", f"/api/runs/{run_id}/signal", {"name": "go"})
                _wait_for(one.connection, run_id)
                taken_ms.append((time.perf_counter() - start_s) * 1000)
    return _percentiles(taken_ms) | {"steps": REPLAYED_STEPS}


MEASUREMENTS: dict[str, Callable[[Plan, Path], Facts]] = {
    "functions-three": three_steps,
    "functions-one": one_by_one,
    "functions-children": children,
    "functions-sleepers": sleepers,
    "functions-replay": replay,
}


# --- running them ---------------------------------------------------------------------------------


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[Coordinator, Process]]:
    with coordinator(folder) as one, worker(one, concurrency=CONCURRENCY) as process:
        wait_for_worker(one, process)
        for _ in range(WARM_UP_RUNS):
            _wait_for(one.connection, _start(one.connection, "three_steps", {}))
        yield one, process


def _rate(plan: Plan, folder: Path) -> Facts:
    with _serving(folder) as (one, _):
        start_s = time.perf_counter()
        _at_once(one, "three_steps", {}, plan.functions, waits=True)
        seconds = time.perf_counter() - start_s
    return {"runs": plan.functions, "seconds": seconds, "per_s": plan.functions / seconds}


def _at_once(one: Coordinator, name: str, run_input: Facts, runs: int, *, waits: bool) -> None:
    """Start runs over 64 connections, each of which waits for its run before the next, if asked."""
    left = iter(range(runs))
    problems: list[Exception] = []

    def start(connection: Connection) -> None:
        try:
            for _ in left:
                if waits:
                    _execute(connection, name, run_input)
                else:
                    _start(connection, name, run_input)
        except (OSError, Failed) as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [
        Thread(target=start, args=(Connection(one.port),), daemon=True) for _ in range(CONCURRENCY)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Failed(f"running functions failed: {problems[0]}")


def _one_by_one(
    one: Coordinator, name: str, runs: int, run_input: Facts | None = None
) -> list[float]:
    taken_ms = []
    for _ in range(WARM_UP_RUNS + runs):
        start_s = time.perf_counter()
        _execute(one.connection, name, run_input or {})
        taken_ms.append((time.perf_counter() - start_s) * 1000)
    return taken_ms[WARM_UP_RUNS:]


def _start(connection: Connection, name: str, run_input: Facts) -> str:
    run = connection.ask("POST", "/api/runs", {"workflow": name, "input": run_input})
    return str(run["id"])


def _execute(connection: Connection, name: str, run_input: Facts) -> None:
    """Start a run and wait for its end in one call, as `execute` of the SDK does."""
    path = f"/api/runs?wait_ms={WAIT_MS}"
    _check(connection.ask("POST", path, {"workflow": name, "input": run_input}))


def _wait_for(connection: Connection, run_id: str) -> None:
    _check(connection.ask("GET", f"/api/runs/{run_id}?wait_ms={WAIT_MS}"))


def _check(run: Facts) -> None:
    if run["state"] != "completed":
        raise Failed(f"run {run['id']} is {run['state']}: {run['error']}")


def _wait_until_suspended(one: Coordinator, process: Process) -> None:
    """Wait until no function runs any more: all that have not ended wait for something."""
    while (tasks := one.connection.ask("GET", "/api/overview")["tasks"])["running"] or tasks[
        "queued"
    ]:
        process.check()
        time.sleep(POLL_S)


def _memory_mb(*processes: Process) -> float:
    found = [process.memory_mib() for process in processes]
    return sum(one["now"] for one in found if one is not None) * 1.048576


def _percentiles(taken_ms: list[float]) -> Facts:
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    return {"samples": len(taken_ms), "p50_ms": cuts[49], "p99_ms": cuts[98]}
