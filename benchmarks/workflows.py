"""The measurements of workflows: durable runs of no-op tasks, with one worker process.

One client process starts runs over HTTP. Rates count from the first start to the last end, by the
coordinator's own clock. The time of a single run is the time that its caller waits.
"""

import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks import coordinators, timed_coordinator
from benchmarks.coordinators import Coordinator, coordinator, wait_for_worker, worker
from benchmarks.plan import Plan
from benchmarks.processes import Failed
from benchmarks.wire import Connection, request

CONCURRENCY = 2_000
CHAIN_STEPS = 40
FAN_BRANCHES = 100
ITEMS = (1_000, 10_000)  # of a foreach; the larger should take ten times as long as the smaller
WARM_UP_RUNS = 3
WAIT_MS = 60_000
BEAT_S = 0.01  # between two heartbeats
PAGE = 1_000

Facts = dict[str, Any]
Document = dict[str, Any]


def one_task_runs(plan: Plan, folder: Path) -> Facts:
    """Runs of one task each, started over a few connections at once."""
    return _rates(plan, folder / "runs-one", line(1))


def three_step_runs(plan: Plan, folder: Path) -> Facts:
    """Runs of three tasks, one after the other."""
    return _rates(plan, folder / "runs-three", line(3))


def chain(plan: Plan, folder: Path) -> Facts:
    """One run at a time of forty tasks, one after the other: the time of a step."""
    with coordinator(folder / "chain") as one:
        taken_ms = _one_by_one(one, line(CHAIN_STEPS), {}, plan.chains)
        return _steps([each / CHAIN_STEPS for each in taken_ms]) | {"steps": CHAIN_STEPS}


def fan_out(plan: Plan, folder: Path) -> Facts:
    """One run at a time of a hundred branches and their join."""
    with coordinator(folder / "fan-out") as one:
        run_input = {"items": list(range(FAN_BRANCHES))}
        taken_ms = _one_by_one(one, fan(), run_input, plan.fans)
        return _steps(taken_ms) | {"branches": FAN_BRANCHES}


def foreach(plan: Plan, folder: Path) -> Facts:
    """A branch for each of many items, and their join, to show whether the time is linear."""
    facts: Facts = {"items": {}}
    with coordinator(folder / "foreach") as one:
        for items in ITEMS:
            run_input = {"items": list(range(items))}
            taken_ms = _one_by_one(one, fan(), run_input, plan.repeats)
            facts["items"][str(items)] = statistics.median(taken_ms) / 1000
        facts["memory_mib"] = one.process.memory_mib()
    small_s, large_s = (facts["items"][str(items)] for items in ITEMS)
    times_more = ITEMS[1] / ITEMS[0]
    return facts | {"seconds": large_s, "over_linear": large_s / (times_more * small_s)}


def heartbeats(plan: Plan, folder: Path) -> Facts:
    """Heartbeats of a worker while a long loop and a wide foreach are under way, each timed."""
    batches = folder / "batches"
    environment = {timed_coordinator.FILE: str(batches)}
    with coordinator(
        folder / "heartbeats", environment=environment, program=timed_coordinator.COMMAND
    ) as one:
        for document in (loop(plan.loop_steps), passing()):
            _keep(one, document)
        registration = {"worker_id": "beating", "heartbeat_interval_ms": 600_000}
        answer = one.connection.ask("POST", "/api/workers", registration)
        beating = json.dumps({"incarnation": answer["incarnation"], "running": []}).encode()
        beat = request("POST", "/api/workers/beating/heartbeat", beating)
        runs = [
            _start(one, "loop", {}),
            _start(one, "passing", {"items": list(range(plan.wide_items))}),
        ]
        taken_ms = _beaten(one, beat, runs, plan.beside_s)
        memory_mib = one.process.memory_mib()
    batch_ms, processor_ms = timed_coordinator.read_batches(batches)
    return _steps(taken_ms) | {
        "max_ms": max(taken_ms),
        "batches": len(batch_ms),
        "batch_p99_ms": _steps(batch_ms)["p99_ms"],
        "batch_max_ms": max(batch_ms),
        "batch_processor_p99_ms": _steps(processor_ms)["p99_ms"],
        "memory_mib": memory_mib,
        "steps": plan.loop_steps,
        "items": plan.wide_items,
    }


def _beaten(one: Coordinator, beat: bytes, runs: list[str], most_s: float) -> list[float]:
    """The time in ms of each heartbeat, until the runs have ended, or the time is over."""
    taken_ms: list[float] = []
    end_s = time.perf_counter() + most_s
    checked_s = time.perf_counter()
    while time.perf_counter() < end_s:
        start_s = time.perf_counter()
        one.connection.send(beat)
        taken_ms.append((time.perf_counter() - start_s) * 1000)
        time.sleep(BEAT_S)
        if time.perf_counter() - checked_s > 1:
            found = one.connection.ask("GET", "/api/runs?state=running&limit=10")["items"]
            if not {run["id"] for run in found} & set(runs):
                break
            checked_s = time.perf_counter()
    return taken_ms


MEASUREMENTS: dict[str, Callable[[Plan, Path], Facts]] = {
    "runs-one": one_task_runs,
    "runs-three": three_step_runs,
    "chain": chain,
    "fan-out": fan_out,
    "foreach": foreach,
    "heartbeats-beside-runs": heartbeats,
}


# --- the workflows ------------------------------------------------------------------------------


def line(steps: int) -> Document:
    names = [f"step_{number}" for number in range(1, steps + 1)]
    return {
        "name": f"line-{steps}",
        "initial_node": names[0],
        "nodes": {name: {"task": "noop"} for name in names},
        "transitions": [{"from": before, "to": after} for before, after in pairwise(names)],
    }


def fan() -> Document:
    """A workflow that outputs the number of merged branches, so that a wrong result is noticed."""
    merge = {"source": "branch.index", "target": "state.all"}
    join = {"joins_transition": "each", "merge": merge}
    return {
        "name": "fan",
        "initial_node": "begin",
        "nodes": {"begin": {}, "work": {"task": "noop"}, "end": {}},
        "transitions": [
            {"id": "each", "from": "begin", "to": "work", "foreach": "input.items"},
            {"from": "work", "to": "end", "synchronization": join},
        ],
        "output": {"merged": "size(state.all)"},
    }


def loop(steps: int) -> Document:
    """A workflow that passes through one node so many times."""
    return {
        "name": "loop",
        "initial_node": "round",
        "nodes": {"round": {}},
        "transitions": [{"from": "round", "to": "round", "max_iterations": steps}],
    }


def passing() -> Document:
    """A foreach whose branches run no task, and its join."""
    return {**fan(), "name": "passing", "nodes": {"begin": {}, "work": {}, "end": {}}}


# --- running them ---------------------------------------------------------------------------------


def _rates(plan: Plan, folder: Path, document: Document) -> Facts:
    """The round with the median rate, and the rates of all rounds."""
    turns = [
        _rate(plan, folder.with_name(f"{folder.name}-{turn}"), document)
        for turn in range(plan.repeats)
    ]
    turns.sort(key=lambda facts: float(facts["per_s"]))
    return turns[len(turns) // 2] | {"all_per_s": [facts["per_s"] for facts in turns]}


def _rate(plan: Plan, folder: Path, document: Document) -> Facts:
    with coordinator(folder) as one, worker(one, concurrency=CONCURRENCY) as process:
        _keep(one, document)
        wait_for_worker(one, process)
        _wait_for(one, _start(one, document["name"], {}))
        _start_at_once(one, document["name"], plan)
        while one.connection.ask("GET", "/api/runs?state=running&limit=1")["items"]:
            process.check()
            time.sleep(coordinators.POLL_S)
        elapsed_ms = _elapsed_ms(one, plan.runs)
        memory_mib = one.process.memory_mib()
    seconds = elapsed_ms / 1000
    return {
        "runs": plan.runs,
        "seconds": seconds,
        "per_s": plan.runs / seconds,
        "memory_mib": memory_mib,
    }


def _start_at_once(one: Coordinator, name: str, plan: Plan) -> None:
    """Start all runs over several connections, each waiting for its answers."""
    waiting = [request("POST", "/api/runs", _body(name, {}))] * plan.runs
    problems: list[Exception] = []

    def start(connection: Connection) -> None:
        try:
            while waiting:
                connection.send(waiting.pop())
        except IndexError:
            pass  # another thread took the last
        except (OSError, Failed) as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [
        Thread(target=start, args=(Connection(one.port),), daemon=True)
        for _ in range(plan.run_connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Failed(f"starting runs failed: {problems[0]}")


def _elapsed_ms(one: Coordinator, expected: int) -> int:
    """Read every run back and check that it completed; return first start to last end."""
    found: list[Facts] = []
    path: str | None = f"/api/runs?limit={PAGE}"
    while path is not None:
        page = one.connection.ask("GET", path)
        found += page["items"]
        cursor = page["next_cursor"]
        path = f"/api/runs?limit={PAGE}&cursor={cursor}" if cursor else None
    found.pop()  # the run that warmed up
    incomplete = sum(run["state"] != "completed" for run in found)
    if len(found) != expected or incomplete:
        raise Failed(f"of {expected} runs {len(found)} were found, {incomplete} not completed")
    started = min(int(run["created_at_ms"]) for run in found)
    return max(int(run["finished_at_ms"]) for run in found) - started


def _one_by_one(one: Coordinator, document: Document, run_input: Any, runs: int) -> list[float]:
    """The time in ms that the caller waits for each run, without the first few."""
    _keep(one, document)
    taken_ms = []
    with worker(one, concurrency=CONCURRENCY) as process:
        wait_for_worker(one, process)
        for _ in range(WARM_UP_RUNS + runs):
            start_s = time.perf_counter()
            run = _wait_for(one, _start(one, document["name"], run_input))
            taken_ms.append((time.perf_counter() - start_s) * 1000)
            if run["output"].get("merged", 0) != len(run_input.get("items", ())):
                raise Failed(f"a run gave {run['output']}")
    return taken_ms[WARM_UP_RUNS:]


def _keep(one: Coordinator, document: Document) -> None:
    one.connection.ask("PUT", f"/api/workflows/{document['name']}", document)


def _body(name: str, run_input: Any) -> bytes:
    return json.dumps({"workflow": name, "input": run_input}).encode()


def _start(one: Coordinator, name: str, run_input: Any) -> str:
    answer = one.connection.send(request("POST", "/api/runs", _body(name, run_input)))
    return str(json.loads(answer)["id"])


def _wait_for(one: Coordinator, run_id: str) -> Facts:
    run: Facts = one.connection.ask("GET", f"/api/runs/{run_id}?wait_ms={WAIT_MS}")
    if run["state"] != "completed":
        raise Failed(f"run {run_id} is {run['state']}: {run['error']}")
    return run


def _steps(taken_ms: list[float]) -> Facts:
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    return {"samples": len(taken_ms), "p50_ms": cuts[49], "p99_ms": cuts[98]}
