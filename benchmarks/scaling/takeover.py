"""A leader that is killed or stopped under load, and how soon others acknowledge writes."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.processes import Failed
from benchmarks.scaling.fleet import Member, fleet, leader_of
from benchmarks.scaling.keyed_load import Acknowledged, KeyedLoad

SIZE = 3
SETTLE_S = 1.0  # under load, before each takeover and after it
LIMIT_S = 30.0  # for the next acknowledged write
POLL_S = 0.001
COUNT_LIMIT_S = 15.0  # until the queue's figures include the last writes

Facts = dict[str, Any]
Takeover = Callable[[Member, KeyedLoad], float]


def kill(plan: Plan, folder: Path, server: Server) -> Facts:
    """`kill -9` of the leader of three under load, until the next acknowledged write."""
    return _taken_over(killed, plan.takeovers, folder / "takeover-kill", server)


def stop(plan: Plan, folder: Path, server: Server) -> Facts:
    """SIGTERM of the leader of three under load: the longest time without acknowledged writes."""
    return _taken_over(stopped, plan.takeovers, folder / "takeover-stop", server)


def _taken_over(takeover: Takeover, times: int, folder: Path, server: Server) -> Facts:
    taken_ms: list[float] = []
    leaders: list[str | None] = []
    with server.database() as store, fleet(SIZE, folder, store) as members:
        with KeyedLoad([member.port for member in members]) as load:
            for _ in range(times):
                time.sleep(SETTLE_S)
                load.check()
                leader = leader_of(members)
                leaders.append(None if leader is None else leader.name)
                victim = leader or members[0]
                taken_ms.append(takeover(victim, load) * 1000)
                victim.start()
                load.spread()
            time.sleep(SETTLE_S)
            keys = load.finish()
        _check_count(members[0], keys)
    return {
        "takeovers": times,
        "median_ms": statistics.median(taken_ms),
        "worst_ms": max(taken_ms),
        "all_ms": taken_ms,
        "leaders": leaders,
        "acknowledged": keys,
    }


def killed(victim: Member, load: KeyedLoad) -> float:
    """The seconds from the kill to the next acknowledged write."""
    killed_s = time.perf_counter()
    victim.kill()
    end_s = killed_s + LIMIT_S
    while time.perf_counter() < end_s:
        load.check()
        next_s = next_write_s(load.since(killed_s, besides=victim.port), killed_s)
        if next_s is not None:
            return next_s - killed_s
        time.sleep(POLL_S)
    raise Failed(f"no write was acknowledged within {LIMIT_S:.0f} s after a kill")


def next_write_s(acknowledged: Sequence[Acknowledged], killed_s: float) -> float | None:
    """When a write that was sent after the kill was acknowledged: others may be from before it."""
    return min((one.at_s for one in acknowledged if one.sent_s >= killed_s), default=None)


def stopped(victim: Member, load: KeyedLoad) -> float:
    """The longest time without writes: a leader that is stopped may go on for a while."""
    stopped_s = time.perf_counter()
    victim.stop()
    time.sleep(SETTLE_S)
    load.check()
    end_s = time.perf_counter()
    return longest_gap_s(load.since(stopped_s, besides=victim.port), stopped_s, end_s)


def longest_gap_s(acknowledged: Sequence[Acknowledged], start_s: float, end_s: float) -> float:
    edges = [start_s, *(one.at_s for one in acknowledged), end_s]
    return max(later - earlier for earlier, later in itertools.pairwise(edges))


def _check_count(member: Member, keys: int) -> None:
    """Every acknowledged key has exactly one task."""
    end_s = time.monotonic() + COUNT_LIMIT_S
    while True:
        depth = sum(queue["depth"] for queue in member.ask("GET", "/api/queues")["items"])
        if depth == keys:
            return
        if time.monotonic() > end_s:
            raise Failed(f"{keys} keys were acknowledged and {depth} tasks are queued")
        time.sleep(0.2)


MEASUREMENTS = {"takeover-kill": kill, "takeover-stop": stop}
