"""The measurements of services: joins, handovers, and heartbeats answered a second.

The coordinator has a process of its own. The members speak ZeroMQ from this process, each on a
socket of its own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.coordinators import Coordinator, coordinator
from benchmarks.members import Crowd
from benchmarks.plan import Plan
from benchmarks.processes import Failed, free_port
from benchmarks.shard_decisions import MEMBERS, SERVICE, SHARDS
from benchmarks.wire import request

BEATS_S = 5.0
SHORT_LEASE_MS = 3_000
SETTLE_LIMIT_S = 60.0
Facts = dict[str, Any]


def joining(_plan: Plan, folder: Path) -> Facts:
    """1,000 workers join within a second: the time until all 100,000 shards have settled."""
    with (
        _serving(folder / "shards-join") as (one, endpoint),
        Crowd(endpoint, SERVICE, SHARDS) as crowd,
    ):
        start_s = time.monotonic()
        for number in range(MEMBERS):
            crowd.register(f"w-{number:06}")
            crowd.turn(until_s=start_s + number / MEMBERS)
        _settled(one, crowd)
        joined_s = time.monotonic() - start_s
        rebalances = _figure(one, "rota_service_rebalances_total")
        moved = _figure(one, "rota_service_shards_moved_total")
        for number in range(MEMBERS):
            crowd.register(f"w-{number:06}", incarnation=2)
            crowd.turn(until_s=0)
        _settled(one, crowd)
        return {
            "members": MEMBERS,
            "seconds": joined_s,
            "rebalances": rebalances,
            "moved_by_restarts": _figure(one, "rota_service_shards_moved_total") - moved,
        }


def beating(_plan: Plan, folder: Path) -> Facts:
    """Heartbeats of 1,000 members with 100 shards each, answered one by one."""
    with (
        _serving(folder / "shards-beats") as (one, endpoint),
        Crowd(endpoint, SERVICE, SHARDS) as crowd,
    ):
        for number in range(MEMBERS):
            crowd.register(f"w-{number:06}")
        _settled(one, crowd)
        before_s = one.process.cpu_s()
        answered, elapsed_s = crowd.beat_for(BEATS_S)
        after_s = one.process.cpu_s()
        taken_s = None if before_s is None or after_s is None else after_s - before_s
        return {
            "beats": answered,
            "seconds": elapsed_s,
            "beats_per_s": answered / elapsed_s,
            "cpu_us_per_beat": None if taken_s is None else taken_s / answered * 1_000_000,
            "memory_mib": one.process.memory_mib(),
        }


def handing_over(_plan: Plan, folder: Path) -> Facts:
    """The time from a leave, and from a death, until the other member has every shard."""
    facts: Facts = {"lease_s": SHORT_LEASE_MS / 1000}
    for kind in ("leave", "death"):
        lease = {"ROTA_SHARD_LEASE_MS": str(SHORT_LEASE_MS)}
        with (
            _serving(folder / f"shards-{kind}", lease) as (one, endpoint),
            Crowd(endpoint, SERVICE, 1_000) as crowd,
        ):
            crowd.register("stays")
            crowd.register("goes")
            while not crowd.held("goes"):
                crowd.turn(until_s=time.monotonic() + 0.02)
            _settled(one, crowd)
            crowd.beat("goes")
            start_s = time.monotonic()
            if kind == "leave":
                crowd.leave("goes")
            else:
                crowd.forget("goes")
            while len(crowd.held("stays")) < 1_000:
                if time.monotonic() - start_s > SETTLE_LIMIT_S:
                    raise Failed("the shards were not handed over")
                crowd.beat("stays")
                crowd.turn(until_s=time.monotonic() + 0.02)
            facts[f"{kind}_s"] = time.monotonic() - start_s
    return facts | {"death_over_lease_s": facts["death_s"] - facts["lease_s"]}


MEASUREMENTS: dict[str, Callable[[Plan, Path], Facts]] = {
    "shards-join": joining,
    "shards-beats": beating,
    "shards-handover": handing_over,
}


@contextmanager
def _serving(
    folder: Path, environment: dict[str, str] | None = None
) -> Iterator[tuple[Coordinator, str]]:
    port = free_port()
    with coordinator(folder, flags=["--zmq-port", str(port)], environment=environment or {}) as one:
        yield one, f"tcp://127.0.0.1:{port}"


def _settled(one: Coordinator, crowd: Crowd) -> None:
    """Exchange messages until every shard is owned by its target and every member knows it."""
    end_s = time.monotonic() + SETTLE_LIMIT_S
    while time.monotonic() < end_s:
        crowd.turn(until_s=time.monotonic() + 0.05)
        if crowd.is_quiet and crowd.is_balanced and crowd.total_held == crowd.shard_count:
            (service,) = one.connection.ask("GET", "/api/services")["items"]
            if not service["unowned"] and not service["moving"]:
                return
    raise Failed(f"after {SETTLE_LIMIT_S:.0f} s {crowd.total_held:,} shards are held")


def _figure(one: Coordinator, name: str) -> int:
    text = one.connection.send(request("GET", "/metrics")).decode()
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            return round(float(line.rsplit(" ", 1)[1]))
    raise Failed(f"/metrics has no {name}")
