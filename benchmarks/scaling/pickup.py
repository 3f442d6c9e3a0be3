"""Pick-up across coordinators: submitted to one, with the only worker at another."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks import coordinators, measurements
from benchmarks.coordinators import coordinator
from benchmarks.plan import Plan
from benchmarks.postgres_server import Server

Facts = dict[str, Any]


def across(plan: Plan, folder: Path, server: Server) -> Facts:
    """The pick-up from each of two coordinators to the other, over that at a single one."""
    medians: dict[str, list[float]] = {
        "one": [],
        "first": [],
        "second": [],
        "there": [],
        "back": [],
    }
    samples = max(20, plan.samples // plan.repeats)
    for turn in range(plan.repeats):
        with (
            server.database() as store,
            coordinator(folder / f"scale-pickup-one-{turn}", store=store) as one,
        ):
            medians["one"].append(measurements.picked_up(one, one, samples)["p50_ms"])
        with (
            server.database() as store,
            coordinators.replicas(2, folder / f"scale-pickup-{turn}", store) as (first, second),
        ):
            for name, submitting, working in (
                ("first", first, first),
                ("there", first, second),
                ("second", second, second),
                ("back", second, first),
            ):
                facts = measurements.picked_up(submitting, working, samples)
                medians[name].append(facts["p50_ms"])
    figures = {f"{name}_p50_ms": statistics.median(all_ms) for name, all_ms in medians.items()}
    worse_ms = max(figures["there_p50_ms"], figures["back_p50_ms"])
    return {
        **figures,
        "across_p50_ms": worse_ms,
        "pickup_ratio": worse_ms / figures["one_p50_ms"],
        "all_p50_ms": medians,
    }


MEASUREMENTS = {"scale-out-pickup": across}
