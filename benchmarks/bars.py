"""The bars: figures that Rota must reach, and whether a run has reached them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.comparing import PEERS, POSTGRES_PEERS
from benchmarks.workflows import CHAIN_STEPS, FAN_BRANCHES, ITEMS

RATE, LATENCY, TIMES, SECONDS = "{:,.0f}/s", "{:.2f} ms", "{:.2f}x", "{:.2f} s"
COUNT, BEYOND = "{:,.0f}", "lease + {:.2f} s"
WHOLE_MS, ROUND_TRIPS = "{:,.0f} ms", "{:.1f} RTT"
MEGABYTES, PERCENT = "{:.0f} MB", "{:.1f} %"

Results = dict[str, Any]


class Bar(NamedTuple):
    row: str  # of the table, and its name
    measurement: str
    wanted: str
    measured: Callable[[Results], float | None]  # None: not measured in this run
    holds: Callable[[float], bool]
    text: str


class Verdict(NamedTuple):
    row: str
    wanted: str
    measured: str
    is_met: bool


def _rota(measurement: str, figure: str) -> Callable[[Results], float | None]:
    def read(results: Results) -> float | None:
        value = results["rota"].get(measurement, {}).get(figure)
        return None if value is None else float(value)

    return read


def over_celery(results: Results) -> float | None:
    ours = _rota("drain", "per_s")(results)
    theirs = results["peers"].get("celery", {}).get("drain", {}).get("per_s")
    return ours / theirs if ours and theirs else None


def over_dbos(measurement: str) -> Callable[[Results], float | None]:
    """Rota's rate of these runs as a multiple of DBOS's."""

    def read(results: Results) -> float | None:
        ours = _rota(measurement, "per_s")(results)
        facts = results["peers"].get("dbos", {})
        theirs = facts.get(measurement.replace("-", "_"), {}).get("per_s")
        return ours / theirs if ours and theirs else None

    return read


def functions_over_dbos(measurement: str, way: str) -> Callable[[Results], float | None]:
    """Rota's rate of three-step functions as a multiple of DBOS's: queued, called or asked for."""

    def read(results: Results) -> float | None:
        ours = _rota(measurement, "per_s")(results)
        facts = results["peers"].get("dbos", {}).get("runs_three", {})
        theirs = facts.get("ways_per_s", {}).get(way)
        return ours / theirs if ours and theirs else None

    return read


OVER_DBOS = {
    "one-task runs, over DBOS's": over_dbos("runs-one"),
    "three-step runs, over DBOS's": over_dbos("runs-three"),
    "functions, 64 at once, over DBOS's queued": functions_over_dbos("functions-three", "queued"),
    "functions, one by one, over DBOS's called": functions_over_dbos("functions-one", "called"),
    "functions, one by one, over DBOS's asked for": functions_over_dbos("functions-one", "asked"),
}

POSTGRES = "on PostgreSQL: "
POSTGRES_RIVALS = (*POSTGRES_PEERS, "celery")
KEYED_ONLY = ("counting-sql",)  # it has no row but the drain of tasks with keys


def over_on_postgres(rival: str, what: str = "drain") -> Callable[[Results], float | None]:
    """Rota's rate on PostgreSQL as a multiple of a peer's."""

    def read(results: Results) -> float | None:
        ours = _rota(f"postgres-{what}", "per_s")(results)
        theirs = results["peers"].get(rival, {}).get(what.replace("-", "_"), {}).get("per_s")
        return ours / theirs if ours and theirs else None

    return read


POSTGRES_BARS = (
    *(
        Bar(
            f"{POSTGRES}drain, over {PEERS[rival].title}'s",
            "postgres-drain",
            "> 1x",
            over_on_postgres(rival),
            lambda times: times > 1,
            TIMES,
        )
        for rival in POSTGRES_RIVALS
        if rival not in KEYED_ONLY
    ),
    Bar(
        f"{POSTGRES}submit one by one, over {PEERS['pg-boss'].title}'s",
        "postgres-submit-one",
        "≥ 1x",
        over_on_postgres("pg-boss", "submit-one"),
        lambda times: times >= 1,
        TIMES,
    ),
    Bar(
        f"{POSTGRES}drain, two coordinators : one",
        "postgres-replicas",
        "≥ 1x",
        _rota("postgres-replicas", "ratio"),
        lambda times: times >= 1,
        TIMES,
    ),
    Bar(
        f"{POSTGRES}pick-up across replicas, p50",
        "postgres-pickup-across",
        "< 10 ms",
        _rota("postgres-pickup-across", "p50_ms"),
        lambda latency_ms: latency_ms < 10,
        LATENCY,
    ),
)

SCALING = "several: "
NUMBERS = {2: "two", 3: "three"}


def single_call(measurement: str, figure: str) -> Callable[[Results], float | None]:
    def read(results: Results) -> float | None:
        value = results["rota"].get(measurement, {}).get("calls", {}).get(figure)
        return None if value is None else float(value)

    return read


def _of_size(
    measurement: str, figure: str, size: str, smallest: float
) -> Callable[[Results], float | None]:
    """The figure of a measurement of full size; a smaller one, as with `--quick`, has no bar."""

    def read(results: Results) -> float | None:
        facts = results["rota"].get(measurement, {})
        value = facts.get(figure)
        return float(value) if value is not None and facts[size] >= smallest else None

    return read


def at_least(limit: float) -> Callable[[float], bool]:
    return lambda measured: measured >= limit


def at_most(limit: float) -> Callable[[float], bool]:
    return lambda measured: measured <= limit


SCALING_BARS = (
    *(
        Bar(
            f"{SCALING}{what} at {rtt}, {number} : one",
            f"scale-out-{rtt.replace(' ', '')}",
            "≥ 0.95x",
            _rota(f"scale-out-{rtt.replace(' ', '')}", f"{what}_ratio_{size}"),
            at_least(0.95),
            TIMES,
        )
        for rtt in ("1 ms", "10 ms")
        for what in ("submit", "drain")
        for size, number in NUMBERS.items()
    ),
    *(
        Bar(
            f"{SCALING}a {call} at 10 ms, p50",
            "scale-out-10ms",
            "≤ 2.5 RTT",
            single_call("scale-out-10ms", f"{call}_rtts"),
            at_most(2.5),
            ROUND_TRIPS,
        )
        for call in ("submit", "lease", "report")
    ),
    Bar(
        f"{SCALING}pick-up across : at one, p50",
        "scale-out-pickup",
        "≤ 1.5x",
        _rota("scale-out-pickup", "pickup_ratio"),
        at_most(1.5),
        TIMES,
    ),
    Bar(
        f"{SCALING}leader killed, next write, median",
        "takeover-kill",
        "≤ 2,000 ms",
        _rota("takeover-kill", "median_ms"),
        at_most(2_000),
        WHOLE_MS,
    ),
    Bar(
        f"{SCALING}leader killed, next write, worst",
        "takeover-kill",
        "≤ 4,000 ms",
        _rota("takeover-kill", "worst_ms"),
        at_most(4_000),
        WHOLE_MS,
    ),
    *(
        Bar(
            f"{SCALING}leader stopped, without writes, {name}",
            "takeover-stop",
            "< 200 ms",
            _rota("takeover-stop", f"{name}_ms"),
            lambda gap_ms: gap_ms < 200,
            WHOLE_MS,
        )
        for name in ("median", "worst")
    ),
    Bar(
        f"{SCALING}a million queued, memory",
        "memory-million",
        "< 100 MB",
        _of_size("memory-million", "grown_mb", "queued", 1_000_000),
        lambda grown_mb: grown_mb < 100,
        MEGABYTES,
    ),
    Bar(
        f"{SCALING}10,000 leases, a start longer by",
        "takeover-leases",
        "< 1 s",
        _of_size("takeover-leases", "added_s", "leases", 10_000),
        lambda seconds: seconds < 1,
        SECONDS,
    ),
    Bar(
        f"{SCALING}10,000 leases, leader stopped",
        "takeover-leases",
        "< 1,000 ms",
        _of_size("takeover-leases", "handover_ms", "leases", 10_000),
        lambda gap_ms: gap_ms < 1_000,
        WHOLE_MS,
    ),
    Bar(
        f"{SCALING}lowest rate, transaction held : before",
        "postgres-held",
        "≥ 0.8x",
        _of_size("postgres-held", "held_ratio", "held_s", 60),
        at_least(0.8),
        TIMES,
    ),
)

SCHEDULES = "schedules: "
PLAIN = "without keys: "


def _plain_bars(prefix: str, measurement: str) -> tuple[Bar, ...]:
    """The bars of tasks that have no keys, against the last version without limits."""
    return tuple(
        Bar(
            f"{prefix}{PLAIN}{what}",
            measurement,
            "≤ 1.05x",
            _rota(measurement, figure),
            at_most(1.05),
            TIMES,
        )
        for what, figure in (
            ("now : before limits", "plain_ratio"),
            ("beside keys : before limits", "beside_ratio"),
        )
    )


def _schedule_bars(prefix: str, measured: str) -> tuple[Bar, Bar]:
    """The bars of 10,000 schedules on one store."""
    idle, fire = f"{measured}schedules-idle", f"{measured}schedules-fire"
    return (
        Bar(
            f"{prefix}{SCHEDULES}10,000 idle, added processor",
            idle,
            "< 1 % of a core",
            _of_size(idle, "added_percent", "schedules", 10_000),
            lambda percent: percent < 1,
            "{:.2f} %",
        ),
        Bar(
            f"{prefix}{SCHEDULES}10,000 firings a minute, late at p99",
            fire,
            "≤ 100 ms",
            _of_size(fire, "p99_ms", "schedules", 10_000),
            at_most(100),
            WHOLE_MS,
        ),
    )


BARS = (
    Bar(
        "drain",
        "drain",
        "≥ 45,000/s",
        _rota("drain", "per_s"),
        lambda rate: rate >= 45_000,
        RATE,
    ),
    Bar("drain, over Celery's", "celery", "≥ 20x", over_celery, lambda times: times >= 20, TIMES),
    Bar(
        "submit one by one",
        "submit-one",
        "≥ 2,000/s",
        _rota("submit-one", "per_s"),
        lambda rate: rate >= 2_000,
        RATE,
    ),
    Bar(
        "submit in batches",
        "submit-batches",
        "≥ 65,000/s",
        _rota("submit-batches", "per_s"),
        lambda rate: rate >= 65_000,
        RATE,
    ),
    Bar(
        "pick-up, p50",
        "pickup",
        "< 1 ms",
        _rota("pickup", "p50_ms"),
        lambda latency_ms: latency_ms < 1,
        LATENCY,
    ),
    Bar(
        "claim, deepest : shallowest",
        "claim",
        "≤ 1.5x",
        _rota("claim", "ratio"),
        lambda times: times <= 1.5,
        TIMES,
    ),
    Bar(
        "claim, beside blocked keys : without",
        "limits",
        "≤ 1.2x",
        _rota("limits", "blocked_ratio"),
        lambda times: times <= 1.2,
        TIMES,
    ),
    Bar(
        "claim, over many keys : without",
        "limits",
        "≤ 2.5x",
        _rota("limits", "spread_ratio"),
        lambda times: times <= 2.5,
        TIMES,
    ),
    Bar(
        "one-task runs, over DBOS's",
        "dbos",
        "≥ 5x",
        OVER_DBOS["one-task runs, over DBOS's"],
        lambda times: times >= 5,
        TIMES,
    ),
    Bar(
        "three-step runs, over DBOS's",
        "dbos",
        "≥ 10x",
        OVER_DBOS["three-step runs, over DBOS's"],
        lambda times: times >= 10,
        TIMES,
    ),
    Bar(
        "functions, 64 at once, over DBOS's queued",
        "functions-three",
        "≥ 10x",
        OVER_DBOS["functions, 64 at once, over DBOS's queued"],
        at_least(10),
        TIMES,
    ),
    Bar(
        "functions, one by one, over DBOS's called",
        "functions-one",
        "≥ 4x",
        OVER_DBOS["functions, one by one, over DBOS's called"],
        at_least(4),
        TIMES,
    ),
    Bar(
        "functions, one by one, over DBOS's asked for",
        "functions-one",
        "≥ 4x",
        OVER_DBOS["functions, one by one, over DBOS's asked for"],
        at_least(4),
        TIMES,
    ),
    Bar(
        "a function with 100 children, p50",
        "functions-children",
        "≤ 60 ms",
        _rota("functions-children", "p50_ms"),
        at_most(60),
        LATENCY,
    ),
    Bar(
        "10,000 sleeping functions, memory",
        "functions-sleepers",
        "< 100 MB",
        _of_size("functions-sleepers", "added_mb", "sleepers", 10_000),
        lambda added_mb: added_mb < 100,
        MEGABYTES,
    ),
    Bar(
        "10,000 sleeping functions, tasks occupied",
        "functions-sleepers",
        "0",
        _rota("functions-sleepers", "occupied"),
        lambda occupied: occupied == 0,
        COUNT,
    ),
    Bar(
        "replay of 1,000 steps, p50",
        "functions-replay",
        "< 100 ms",
        _rota("functions-replay", "p50_ms"),
        lambda latency_ms: latency_ms < 100,
        LATENCY,
    ),
    Bar(
        f"a step of {CHAIN_STEPS}, p50",
        "chain",
        "≤ 3 ms",
        _rota("chain", "p50_ms"),
        lambda latency_ms: latency_ms <= 3,
        LATENCY,
    ),
    Bar(
        f"{FAN_BRANCHES} branches and their join, p50",
        "fan-out",
        "≤ 60 ms",
        _rota("fan-out", "p50_ms"),
        lambda latency_ms: latency_ms <= 60,
        LATENCY,
    ),
    Bar(
        f"foreach of {ITEMS[-1]:,}, joined",
        "foreach",
        "≤ 5 s",
        _rota("foreach", "seconds"),
        lambda seconds: seconds <= 5,
        SECONDS,
    ),
    Bar(
        "a heartbeat beside 1,000,000 steps and a foreach of 100,000, p99",
        "heartbeats-beside-runs",
        "≤ 100 ms",
        _rota("heartbeats-beside-runs", "p99_ms"),
        lambda latency_ms: latency_ms <= 100,
        LATENCY,
    ),
    Bar(
        "a batch of their steps, p99",
        "heartbeats-beside-runs",
        "≤ 20 ms",
        _rota("heartbeats-beside-runs", "batch_p99_ms"),
        lambda latency_ms: latency_ms <= 20,
        LATENCY,
    ),
    Bar(
        "shards: a rebalance decided, p99",
        "shards-decide",
        "< 25 ms",
        _rota("shards-decide", "p99_ms"),
        lambda latency_ms: latency_ms < 25,
        LATENCY,
    ),
    Bar(
        "shards: a rebalance of crowds, p99",
        "shards-decide",
        "< 25 ms",
        _rota("shards-decide", "crowd_p99_ms"),
        lambda latency_ms: latency_ms < 25,
        LATENCY,
    ),
    Bar(
        "shards: 1,000 workers join",
        "shards-join",
        "< 5 s",
        _rota("shards-join", "seconds"),
        lambda seconds: seconds < 5,
        SECONDS,
    ),
    Bar(
        "shards: rebalances for them",
        "shards-join",
        "≤ 2",
        _rota("shards-join", "rebalances"),
        lambda rebalances: rebalances <= 2,
        COUNT,
    ),
    Bar(
        "shards: moved by 1,000 restarts",
        "shards-join",
        "0",
        _rota("shards-join", "moved_by_restarts"),
        lambda moved: moved == 0,
        COUNT,
    ),
    Bar(
        "shards: heartbeats answered",
        "shards-beats",
        "≥ 10,000/s",
        _rota("shards-beats", "beats_per_s"),
        lambda rate: rate >= 10_000,
        RATE,
    ),
    Bar(
        "shards: handed over after a leave",
        "shards-handover",
        "< 1 s",
        _rota("shards-handover", "leave_s"),
        lambda seconds: seconds < 1,
        SECONDS,
    ),
    Bar(
        "shards: handed over after a death",
        "shards-handover",
        "≤ lease + 1 s",
        _rota("shards-handover", "death_over_lease_s"),
        lambda seconds: seconds <= 1,
        BEYOND,
    ),
    Bar(
        "sockets: 1,000 idle workers, memory",
        "streams-idle",
        "< 100 MB",
        _rota("streams-idle", "added_mb"),
        lambda added_mb: added_mb < 100,
        MEGABYTES,
    ),
    Bar(
        "sockets: 1,000 idle workers, processor",
        "streams-idle",
        "< 5 % of a core",
        _rota("streams-idle", "core_percent"),
        lambda percent: percent < 5,
        PERCENT,
    ),
    Bar(
        "sockets: 100 beside one that never reads",
        "streams-neighbours",
        "≤ 1.1x",
        _rota("streams-neighbours", "ratio"),
        lambda times: times <= 1.1,
        TIMES,
    ),
    *_plain_bars("", "without-keys"),
    *_schedule_bars("", ""),
    *POSTGRES_BARS,
    *_plain_bars(POSTGRES, "postgres-without-keys"),
    *_schedule_bars(POSTGRES, "postgres-"),
    *SCALING_BARS,
)


def judge(results: Results) -> list[Verdict]:
    """Compare the results with every bar that was measured.

    A bar whose measurement failed counts as missed; one that was not tried is left out. Peers may
    be missing: Celery needs a Redis, which not every machine has.
    """
    verdicts = []
    for bar in BARS:
        measured = bar.measured(results)
        if measured is not None:
            said = bar.text.format(measured)
            verdicts.append(Verdict(bar.row, bar.wanted, said, bar.holds(measured)))
        elif "problem" in results["rota"].get(bar.measurement, {}):
            verdicts.append(Verdict(bar.row, bar.wanted, "could not be measured", is_met=False))
    return verdicts
