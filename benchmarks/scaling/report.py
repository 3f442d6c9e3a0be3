"""Rows of the table that show the figures of several coordinators side by side."""

from typing import Any

DISTANCES = {"scale-out-near": "~0 ms", "scale-out-1ms": "1 ms", "scale-out-10ms": "10 ms"}
CALLS = ("submit", "lease", "report")

Facts = dict[str, Any]
OwnRows = list[tuple[str, str]]


def rows(results: Facts) -> OwnRows:
    measured = {
        distance: results["rota"][name]
        for name, distance in DISTANCES.items()
        if "calls" in results["rota"].get(name, {})
    }
    found = [
        (f"{what}/s by 1, 2, 3 coordinators, RTT {distance}", _rates(facts[f"{what}_per_s"]))
        for what in ("submit", "drain")
        for distance, facts in measured.items()
    ]
    found += [
        (f"a {', '.join(CALLS)}, RTT {distance}", _costs(facts["calls"]))
        for distance, facts in measured.items()
    ]
    return (
        found
        + _memory(results["rota"].get("memory-million", {}))
        + _pickup(results["rota"].get("scale-out-pickup", {}))
    )


def _rates(by_size: dict[str, float]) -> str:
    return ", ".join(f"{rate:,.0f}".replace(",", " ") for rate in by_size.values())


def _costs(calls: Facts) -> str:
    return ", ".join(f"{calls[f'{call}_ms']:.1f}" for call in CALLS) + " ms"


def _memory(facts: Facts) -> OwnRows:
    if "grown_mb" not in facts:
        return []
    parts = ("empty", "submitted", "restarted", "leased")
    return [
        (
            f"memory: empty, {facts['queued']:,} queued, restarted, leased",
            ", ".join(f"{facts[f'{part}_mb']:.0f}" for part in parts) + " MB",
        )
    ]


def _pickup(facts: Facts) -> OwnRows:
    if "pickup_ratio" not in facts:
        return []
    parts = ("one", "first", "second", "there", "back")
    return [
        (
            "pick-up: one alone; of two: at each, across each way",
            ", ".join(f"{facts[f'{part}_p50_ms']:.2f}" for part in parts) + " ms",
        )
    ]
