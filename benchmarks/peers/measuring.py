"""How is a peer measured? The same steps, limits and rulers for each of them.

1. Submit no-op tasks one by one from one process while no worker runs; that fills the queue.
2. Start one worker and let it work the queue off: the rate from the first run to the last.
3. Submit tasks one at a time to the idle worker: from the start of the call to the handler.

Every step has a time limit. A step that reaches it reports the rate of what it did, with the count.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks import witness

VARIANT_VARIABLE = "ROTA_BENCHMARK_VARIANT"
REDIS_VARIABLE = "ROTA_BENCHMARK_REDIS"
REDIS_SETTINGS_VARIABLE = "ROTA_BENCHMARK_REDIS_SETTINGS"

SUBMIT_LIMIT_S = 20.0
STALL_LIMIT_S = 15.0  # a worker that runs nothing for this long is not going to
PICKUP_LIMIT_S = 10.0  # for one sample
GAP_S = (0.02, 0.05)  # idle time between two samples, random so as to hit no poll's rhythm


class Options(NamedTuple):
    tasks: int
    samples: int
    limit_s: float  # for each of drain and pick-up
    folder: Path


class Peer(Protocol):
    def describe(self) -> dict[str, Any]:
        """Version and settings, as they stand below the table and in the results."""

    def worker(self) -> list[str]:
        """The command of one worker."""

    def submit(self) -> None:
        """Queue one no-op task and return when it is accepted."""

    def submit_call(self, submitted_ns: int) -> None:
        """Queue one task that calls back with its start time."""


def main(make: Callable[[], Peer]) -> None:
    options = _options()
    peer = make()
    say("peer", **peer.describe())
    queued = measure_submit(peer, options)
    log = (options.folder / "worker.log").open("wb")
    worker = subprocess.Popen(peer.worker(), stdout=log, stderr=log)
    try:
        measure_drain(options, worker, queued)
        measure_pickup(peer, options)
    finally:
        stop(worker)
        log.close()


def measure_submit(peer: Peer, options: Options) -> int:
    submitted = 0
    start_s = time.perf_counter()
    while submitted < options.tasks:
        peer.submit()
        submitted += 1
        if submitted % 100 == 0 and time.perf_counter() - start_s > SUBMIT_LIMIT_S:
            break
    elapsed_s = time.perf_counter() - start_s
    say("submit_one", tasks=submitted, seconds=elapsed_s, per_s=submitted / elapsed_s)
    return submitted


def measure_drain(options: Options, worker: subprocess.Popen[bytes], queued: int) -> None:
    end_s = time.monotonic() + options.limit_s
    moved_s, seen = time.monotonic(), 0
    while time.monotonic() < end_s:
        runs = witness.tallied(options.folder).runs
        if runs >= queued:
            break
        if runs > seen:
            moved_s, seen = time.monotonic(), runs
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended: {_tail(options.folder / 'worker.log')}")
        if time.monotonic() - moved_s > STALL_LIMIT_S:
            log = _tail(options.folder / "worker.log")
            raise SystemExit(f"the worker ran {runs} of {queued} tasks and stopped: {log}")
        time.sleep(0.02)
    done = witness.tallied(options.folder)
    say(
        "drain",
        tasks=done.runs,
        queued=queued,
        seconds=(done.last_ns - done.first_ns) / 1e9,
        per_s=done.per_s,
    )
    if done.runs < queued:
        raise SystemExit(f"{queued - done.runs} tasks were left at the time limit; no idle worker")


def measure_pickup(peer: Peer, options: Options) -> None:
    listener = witness.Listener(options.folder)
    end_s = time.monotonic() + options.limit_s
    latencies_ms: list[float] = []
    missed = 0
    while len(latencies_ms) + missed < options.samples and time.monotonic() < end_s:
        time.sleep(random.uniform(*GAP_S))
        submitted_ns = time.monotonic_ns()
        peer.submit_call(submitted_ns)
        latency_ms = listener.latency_ms(submitted_ns, limit_s=PICKUP_LIMIT_S)
        if latency_ms is None:
            missed += 1
        else:
            latencies_ms.append(latency_ms)
    listener.close()
    say("pickup", missed=missed, **percentiles(latencies_ms))


def percentiles(latencies_ms: list[float]) -> dict[str, float]:
    if len(latencies_ms) < 2:
        raise SystemExit("too few tasks were picked up to say anything")
    cuts = statistics.quantiles(latencies_ms, n=100, method="inclusive")
    return {"samples": len(latencies_ms), "p50_ms": cuts[49], "p99_ms": cuts[98]}


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


def stop(process: subprocess.Popen[bytes], *, patience_s: float = 10.0) -> None:
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip().rpartition("\n")[2][-300:]


def _options() -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--limit-s", type=float, default=60.0)
    given = parser.parse_args()
    return Options(given.tasks, given.samples, given.limit_s, witness.folder())


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]
