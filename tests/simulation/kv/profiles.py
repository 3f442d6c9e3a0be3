"""Which faults, and how many? Each profile is a kind of bad minute."""

from dataclasses import dataclass, field

from tests.simulation.shards.network import Weather


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    duration_ms: int = 40_000  # of the faults; the healing comes after
    clients: int = 4
    weather: Weather = field(default_factory=Weather)
    busy_ms: int = 20  # an answer to a caller in line leaves at most so long after its commit
    patience_ms: int = 500  # for an answer, beyond what the coordinator was asked to wait
    hold_ms: int = 6_000  # a lock is held for at most so long
    new_owners: float = 0.3  # share of wishes under a name that is new
    naps: float = 0.0  # share of writes before which the process sleeps
    deletes: float = 0.1  # share of additions in place of which the value is deleted

    # How often, on average, in milliseconds; 0: never.
    client_dies_ms: int = 0
    client_sleeps_ms: int = 0
    coordinator_dies_ms: int = 0


CALM = Profile(name="calm")
ROUGH_NETWORK = Profile(
    name="rough network", weather=Weather(lost=0.15, doubled=0.2, slow=0.15, slow_ms=8_000)
)
IMPATIENT = Profile(
    name="impatient clients",
    weather=Weather(slow=0.5, slow_ms=1_500),
    busy_ms=300,
    patience_ms=100,
    hold_ms=2_000,
    new_owners=0.0,
)
SLEEPING = Profile(
    name="sleeping clients", naps=0.1, client_sleeps_ms=4_000, weather=Weather(slow=0.05)
)
DYING_COORDINATOR = Profile(
    name="dying coordinator",
    weather=Weather(lost=0.05, doubled=0.1, slow=0.05, slow_ms=5_000),
    coordinator_dies_ms=5_000,
    client_dies_ms=20_000,
)
FICKLE = Profile(
    name="values that come and go",
    clients=6,
    weather=Weather(slow=0.3, slow_ms=3_000),
    patience_ms=4_000,
    deletes=0.5,
)
EVERYTHING = Profile(
    name="everything",
    clients=5,
    weather=Weather(lost=0.1, doubled=0.1, slow=0.1, slow_ms=6_000),
    naps=0.05,
    client_dies_ms=10_000,
    client_sleeps_ms=8_000,
    coordinator_dies_ms=8_000,
)

PROFILES = (EVERYTHING, CALM, ROUGH_NETWORK, IMPATIENT, SLEEPING, DYING_COORDINATOR, FICKLE)


def profile_of(seed: int) -> Profile:
    return PROFILES[seed % len(PROFILES)]
