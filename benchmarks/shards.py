"""What is measured of shards? How long decisions take, what they move, and how hand-overs go.

The decisions are the core's own, without store or network. Everything else is a coordinator in its
own process, and members that speak ZeroMQ from this one, many to a socket.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.coordinators import Coordinator, coordinator
from benchmarks.members import Crowd
from benchmarks.plan import Plan
from benchmarks.processes import Failed, free_port
from benchmarks.wire import request
from rota.core.shards.decide import decide
from rota.core.shards.decisions import Rebalanced
from rota.core.shards.events import (
    BeatMember,
    LeaveMember,
    RegisterMember,
    ServiceEvent,
    SweepServices,
)
from rota.core.shards.members import PROTOCOL, ShardPolicy
from rota.core.shards.service import Service

MEMBERS, SHARDS = 1_000, 100_000
DECISIONS = 60  # rebalances that are timed
BEATS_S = 5.0
SHORT_LEASE_MS = 3_000
SETTLE_LIMIT_S = 60.0
SERVICE = "benchmark"

Facts = dict[str, Any]


# --- decisions ------------------------------------------------------------------------------------


def decisions(_plan: Plan, _folder: Path) -> Facts:
    """A member joins, leaves or dies among 1,000 with 100,000 shards: the time of the rebalance."""
    rng, policy = random.Random(4), ShardPolicy()
    service, now_ms = _filled(policy), 1_000_000
    taken_ms: list[float] = []
    moved = moved_by_ranges = 0
    for number in range(DECISIONS):
        before = set(service.members)
        event: ServiceEvent
        if number % 2:
            event = _register(f"w-{rng.randrange(10**6):06}")
        else:
            event = LeaveMember(service=SERVICE, worker_id=rng.choice(sorted(before)))
        decide(service, event, now_ms=now_ms, policy=policy)
        now_ms += policy.join_most_ms
        service.take_decisions()
        start_s = time.perf_counter()
        decide(service, SweepServices(), now_ms=now_ms, policy=policy)
        decided = service.take_decisions()
        taken_ms.append((time.perf_counter() - start_s) * 1000)
        moved += sum(one.moved + one.placed for one in decided if isinstance(one, Rebalanced))
        moved_by_ranges += _moved_by_ranges(before, set(service.members))
        now_ms = _settle(service, now_ms, policy)
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    return {
        "samples": DECISIONS,
        "p50_ms": cuts[49],
        "p99_ms": cuts[98],
        "moved": moved,
        "moved_by_ranges": moved_by_ranges,
        "times_less": moved_by_ranges / max(moved, 1),
    }


def _filled(policy: ShardPolicy) -> Service:
    service = Service(SERVICE)
    for number in range(MEMBERS):
        decide(service, _register(f"w-{number:06}"), now_ms=0, policy=policy)
    decide(service, SweepServices(), now_ms=policy.join_most_ms, policy=policy)
    _settle(service, policy.join_most_ms, policy)
    if service.unowned():
        raise Failed(f"{service.unowned()} shards have no owner")
    service.take_decisions()
    return service


def _register(worker_id: str) -> RegisterMember:
    return RegisterMember(
        service=SERVICE,
        worker_id=worker_id,
        shard_count=SHARDS,
        protocol=PROTOCOL,
        incarnation="1",
    )


def _settle(service: Service, now_ms: int, policy: ShardPolicy) -> int:
    """Everybody gives up what it was asked for, and has been heard of."""
    for worker_id in list(service.members):
        beat = BeatMember(
            service=SERVICE,
            worker_id=worker_id,
            shard_count=SHARDS,
            holds=service.told(worker_id)[0],
            protocol=PROTOCOL,
            incarnation="1",
            generation=service.generation,
        )
        decide(service, beat, now_ms=now_ms, policy=policy)
    service.take_decisions()
    service.take_changed()
    return now_ms


def _moved_by_ranges(before: set[str], after: set[str]) -> int:
    """What the algorithm of old moves: everybody has a range, in the order of the ids."""
    owners = [_owner_by_ranges(sorted(members)) for members in (before, after)]
    return sum(one != other for one, other in zip(*owners, strict=True))


def _owner_by_ranges(members: list[str]) -> list[str]:
    base, more = divmod(SHARDS, len(members))
    owners: list[str] = []
    for number, member in enumerate(members):
        owners += [member] * (base + (number < more))
    return owners


# --- over ZeroMQ ----------------------------------------------------------------------------------


def joining(_plan: Plan, folder: Path) -> Facts:
    """1,000 workers join within a second: until all 100,000 shards are where they shall be."""
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
        answered, elapsed_s = crowd.beat_for(BEATS_S)
        return {
            "beats": answered,
            "seconds": elapsed_s,
            "beats_per_s": answered / elapsed_s,
            "memory_mib": one.process.memory_mib(),
        }


def handing_over(_plan: Plan, folder: Path) -> Facts:
    """From a leave, and from a death, until the other member has every shard."""
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
    "shards-decide": decisions,
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
    """Turn until everything is owned by whom it shall be, and every member knows."""
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
