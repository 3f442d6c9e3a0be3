"""Which faults, and how many? Each profile is a kind of bad day."""

from dataclasses import dataclass, field

from tests.simulation.network import Weather


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    duration_s: float = 15.0  # of the faults; the healing comes after
    workers: int = 3
    submitters: int = 2
    unique_submitters: int = 0
    limited_submitters: int = 0
    intervals_ms: tuple[int, ...] = (1_000, 2_000)
    weather: Weather = field(default_factory=Weather)
    history_keep_ms: int = 7 * 24 * 3600 * 1000
    failures: float = 0.1  # share of attempts
    slow_handlers: float = 0.2  # share of attempts that take seconds
    timeouts: float = 0.3  # share of tasks whose attempts have a time

    # How often, on average, in seconds; 0: never.
    coordinator_dies_s: float = 0.0
    coordinator_stops_s: float = 0.0
    coordinator_pauses_s: float = 0.0
    disk_is_full_s: float = 0.0
    clock_jumps_s: float = 0.0
    worker_dies_s: float = 0.0
    worker_pauses_s: float = 0.0
    worker_doubles_s: float = 0.0  # another process takes over the id
    worker_leaves_s: float = 0.0
    worker_is_cut_off_s: float = 0.0


CALM = Profile(name="calm")
ROUGH_NETWORK = Profile(
    name="rough network",
    weather=Weather(lost=0.08, doubled=0.1, slow=0.1),
    worker_is_cut_off_s=8.0,
)
DYING_COORDINATOR = Profile(
    name="dying coordinator",
    weather=Weather(lost=0.01, doubled=0.02, slow=0.03),
    coordinator_dies_s=2.5,
    coordinator_stops_s=15.0,
)
DYING_WORKERS = Profile(
    name="dying workers",
    workers=4,
    worker_dies_s=3.0,
    worker_doubles_s=6.0,
    worker_leaves_s=8.0,
)
SLEEPING_WORKERS = Profile(
    name="sleeping workers",
    workers=4,
    worker_pauses_s=2.0,
    worker_doubles_s=5.0,
    weather=Weather(slow=0.05),
)
SLEEPING_COORDINATOR = Profile(
    name="sleeping coordinator",
    intervals_ms=(500, 1_000, 2_000),
    coordinator_pauses_s=3.0,
    duration_s=20.0,
)
WRONG_CLOCK = Profile(
    name="wrong clock",
    clock_jumps_s=3.0,
    coordinator_dies_s=8.0,
    worker_dies_s=10.0,
    weather=Weather(lost=0.02, slow=0.03),
)
FULL_DISK = Profile(
    name="full disk",
    disk_is_full_s=2.0,
    coordinator_dies_s=6.0,
    weather=Weather(doubled=0.05, slow=0.02),
)
SHORT_MEMORY = Profile(
    name="short memory",
    history_keep_ms=4_000,
    coordinator_dies_s=5.0,
    clock_jumps_s=6.0,
    weather=Weather(lost=0.02, doubled=0.05),
)
CROWD = Profile(
    name="crowd",
    workers=12,
    submitters=3,
    duration_s=12.0,
    worker_dies_s=1.0,
    worker_pauses_s=3.0,
    worker_is_cut_off_s=3.0,
    intervals_ms=(1_000,),
)
BAD_HANDLERS = Profile(
    name="bad handlers", failures=0.7, worker_dies_s=8.0, weather=Weather(slow=0.02)
)
SLOW_HANDLERS = Profile(
    name="slow handlers", workers=2, slow_handlers=0.7, timeouts=0.8, weather=Weather(slow=0.1)
)
UNIQUE_TASKS = Profile(
    name="unique tasks",
    submitters=1,
    unique_submitters=2,
    failures=0.3,
    coordinator_dies_s=6.0,
    disk_is_full_s=8.0,
    worker_dies_s=6.0,
    worker_leaves_s=8.0,
    weather=Weather(lost=0.02, doubled=0.04, slow=0.03),
)
# Has a test of its own. No second process comes under one id, and no worker leaves while it works,
# because both give their leases up while their handlers still run.
LIMITED_TASKS = Profile(
    name="limited tasks",
    workers=4,
    submitters=1,
    limited_submitters=2,
    failures=0.2,
    timeouts=0.0,
    coordinator_dies_s=4.0,
    disk_is_full_s=10.0,
    worker_dies_s=6.0,
    worker_pauses_s=6.0,
    worker_is_cut_off_s=8.0,
    weather=Weather(lost=0.02, doubled=0.03),
)
EVERYTHING = Profile(
    name="everything",
    workers=4,
    weather=Weather(lost=0.03, doubled=0.04, slow=0.04),
    coordinator_dies_s=6.0,
    coordinator_stops_s=20.0,
    coordinator_pauses_s=8.0,
    disk_is_full_s=10.0,
    clock_jumps_s=8.0,
    worker_dies_s=6.0,
    worker_pauses_s=6.0,
    worker_doubles_s=10.0,
    worker_leaves_s=15.0,
    worker_is_cut_off_s=8.0,
)

PROFILES = (
    EVERYTHING,
    ROUGH_NETWORK,
    DYING_COORDINATOR,
    DYING_WORKERS,
    SLEEPING_WORKERS,
    SLEEPING_COORDINATOR,
    WRONG_CLOCK,
    FULL_DISK,
    SHORT_MEMORY,
    CROWD,
    BAD_HANDLERS,
    SLOW_HANDLERS,
    CALM,
    UNIQUE_TASKS,
)


def profile_of(seed: int) -> Profile:
    return PROFILES[seed % len(PROFILES)]
