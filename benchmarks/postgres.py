"""The measurements of Rota on PostgreSQL: one function each, on a fresh database.

They use the same commands as on SQLite, with another store, and where the function says so, two
coordinators on one store.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import coordinators, held_transaction, limits, measurements, schedules
from benchmarks.coordinators import coordinator, worker
from benchmarks.measurements import CONCURRENCY, Facts, rate, repeated
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server
from benchmarks.scaling import holding, scale_out, takeover
from benchmarks.scaling import pickup as pickup_scaling

Measurement = Callable[[Plan, Path, Server], Facts]


def drain(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: tasks queued beforehand, one coordinator, one worker process."""

    def once(turn: int) -> Facts:
        place = folder / f"pg-drain-{turn}"
        with server.database() as store:
            return measurements.drained(plan.tasks, place, store=store, server_id=server.process_id)

    return repeated(once, plan)


REPLICA_TURNS = 4  # times the tasks of a drain, so that start and end weigh less


def replicas(plan: Plan, folder: Path, server: Server) -> Facts:
    """Two coordinators on one database with a worker each, in turn with one of each."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(plan.repeats):
        for size, measured in rates.items():
            with server.database() as store:
                place = folder / f"pg-replicas-{size}-{turn}"
                measured.append(
                    _drained_by(size, REPLICA_TURNS * plan.tasks, place, store)["per_s"]
                )
    one, two = (sorted(all_rates)[len(all_rates) // 2] for all_rates in rates.values())
    return {"one_per_s": one, "two_per_s": two, "ratio": two / one, "all_per_s": rates}


def _drained_by(size: int, tasks: int, folder: Path, store: str) -> Facts:
    """Drain with this many coordinators and as many workers; return their rate together."""
    with coordinators.replicas(size, folder, store) as all_of_them, ExitStack() as stack:
        first = all_of_them[0]
        _, last_id = coordinators.fill(first, tasks)
        workers = [stack.enter_context(worker(one, concurrency=CONCURRENCY)) for one in all_of_them]
        coordinators.wait_for_task(first, last_id, *workers)
        coordinators.wait_until_finished(first, *workers)
        times = coordinators.times(first, tasks)
    return rate(tasks, (times.last_finished_ms - times.first_started_ms) / 1000)


def submit_one(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: one call after the other from one thread of one client, with the SDK."""
    with server.database() as store, coordinator(folder / "pg-submit-one", store=store) as one:
        return measurements.submitted_one_by_one(one, plan.one_by_one)


def submit_batches(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: batches from one client process over a few connections."""

    def once(turn: int) -> Facts:
        place = folder / f"pg-submit-batches-{turn}"
        with server.database() as store, coordinator(place, store=store) as one:
            return measurements.submitted_in_batches(one, plan)

    return repeated(once, plan)


def pickup(plan: Plan, folder: Path, server: Server) -> Facts:
    """On PostgreSQL: one task at a time on an idle system of one coordinator."""
    with server.database() as store, coordinator(folder / "pg-pickup", store=store) as one:
        return measurements.picked_up(one, one, plan.samples)


def pickup_across(plan: Plan, folder: Path, server: Server) -> Facts:
    """One task at a time, submitted to one coordinator; the only worker is at another."""
    with (
        server.database() as store,
        coordinators.replicas(2, folder / "pg-across", store) as (first, second),
    ):
        return measurements.picked_up(first, second, plan.samples)


def held(plan: Plan, folder: Path, server: Server) -> Facts:
    """A steady load before, during and after a transaction that another connection holds."""
    with server.database() as store, coordinator(folder / "pg-held", store=store) as one:
        return held_transaction.endured(one, store, server.process_id, held_s=plan.held_s)


SCALING_MEASUREMENTS: dict[str, Measurement] = {
    **scale_out.MEASUREMENTS,
    **pickup_scaling.MEASUREMENTS,
    **takeover.MEASUREMENTS,
    **holding.MEASUREMENTS,
}
MEASUREMENTS: dict[str, Measurement] = {
    "postgres-drain": drain,
    "postgres-replicas": replicas,
    "postgres-submit-one": submit_one,
    "postgres-submit-batches": submit_batches,
    "postgres-pickup": pickup,
    "postgres-pickup-across": pickup_across,
    "postgres-held": held,
    **limits.POSTGRES_MEASUREMENTS,
    **schedules.POSTGRES_MEASUREMENTS,
    **SCALING_MEASUREMENTS,
}
