"""What a coordinator holds in memory, and how soon it is ready, with much in its store."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks import coordinators
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.processes import Failed
from benchmarks.scaling.fleet import Member, fleet, leader_of
from benchmarks.scaling.keyed_load import KeyedLoad
from benchmarks.scaling.takeover import SETTLE_S, killed, stopped
from benchmarks.wire import Connection

BATCH = 10_000
LEASES = 1_000  # taken while a million is queued
STARTS = 3  # the median counts
CALLERS = 16  # connections that register workers and lease for them
MEGABYTES = 1.048576  # in a MiB

Facts = dict[str, Any]


def million(plan: Plan, folder: Path, server: Server) -> Facts:
    """The coordinator's memory with a million queued tasks, over that with an empty store."""
    with server.database() as store, fleet(1, folder / "memory-million", store) as (member,):
        empty = _memory_mb(member)
        _submit(member, plan.million)
        submitted = _memory_mb(member)
        member.stop()
        member.start()
        restarted = _memory_mb(member)
        depth = sum(queue["depth"] for queue in member.ask("GET", "/api/queues")["items"])
        if depth != plan.million:
            raise Failed(f"{depth} of {plan.million} tasks are queued")
        _lease(Connection(member.port), "holder", LEASES)
        leased = _memory_mb(member)
    figures = {"submitted": submitted, "restarted": restarted, "leased": leased}
    return {
        "queued": plan.million,
        "empty_mb": empty,
        **{f"{name}_mb": memory_mb for name, memory_mb in figures.items()},
        "grown_mb": max(figures.values()) - empty,
    }


def _memory_mb(member: Member) -> float:
    time.sleep(SETTLE_S)
    memory_mib = member.process.memory_mib()
    if memory_mib is None:
        raise Failed("there is no /proc to read a process's memory from")
    return memory_mib["now"] * MEGABYTES


def _submit(member: Member, tasks: int) -> None:
    connection = Connection(member.port)
    for size in coordinators.sizes(tasks, BATCH):
        connection.send(coordinators.submission(size))
    connection.close()


def _lease(connection: Connection, worker_id: str, tasks: int) -> None:
    """Register a worker that need not send heartbeats for a while, and lease tasks for it."""
    registration = {
        "worker_id": worker_id,
        "node_id": "benchmark",
        "max_concurrent_tasks": tasks,
        "heartbeat_interval_ms": 600_000,
    }
    incarnation = connection.ask("POST", "/api/workers", registration)["incarnation"]
    wanted = {"incarnation": incarnation, "max": tasks}
    leases = connection.ask("POST", f"/api/workers/{worker_id}/lease", wanted)["leases"]
    if len(leases) != tasks:
        raise Failed(f"{len(leases)} tasks were leased instead of {tasks}")


# --- a takeover with many leases ------------------------------------------------------------------


def leases(plan: Plan, folder: Path, server: Server) -> Facts:
    """Starts and takeovers with 10,000 leases of 1,000 workers in the store."""
    with server.database() as store, fleet(1, folder / "takeover-leases", store) as (member,):
        empty_s = statistics.median(_restarted(member) for _ in range(STARTS))
        _submit(member, plan.leases)
        _lease_for_many(member, plan.lease_holders, plan.leases // plan.lease_holders)
        ready_s = statistics.median(_restarted(member) for _ in range(STARTS))
        held = sum(queue["running"] for queue in member.ask("GET", "/api/queues")["items"])
        if held != plan.leases:
            raise Failed(f"{held} of {plan.leases} leases were there after the starts")
        member.stop()
        with fleet(2, folder / "takeover-leases-of-two", store) as members:
            stopped_s = _taken_over(members, stopped)
            killed_s = _taken_over(members, killed)
    return {
        "leases": plan.leases,
        "workers": plan.lease_holders,
        "empty_s": empty_s,
        "ready_s": ready_s,
        "added_s": ready_s - empty_s,
        "handover_ms": stopped_s * 1000,
        "killed_ms": killed_s * 1000,
    }


def _restarted(member: Member) -> float:
    member.stop()
    return member.start()


def _taken_over(members: list[Member], takeover: Callable[[Member, KeyedLoad], float]) -> float:
    """The median of several takeovers by the other member."""
    taken_s = []
    for _ in range(STARTS):
        with KeyedLoad([member.port for member in members]) as load:
            time.sleep(SETTLE_S)
            victim = leader_of(members) or members[0]
            taken_s.append(takeover(victim, load))
            victim.start()
            load.finish()
    return statistics.median(taken_s)


def _lease_for_many(member: Member, workers: int, tasks: int) -> None:
    """Lease so many tasks for each of so many workers, over several connections at once."""
    waiting = [f"holder-{number}" for number in range(workers)]
    problems: list[Exception] = []

    def lease() -> None:
        connection = Connection(member.port)
        try:
            while waiting:
                _lease(connection, waiting.pop(), tasks)
        except IndexError:
            pass  # another thread took the last
        except (OSError, Failed) as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [Thread(target=lease, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Failed(f"leasing failed: {problems[0]}")


MEASUREMENTS = {"memory-million": million, "takeover-leases": leases}
