"""The time that decisions about shards take, and the shards that they move.

The decisions are the core's own, without store or network, for a thousand members and a hundred
thousand shards. Only the processor time of this thread counts, so other work on the machine does
not.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.plan import Plan
from benchmarks.processes import Failed
from rota.core.context import Context, Rules
from rota.core.shards.commands import (
    BeatMember,
    ConfigureService,
    LeaveMember,
    RegisterMember,
    ServiceCommand,
    SweepServices,
)
from rota.core.shards.decisions import Rebalanced, ShardDecision
from rota.core.shards.members import PROTOCOL, ShardPolicy
from rota.core.shards.reducer import reduce
from rota.core.shards.service import Service

MEMBERS, SHARDS = 1_000, 100_000
SINGLE = 60  # members that join or leave one by one
ROUNDS = 12  # of many members that join and leave together
SERVICE = "benchmark"
POLICY = ShardPolicy()
RULES = Rules(shards=POLICY)


def decisions(_plan: Plan, _folder: Path) -> dict[str, Any]:
    """Members join, leave or die, alone and in crowds, among 1,000 with 100,000 shards."""
    single = _Timed()
    moved, moved_by_ranges = _come_and_go(single)
    crowds = _Timed()
    for _ in range(ROUNDS):
        gc.collect()  # what a round leaves behind must not be collected while the next is timed
        _move_crowds(crowds)
    return {
        "samples": len(single.taken_ms),
        "p50_ms": single.percentile(50),
        "p99_ms": single.percentile(99),
        "crowd_samples": len(crowds.taken_ms),
        "crowd_p50_ms": crowds.percentile(50),
        "crowd_p99_ms": crowds.percentile(99),
        "moved": moved,
        "moved_by_ranges": moved_by_ranges,
        "times_less": moved_by_ranges / max(moved, 1),
    }


class _Timed:
    def __init__(self) -> None:
        self.taken_ms: list[float] = []

    def sweep(self, service: Service, now_ms: int) -> list[ShardDecision]:
        """Time a sweep, which decides everything that is due."""
        return self.take(service, SweepServices(), now_ms)

    def take(
        self, service: Service, event: ServiceCommand | SweepServices, now_ms: int
    ) -> list[ShardDecision]:
        context = _context(now_ms)
        start_s = time.thread_time()
        decided, _ = reduce(service, event, context)
        self.taken_ms.append((time.thread_time() - start_s) * 1000)
        return decided

    def percentile(self, share: int) -> float:
        return statistics.quantiles(self.taken_ms, n=100, method="inclusive")[share - 1]


# --- one member at a time -------------------------------------------------------------------------


def _come_and_go(timed: _Timed) -> tuple[int, int]:
    """Let members join and leave one by one; count the shards moved, here and with ranges."""
    rng, now_ms = random.Random(4), 1_000_000
    service = _joined(_Timed(), _named(range(MEMBERS)))
    moved = moved_by_ranges = 0
    for number in range(SINGLE):
        before = set(service.members)
        event: ServiceCommand
        if number % 2:
            event = _register(f"w-{rng.randrange(10**6):06}")
        else:
            event = LeaveMember(service=SERVICE, worker_id=rng.choice(sorted(before)))
        reduce(service, event, _context(now_ms))
        now_ms += POLICY.join_most_ms
        decided = timed.sweep(service, now_ms)
        moved += sum(one.moved + one.placed for one in decided if isinstance(one, Rebalanced))
        moved_by_ranges += _moved_by_ranges(before, set(service.members))
        _settle(service, now_ms)
    return moved, moved_by_ranges


def _moved_by_ranges(before: set[str], after: set[str]) -> int:
    """The shards that move if each member has one range, in the order of the ids."""
    owners = [_owner_by_ranges(sorted(members)) for members in (before, after)]
    return sum(one != other for one, other in zip(*owners, strict=True))


def _owner_by_ranges(members: list[str]) -> list[str]:
    base, more = divmod(SHARDS, len(members))
    owners: list[str] = []
    for number, member in enumerate(members):
        owners += [member] * (base + (number < more))
    return owners


# --- many members at once -------------------------------------------------------------------------


def _move_crowds(timed: _Timed) -> None:
    """Time the largest rebalances: a first grant, and many joins and leaves at once."""
    _fill(timed)
    service = _joined(timed, _named(range(MEMBERS)))
    now_ms = 1_000_000
    for worker_id in _named(range(0, MEMBERS, 2)):
        leave = LeaveMember(service=SERVICE, worker_id=worker_id)
        reduce(service, leave, _context(now_ms))
    now_ms += POLICY.join_most_ms
    timed.sweep(service, now_ms)
    _settle(service, now_ms)
    _register_all(service, _named(range(MEMBERS, MEMBERS + MEMBERS // 2)), now_ms)
    now_ms += POLICY.join_most_ms
    timed.sweep(service, now_ms)
    _demand_owned(service)


def _fill(timed: _Timed) -> None:
    """Grant all shards at once to members that have registered before: a hundred shards each."""
    service = Service(SERVICE)
    reduce(service, ConfigureService(service=SERVICE, shard_count=1), _context(0))
    _register_all(service, _named(range(MEMBERS)), 0)
    count = ConfigureService(service=SERVICE, shard_count=SHARDS, pinned=True)
    reduce(service, count, _context(0))
    timed.sweep(service, POLICY.join_most_ms)
    _settle(service, POLICY.join_most_ms)
    _demand_owned(service)


def _joined(timed: _Timed, worker_ids: Iterable[str]) -> Service:
    """Let the other members join together, and the first give up the shards that are theirs."""
    service = Service(SERVICE)
    first, *others = worker_ids
    timed.take(service, _register(first), 0)
    _register_all(service, others, 0)
    timed.sweep(service, POLICY.join_most_ms)
    timed.take(service, _beat(service, first), POLICY.join_most_ms)
    _demand_owned(service)
    return service


def _context(now_ms: int) -> Context:
    return Context(now_ms=now_ms, steady_ms=now_ms, rules=RULES, dice=lambda: 0.0)


# --- members --------------------------------------------------------------------------------------


def _named(numbers: Iterable[int]) -> Iterator[str]:
    return (f"w-{number:06}" for number in numbers)


def _register_all(service: Service, worker_ids: Iterable[str], now_ms: int) -> None:
    for worker_id in worker_ids:
        reduce(service, _register(worker_id), _context(now_ms))


def _register(worker_id: str) -> RegisterMember:
    return RegisterMember(
        service=SERVICE,
        worker_id=worker_id,
        shard_count=SHARDS,
        protocol=PROTOCOL,
        incarnation="1",
    )


def _beat(service: Service, worker_id: str) -> BeatMember:
    """A heartbeat that has seen the newest generation and gives up every revoked shard."""
    return BeatMember(
        service=SERVICE,
        worker_id=worker_id,
        shard_count=SHARDS,
        holds=service.assigned_to(worker_id)[0],
        protocol=PROTOCOL,
        incarnation="1",
        generation=service.generation,
    )


def _settle(service: Service, now_ms: int) -> None:
    for worker_id in list(service.members):
        reduce(service, _beat(service, worker_id), _context(now_ms))
    service.take_changed()


def _demand_owned(service: Service) -> None:
    if service.unowned():
        raise Failed(f"{service.unowned()} shards have no owner")


MEASUREMENTS: dict[str, Callable[[Plan, Path], dict[str, Any]]] = {"shards-decide": decisions}
