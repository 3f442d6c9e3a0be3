"""The measurements of a peer: the same steps, limits and clocks for all peers.

1. Submit no-op tasks one by one from one process while no worker runs; that fills the queue. A peer
   that takes many tasks in one call gets a tenth that way, and the rest in such calls. Then
   PostgreSQL analyzes its tables again; otherwise some peers would be slow for the first minute.
2. Start one worker and let it drain the queue: the rate from the first run to the last.
3. Submit tasks one at a time to the idle worker: from the start of the call to the handler.
4. For a peer that has workflows: runs of one step, and of three. They are queued first and drained
   by a fresh worker, as in 1 and 2. They are called one after the other in one process, without a
   queue. And they are asked for one after the other by a process that waits for each result, and
   run by an idle worker in another process. The fastest way counts. For one step, the drain counts
   as well: its workflows have no step.
5. For a peer that can limit how many tasks of a key run at once: tasks over `KEYS` keys, of each of
   which at most one runs, queued first and drained by a fresh worker. `KeyedPeer` alone is a peer
   that is here for this row.

Every step has a time limit. A step that reaches it reports the rate of what it did, with the count.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from benchmarks import witness
from benchmarks.processor import Meter

VARIANT_VARIABLE = "ROTA_BENCHMARK_VARIANT"
REDIS_VARIABLE = "ROTA_BENCHMARK_REDIS"
REDIS_SETTINGS_VARIABLE = "ROTA_BENCHMARK_REDIS_SETTINGS"
POSTGRES_VARIABLE = "ROTA_BENCHMARK_POSTGRES"
POSTGRES_SETTINGS_VARIABLE = "ROTA_BENCHMARK_POSTGRES_SETTINGS"
ANALYZE_VARIABLE = "ROTA_BENCHMARK_ANALYZE"  # a command that does so
SERVER_VARIABLE = "ROTA_BENCHMARK_SERVER"  # its process, to see what it uses
NODE_VARIABLE = "ROTA_BENCHMARK_NODE"  # where the packages of Node peers are

SUBMIT_LIMIT_S = 20.0
ASK_LIMIT_S = 10.0  # for runs that are asked for one after the other
STALL_LIMIT_S = 15.0  # a worker that runs nothing for this long is not going to
PICKUP_LIMIT_S = 10.0  # for one sample
ONE_BY_ONE_SHARE = 10  # of the tasks, if the others can be submitted in bulk
BULK = 1_000  # tasks in one call, or in one transaction
KEYS = 100  # in turn, of the tasks of which one runs at a time for each key
RUN_STEPS = {"runs_one": 1, "runs_three": 3}
GAP_S = (0.02, 0.05)  # idle time between two samples, random so as to hit no poll's rhythm


class Options(NamedTuple):
    tasks: int
    samples: int
    runs: int
    limit_s: float  # for each of drain, pick-up and runs
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


class Submitted(NamedTuple):
    tasks: int
    seconds: float


@runtime_checkable
class BulkPeer(Protocol):
    """A peer that takes many tasks at once. It keeps its own time: not all are in this process."""

    def describe(self) -> dict[str, Any]:
        """As for every peer."""

    def worker(self) -> list[str]:
        """As for every peer."""

    def submit_one_by_one(self, tasks: int, limit_s: float) -> Submitted:
        """Queue no-op tasks, one call after the other, until the time is over."""

    def submit_in_bulk(self, tasks: int, limit_s: float) -> Submitted:
        """Queue no-op tasks with `BULK` in a call, until the time is over."""

    def call(self) -> int:
        """Queue one task that calls back; the answer is when the call began."""


@runtime_checkable
class WorkflowPeer(Protocol):
    """A peer that has workflows of several durable steps."""

    def submit_run(self, steps: int) -> None:
        """Queue one run of that many no-op steps; at its end it counts itself in `tally_of`."""

    def caller(self, steps: int, runs: int) -> list[str]:
        """The command of a process that runs that many itself, one by one."""

    def ask_run(self, steps: int) -> None:
        """Have the worker run one of that many steps, and return when its result is here."""


@runtime_checkable
class KeyedPeer(Protocol):
    """A peer that runs at most one task of a key at a time, while those of other keys run."""

    def describe(self) -> dict[str, Any]:
        """As for every peer."""

    def submit_keyed(self, tasks: int, limit_s: float) -> Submitted:
        """Queue no-op tasks of `KEYS` keys in turn; their handler counts in `keyed_tally`."""

    def keyed_worker(self) -> list[str]:
        """The command of one worker for these tasks."""


def keyed_tally(folder: Path) -> Path:
    """Where the tasks with a limit by key are counted."""
    return folder / "keyed"


def tally_of(folder: Path, steps: int) -> Path:
    """Where the runs of that many steps are counted."""
    return folder / f"runs-{steps}"


def most_s(limit_s: float) -> float:
    """How long all steps may take together."""
    runs_s = SUBMIT_LIMIT_S + ASK_LIMIT_S + 2 * limit_s
    return 3 * SUBMIT_LIMIT_S + 3 * limit_s + len(RUN_STEPS) * runs_s


def main(make: Callable[[], Peer | BulkPeer | KeyedPeer]) -> None:
    options = _options()
    keyed_tally(options.folder).mkdir(exist_ok=True)
    peer = make()
    say("peer", **peer.describe())
    if isinstance(peer, BulkPeer) or not isinstance(peer, KeyedPeer):
        measure_plain(peer, options)
    if isinstance(peer, KeyedPeer):
        measure_keyed(peer, options)


def measure_plain(peer: Peer | BulkPeer, options: Options) -> None:
    queued = measure_submit(peer, options)
    analyze()
    with working(peer.worker(), options) as worker:
        drained = measure_drain(options, worker, queued)
        measure_pickup(peer, options)
    if isinstance(peer, WorkflowPeer):
        for what, steps in RUN_STEPS.items():
            done = {
                "queued": _queued(peer, options, steps),
                "called": _called(peer, options, steps),
                "asked": _asked(peer, options, steps),
            }
            if steps == 1:
                done["without a step"] = drained
            say_runs(what, done)


def measure_keyed(peer: KeyedPeer, options: Options) -> None:
    queued = peer.submit_keyed(options.tasks, SUBMIT_LIMIT_S).tasks
    analyze()
    with working(peer.keyed_worker(), options) as worker:
        done = _drain(options, worker, queued, keyed_tally(options.folder))
    say("keyed", tasks=done.runs, queued=queued, seconds=done.seconds, per_s=done.per_s)


def analyze() -> None:
    """Let the database know how large its tables are now, as it would after a minute by itself."""
    if command := os.environ.get(ANALYZE_VARIABLE):
        subprocess.run(json.loads(command), check=True, capture_output=True, timeout=SUBMIT_LIMIT_S)


@contextmanager
def working(command: list[str], options: Options) -> Iterator[subprocess.Popen[bytes]]:
    with (options.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield worker
        finally:
            stop(worker)


def measure_submit(peer: Peer | BulkPeer, options: Options) -> int:
    if isinstance(peer, BulkPeer):
        one_by_one = peer.submit_one_by_one(options.tasks // ONE_BY_ONE_SHARE, SUBMIT_LIMIT_S)
        say_rate("submit_one", one_by_one)
        in_bulk = peer.submit_in_bulk(options.tasks - one_by_one.tasks, SUBMIT_LIMIT_S)
        say_rate("submit_bulk", in_bulk)
        return one_by_one.tasks + in_bulk.tasks
    submitted = Submitted(*_submit(peer.submit, options.tasks))
    say_rate("submit_one", submitted)
    return submitted.tasks


def say_rate(what: str, done: Submitted) -> None:
    say(what, tasks=done.tasks, seconds=done.seconds, per_s=done.tasks / done.seconds)


def at_own_pace(
    submit: Callable[[int], object], size: int, tasks: int, limit_s: float
) -> Submitted:
    """One call after the other, each with so many tasks, until all are in or the time is over."""
    submitted = 0
    start_s = time.perf_counter()
    while submitted < tasks and time.perf_counter() - start_s < limit_s:
        wanted = min(size, tasks - submitted)
        submit(wanted)
        submitted += wanted
    return Submitted(submitted, time.perf_counter() - start_s)


async def at_own_pace_async(
    submit: Callable[[int], Awaitable[object]], size: int, tasks: int, limit_s: float
) -> Submitted:
    """The same for a peer whose calls are awaited."""
    submitted = 0
    start_s = time.perf_counter()
    while submitted < tasks and time.perf_counter() - start_s < limit_s:
        wanted = min(size, tasks - submitted)
        await submit(wanted)
        submitted += wanted
    return Submitted(submitted, time.perf_counter() - start_s)


def _submit(submit: Callable[[], None], wanted: int) -> tuple[int, float]:
    """Submit one by one; how many were accepted in which time."""
    submitted = 0
    start_s = time.perf_counter()
    while submitted < wanted:
        submit()
        submitted += 1
        if submitted % 100 == 0 and time.perf_counter() - start_s > SUBMIT_LIMIT_S:
            break
    return submitted, time.perf_counter() - start_s


def measure_drain(
    options: Options, worker: subprocess.Popen[bytes], queued: int
) -> witness.Tallied:
    server = {"server": int(os.environ[SERVER_VARIABLE])} if SERVER_VARIABLE in os.environ else {}
    meter = Meter({"worker": worker.pid} | server)
    done = _drain(options, worker, queued, options.folder, seen=meter.done)
    say(
        "drain",
        tasks=done.runs,
        queued=queued,
        seconds=done.seconds,
        per_s=done.per_s,
        cpu_us=meter.us_per_task(),
    )
    if done.runs < queued:
        raise SystemExit(f"{queued - done.runs} tasks were left at the time limit; no idle worker")
    return done


def _queued(peer: Any, options: Options, steps: int) -> witness.Tallied:
    queued, _ = _submit(lambda: peer.submit_run(steps), options.runs)
    with working(peer.worker(), options) as worker:
        return _drain(options, worker, queued, tally_of(options.folder, steps))


def _called(peer: Any, options: Options, steps: int) -> witness.Tallied:
    """The caller's process is the only one of its tally: the files of the others go away first."""
    tallies = tally_of(options.folder, steps)
    for file in tallies.glob("*.tally"):
        file.unlink()
    with working(peer.caller(steps, options.runs), options) as process:
        return _drain(options, process, options.runs, tallies)


def _asked(peer: Any, options: Options, steps: int) -> witness.Tallied:
    """Each run counts when its result has come, but for the first: the worker may be starting."""
    with working(peer.worker(), options):
        peer.ask_run(steps)
        runs, first_ns = 1, time.monotonic_ns()
        last_ns = first_ns
        while runs <= options.runs and (last_ns - first_ns) / 1e9 < ASK_LIMIT_S:
            peer.ask_run(steps)
            runs, last_ns = runs + 1, time.monotonic_ns()
    return witness.Tallied(runs, first_ns, last_ns)


def say_runs(what: str, done: dict[str, witness.Tallied]) -> None:
    way, best = max(done.items(), key=lambda item: item[1].per_s)
    rates = {name: one.per_s for name, one in done.items()}
    say(what, runs=best.runs, seconds=best.seconds, per_s=best.per_s, way=way, ways_per_s=rates)


def _drain(
    options: Options,
    worker: subprocess.Popen[bytes],
    queued: int,
    tallies: Path,
    *,
    seen: Callable[[int], None] = lambda _: None,
) -> witness.Tallied:
    end_s = time.monotonic() + options.limit_s
    moved_s, before = time.monotonic(), 0
    while time.monotonic() < end_s:
        runs = witness.tallied(tallies).runs
        seen(runs)
        if runs >= queued:
            break
        if runs > before:
            moved_s, before = time.monotonic(), runs
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended: {_tail(options.folder / 'worker.log')}")
        if time.monotonic() - moved_s > STALL_LIMIT_S:
            log = _tail(options.folder / "worker.log")
            raise SystemExit(f"the worker ran {runs} of {queued} tasks and stopped: {log}")
        time.sleep(0.02)
    return witness.tallied(tallies)


def measure_pickup(peer: Peer | BulkPeer, options: Options) -> None:
    listener = witness.Listener(options.folder)
    end_s = time.monotonic() + options.limit_s
    latencies_ms: list[float] = []
    missed = 0
    while len(latencies_ms) + missed < options.samples and time.monotonic() < end_s:
        time.sleep(random.uniform(*GAP_S))
        submitted_ns = _call(peer)
        latency_ms = listener.latency_ms(submitted_ns, limit_s=PICKUP_LIMIT_S)
        if latency_ms is None:
            missed += 1
        else:
            latencies_ms.append(latency_ms)
    listener.close()
    say("pickup", missed=missed, **percentiles(latencies_ms))


def _call(peer: Peer | BulkPeer) -> int:
    if isinstance(peer, BulkPeer):
        return peer.call()
    submitted_ns = time.monotonic_ns()
    peer.submit_call(submitted_ns)
    return submitted_ns


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
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--limit-s", type=float, default=60.0)
    given = parser.parse_args()
    return Options(given.tasks, given.samples, given.runs, given.limit_s, witness.folder())


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]
