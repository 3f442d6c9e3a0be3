"""One-line summaries of measurements, printed as soon as each is made."""

from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]


def summary(facts: Facts) -> str:
    """The first line that fits; facts without a line of their own are shown as they are."""
    return next((line(facts) for figure, line in LINES.items() if figure in facts), str(facts))


def _rate(facts: Facts) -> str:
    what = "runs" if "runs" in facts else "tasks"
    costs = facts.get("cpu_us") or {}
    parts = "".join(f", {name} {cost:.0f} µs" for name, cost in costs.items())
    return f"{facts['per_s']:,.0f}/s ({facts[what]:,} {what} in {facts['seconds']:.2f} s{parts})"


def _crowds(facts: Facts) -> str:
    return f"p99 {facts['p99_ms']:.2f} ms, of crowds {facts['crowd_p99_ms']:.2f} ms"


def _latency(facts: Facts) -> str:
    return f"p50 {facts['p50_ms']:.2f} ms, p99 {facts['p99_ms']:.2f} ms"


def _replicas(facts: Facts) -> str:
    one, two = facts["one_per_s"], facts["two_per_s"]
    return f"one {one:,.0f}/s, two {two:,.0f}/s (x{facts['ratio']:.2f})"


def _held(facts: Facts) -> str:
    during = ", ".join(f"{rate:,.0f}" for rate in facts["during_per_s"])
    costs = ", ".join(f"{cost:.0f}" for cost in facts["server_us"])
    return (
        f"before {facts['before_per_s']:,.0f}/s, meanwhile {during}/s, "
        f"after {facts['after_per_s']:,.0f}/s (lowest x{facts['held_ratio']:.2f}); "
        f"the server's time a task: {costs} µs"
    )


def _scale_out(facts: Facts) -> str:
    calls = facts["calls"]
    rates = (
        f"{what} {', '.join(f'{rate:,.0f}' for rate in facts[f'{what}_per_s'].values())}/s"
        for what in ("submit", "drain")
    )
    costs = (f"{call} {calls[f'{call}_ms']:.1f} ms" for call in ("submit", "lease", "report"))
    return f"by 1, 2, 3: {'; '.join(rates)}; a single {', '.join(costs)}"


def _pickup_across(facts: Facts) -> str:
    return (
        f"p50 across {facts['across_p50_ms']:.2f} ms, at one coordinator "
        f"{facts['one_p50_ms']:.2f} ms (x{facts['pickup_ratio']:.2f})"
    )


def _takeovers(facts: Facts) -> str:
    led = "no leader" if None in facts["leaders"] else "leaders"
    return (
        f"{facts['takeovers']} ({led}): median {facts['median_ms']:.0f} ms, "
        f"worst {facts['worst_ms']:.0f} ms, {facts['acknowledged']:,} writes and none lost"
    )


def _memory(facts: Facts) -> str:
    return (
        f"empty {facts['empty_mb']:.0f} MB; with {facts['queued']:,} queued "
        f"{facts['submitted_mb']:.0f} MB, restarted {facts['restarted_mb']:.0f} MB, "
        f"with leases {facts['leased_mb']:.0f} MB"
    )


def _leases(facts: Facts) -> str:
    return (
        f"ready in {facts['ready_s']:.2f} s, empty in {facts['empty_s']:.2f} s; taken over by "
        f"another in {facts['handover_ms']:.0f} ms, after a kill in {facts['killed_ms']:.0f} ms"
    )


def _without_keys(facts: Facts) -> str:
    parts = (
        f"{name} {sum(facts[name]['calls_us'].values()):.1f} µs a task "
        f"({facts[name]['processor_us']:.1f} of processor)"
        for name in ("before", "now", "beside")
    )
    return (
        f"{', '.join(parts)}: x{facts['plain_ratio']:.3f}, beside keys x{facts['beside_ratio']:.3f}"
        f" (processor x{facts['plain_processor_ratio']:.3f}, "
        f"x{facts['beside_processor_ratio']:.3f})"
    )


def _idle_schedules(facts: Facts) -> str:
    return (
        f"{facts['schedules']:,} take {facts['idle_percent']:.2f} % of a core, none takes "
        f"{facts['empty_percent']:.2f} %; stored at {facts['put_per_s']:,.0f}/s"
    )


def _firings(facts: Facts) -> str:
    return (
        f"{facts['firings']:,} late by {facts['p50_ms']:.1f} ms at p50, {facts['p99_ms']:.1f} at "
        f"p99, {facts['worst_ms']:.0f} at worst, with {facts['fire_percent']:.0f} % of a core"
    )


def _depths(facts: Facts) -> str:
    costs = (
        f"{entry['us_per_task']:.1f} µs at {int(depth):,}"
        for depth, entry in facts["depths"].items()
    )
    return f"{', '.join(costs)} (x{facts['ratio']:.2f})"


def _beats(facts: Facts) -> str:
    work_us = facts["cpu_us_per_beat"]
    work = "" if work_us is None else f", {work_us:.0f} µs of work each"
    return f"{facts['beats_per_s']:,.0f}/s ({facts['beats']:,} beats{work})"


def _joins(facts: Facts) -> str:
    return (
        f"{facts['members']:,} in {facts['seconds']:.2f} s with {facts['rebalances']} "
        f"rebalances; their restarts moved {facts['moved_by_restarts']}"
    )


def _handover(facts: Facts) -> str:
    return (
        f"after a leave {facts['leave_s']:.2f} s, after a death {facts['death_s']:.2f} s "
        f"(lease {facts['lease_s']:.0f} s)"
    )


def _items(facts: Facts) -> str:
    sizes = (f"{seconds:.2f} s for {int(items):,}" for items, seconds in facts["items"].items())
    return f"{', '.join(sizes)} (x{facts['over_linear']:.2f} of linear)"


# Keyed by a figure that identifies the measurement; the first key that is present counts.
LINES: dict[str, Callable[[Facts], str]] = {
    "per_s": _rate,
    "crowd_p99_ms": _crowds,
    "plain_ratio": _without_keys,
    "fire_percent": _firings,
    "idle_percent": _idle_schedules,
    "p50_ms": _latency,
    "two_per_s": _replicas,
    "during_per_s": _held,
    "depths": _depths,
    "submit_ratio_2": _scale_out,
    "pickup_ratio": _pickup_across,
    "takeovers": _takeovers,
    "grown_mb": _memory,
    "handover_ms": _leases,
    "beats_per_s": _beats,
    "rebalances": _joins,
    "leave_s": _handover,
    "items": _items,
}
