"""The rates of one, two and three coordinators, near their database and far from it."""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import coordinators
from benchmarks.coordinators import Coordinator
from benchmarks.peers.measuring import percentiles
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.processes import Failed, running
from benchmarks.processor import clock_of
from benchmarks.scaling.clients import WARM_UP_S, submit_alone
from benchmarks.scaling.links import delayed, round_trip_ms
from benchmarks.wire import request

SIZES = (1, 2, 3)  # coordinators
CLIENTS = 32
WORKERS = 6  # can be spread evenly over each number of coordinators
QUEUED = 1_000  # tasks behind those that single calls lease
WARM_UP_CALLS = 5
EXIT_LIMIT_S = 60.0  # for opening the streams and ending them, beyond the drain
CALLS = ("submit", "lease", "report")

Facts = dict[str, Any]
Measurement = Callable[[Plan, Path, Server], Facts]


def at_distance(rtt_ms: float) -> Measurement:
    def measure(plan: Plan, folder: Path, server: Server) -> Facts:
        cells: dict[int, list[Facts]] = {size: [] for size in SIZES}
        with ExitStack() as stack:
            fleets: dict[int, list[Coordinator]] = {}
            stores: dict[int, str] = {}
            for size in SIZES:
                place = folder / f"scale-{rtt_ms:g}-{size}"
                place.mkdir()
                direct = stack.enter_context(server.database())
                stores[size] = stack.enter_context(delayed(direct, rtt_ms, place))
                replicas = coordinators.replicas(size, place / "replicas", stores[size])
                fleets[size] = stack.enter_context(replicas)
            for turn in range(plan.scale_rounds):
                for place_in_turn in range(len(SIZES)):
                    size = SIZES[(turn + place_in_turn) % len(SIZES)]
                    cells[size].append(_rates(fleets[size], plan))
            calls = _calls(fleets[1][0], plan.call_samples, rtt_ms)
            calls["measured_rtt_ms"] = round_trip_ms(stores[1])
        return {"rtt_ms": rtt_ms, **_compared(cells), "calls": calls, "rounds": cells}

    away = f"with {rtt_ms:g} ms of round trip to it" if rtt_ms else "without a delay"
    measure.__doc__ = f"1, 2 and 3 coordinators on one PostgreSQL, {away}."
    return measure


def _compared(cells: dict[int, list[Facts]]) -> Facts:
    """The median rates by number of coordinators, and the median ratios to one in its round."""
    facts: Facts = {}
    for what in ("submit", "drain"):
        rates = {size: [one[what]["per_s"] for one in rounds] for size, rounds in cells.items()}
        costs = {size: [one[what]["cpu_us"] for one in rounds] for size, rounds in cells.items()}
        facts[f"{what}_per_s"] = _medians(rates)
        facts[f"{what}_cpu_us"] = _medians(costs)
        for size in SIZES[1:]:
            ratios = sorted(ours / one for ours, one in zip(rates[size], rates[1], strict=True))
            facts[f"{what}_ratio_{size}"] = statistics.median(ratios)
            last = len(ratios) - 1
            facts[f"{what}_ratio_{size}_half"] = [ratios[last // 4], ratios[last - last // 4]]
    return facts


def _medians(by_size: dict[int, list[float]]) -> dict[str, float]:
    return {str(size): statistics.median(figures) for size, figures in by_size.items()}


def _rates(all_of_them: Sequence[Coordinator], plan: Plan) -> Facts:
    """The rates of one round, and the processor time of all coordinators for each task."""
    coordinators.fill(all_of_them[0], plan.scale_tasks)
    before_s = _spent_s(all_of_them)
    drained = drain(all_of_them, plan.scale_tasks, limit_s=plan.scale_drain_limit_s)
    drained["cpu_us"] = (_spent_s(all_of_them) - before_s) / drained["tasks"] * 1e6
    ports = [one.port for one in all_of_them]
    before_s = _spent_s(all_of_them)
    submitted = submit_alone(ports, clients=CLIENTS, seconds=plan.scale_submit_s)
    used_s = _spent_s(all_of_them) - before_s
    # The clients also submit while they warm up.
    count = submitted["per_s"] * (plan.scale_submit_s + WARM_UP_S)
    submitted["cpu_us"] = used_s / count * 1e6
    return {"submit": submitted, "drain": drained}


def _spent_s(all_of_them: Sequence[Coordinator]) -> float:
    return sum(time.clock_gettime(clock_of(one.process.id)) for one in all_of_them)


def drain(all_of_them: Sequence[Coordinator], tasks: int, *, limit_s: float) -> Facts:
    """The rate of streaming workers; of what they did within the limit, if that was not all."""
    first = all_of_them[0]
    urls = [all_of_them[number % len(all_of_them)].url for number in range(WORKERS)]
    module = "benchmarks.scaling.streaming_workers"
    command = [sys.executable, "-m", module, str(tasks), str(limit_s), *urls]
    log = first.folder / "workers.log"
    with running(command, log=log) as process:
        process.wait(limit_s + EXIT_LIMIT_S)
        if process.exit_code != 0:
            process.check()
    facts: Facts = json.loads(log.read_text().splitlines()[-1])
    if facts["tasks"] < 1 or facts["seconds"] <= 0:
        raise Failed(f"no task was drained within {limit_s:.0f} s")
    return facts | {"per_s": facts["tasks"] / facts["seconds"]}


# --- single calls ---------------------------------------------------------------------------------


def _calls(one: Coordinator, samples: int, rtt_ms: float) -> Facts:
    """The p50 of a submit, a lease and a report on an idle coordinator, also in round trips."""
    coordinators.fill(one, QUEUED)
    registration = {
        "worker_id": "caller",
        "node_id": "benchmark",
        "max_concurrent_tasks": samples + WARM_UP_CALLS,
        "heartbeat_interval_ms": 600_000,
    }
    incarnation = one.connection.ask("POST", "/api/workers", registration)["incarnation"]
    lease = request(
        "POST", "/api/workers/caller/lease", f'{{"incarnation":{incarnation},"max":1}}'.encode()
    )
    taken_ms: dict[str, list[float]] = {name: [] for name in CALLS}

    def timed(name: str, written: bytes) -> bytes:
        start_s = time.perf_counter()
        answer = one.connection.send(written)
        taken_ms[name].append((time.perf_counter() - start_s) * 1000)
        return answer

    for _ in range(WARM_UP_CALLS + samples):
        timed("submit", coordinators.submission(1))
        leases = coordinators.leases(timed("lease", lease))
        if len(leases) != 1:
            raise Failed(f"{len(leases)} tasks were leased instead of 1")
        result = {"task_id": leases[0].task_id, "fence": leases[0].fence, "ok": True}
        report = {"incarnation": incarnation, "results": [{**result, "result": None}]}
        body = json.dumps(report).encode()
        timed("report", request("POST", "/api/workers/caller/results", body))
    facts: Facts = {}
    for name, all_ms in taken_ms.items():
        facts[f"{name}_ms"] = percentiles(all_ms[WARM_UP_CALLS:])["p50_ms"]
        if rtt_ms:
            facts[f"{name}_rtts"] = facts[f"{name}_ms"] / rtt_ms
    return facts


MEASUREMENTS: dict[str, Measurement] = {
    "scale-out-near": at_distance(0),
    "scale-out-1ms": at_distance(1),
    "scale-out-10ms": at_distance(10),
}
