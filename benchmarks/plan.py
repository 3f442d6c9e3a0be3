"""The plan of a benchmark run: its sizes, repetitions and time limits."""

from typing import NamedTuple


class Plan(NamedTuple):
    """The sizes and limits of one benchmark run."""

    tasks: int = 20_000
    batch: int = 100
    connections: int = 4  # of the one client process that submits batches
    one_by_one: int = 5_000
    repeats: int = 3  # the median counts
    samples: int = 300
    claim_depths: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    claim_calls: int = 200  # timed at each depth
    blocked_tasks: int = 100_000  # of keys that are full
    spread_tasks: int = 1_000_000  # over many keys that have room
    spread_keys: int = 100_000
    plain_turns: int = 600  # of claims without keys, by versions and beside keys
    schedules: int = 10_000  # that are idle, and that fire once a minute each
    large_tasks: int | None = None  # a second, longer drain
    runs: int = 5_000  # of small workflows, in one round
    run_connections: int = 128  # of the one client process that starts them; more is no faster
    chains: int = 30  # of forty steps, one at a time
    fans: int = 50  # of a hundred branches, one at a time
    functions: int = 3_000  # of three steps, in one round
    sleepers: int = 10_000  # functions that sleep
    replays: int = 10  # of a function of a thousand steps
    loop_steps: int = 999_000  # of a run that passes through one node again and again
    wide_items: int = 100_000  # of a foreach that is under way at the same time
    beside_s: float = 60.0  # how long heartbeats are sent beside the two, at most
    held_s: float = 60.0  # how long a transaction is held open on PostgreSQL
    scale_rounds: int = 21  # of each number of coordinators, in turn
    scale_tasks: int = 60_000  # that several coordinators drain
    scale_drain_limit_s: float = 10.0  # then the rate of what was done counts
    scale_submit_s: float = 1.5  # how long clients submit to several coordinators
    call_samples: int = 50  # of single calls to a coordinator that is far from its database
    takeovers: int = 10  # of a killed leader, and as many of one that is stopped
    million: int = 1_000_000  # queued tasks, for the memory they cost
    leases: int = 10_000  # that a starting coordinator finds, of workers
    lease_holders: int = 1_000  # those workers
    idle_s: float = 30.0  # how long idle workers are watched
    peer_tasks: int = 20_000
    peer_runs: int = 1_000  # of one step, and of three
    limit_s: float = 180.0  # for each measurement
    long_limit_s: float = 600.0  # for each that has several coordinators, or a million tasks
    peer_limit_s: float = 60.0  # for each step of a peer


def quick(plan: Plan) -> Plan:
    """Reduce a plan to what shows that everything runs, and roughly how fast."""
    return plan._replace(
        tasks=5_000,
        peer_tasks=2_000,
        one_by_one=1_000,
        repeats=1,
        samples=50,
        claim_depths=(1_000, 10_000, 100_000),
        claim_calls=50,
        blocked_tasks=20_000,
        spread_tasks=50_000,
        spread_keys=5_000,
        plain_turns=60,
        schedules=1_000,
        runs=1_000,
        chains=10,
        fans=10,
        functions=500,
        sleepers=1_000,
        replays=3,
        loop_steps=50_000,
        wide_items=10_000,
        beside_s=10.0,
        held_s=10.0,
        scale_rounds=2,
        scale_tasks=10_000,
        scale_submit_s=1.0,
        call_samples=20,
        takeovers=3,
        million=100_000,
        leases=1_000,
        lease_holders=100,
        idle_s=10.0,
        peer_runs=500,
        peer_limit_s=15.0,
    )
