"""Which faults, and how many? Each profile is a kind of bad minute."""

from dataclasses import dataclass, field

from rota.core.shards.members import ShardPolicy
from tests.simulation.shards.network import Weather


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    duration_ms: int = 60_000  # of the faults; the healing comes after
    members: int = 4
    old_members: int = 0  # of them, speaking protocol 1
    shards: int = 10
    weights: tuple[int, ...] = (1_000,)
    weather: Weather = field(default_factory=Weather)
    policy: ShardPolicy = field(default_factory=ShardPolicy)
    has_numbers: bool = True  # for incarnations; otherwise names, which have no order
    callback_ms: int = 300  # a callback takes at most so long
    dawdling: float = 0.0  # share of the callbacks that take up to dawdle_ms
    dawdle_ms: int = 6_000
    deaf: float = 0.0  # share of old members that read only their first answer
    pause_ms: int = 40_000  # the longest one
    short_pause_ms: int = 1  # the shortest one

    # How often, on average, in milliseconds; 0: never.
    member_dies_ms: int = 0
    member_pauses_ms: int = 0
    member_is_cut_off_ms: int = 0
    member_drains_ms: int = 0
    member_leaves_ms: int = 0
    member_doubles_ms: int = 0  # another process begins under its id, while it goes on
    member_joins_ms: int = 0
    operator_drains_ms: int = 0
    count_changes_ms: int = 0
    coordinator_dies_ms: int = 0
    coordinator_pauses_ms: int = 0
    clock_jumps_ms: int = 0  # of the coordinator

    # Forward only by so much that it is noticed: see `ShardPolicy.pause_ms`.
    jumps_ms: tuple[int, ...] = (-60_000, -5_000, -300, 5_000, 60_000)

    @property
    def is_orderly(self) -> bool:
        """Whether old clients, too, never act on what others act on.

        They go by what was said last, and for ever: nothing can be promised unless all they are
        told arrives, in order, and before they beat again.
        """
        return self.weather.is_orderly


ROUGH = Weather(lost=0.1, doubled=0.1, slow=0.1)
WORST = Weather(lost=0.3, doubled=0.3, slow=0.2)

CALM = Profile(
    name="calm", member_joins_ms=15_000, member_drains_ms=15_000, member_leaves_ms=20_000
)
ROUGH_NETWORK = Profile(
    name="rough network",
    weather=WORST,
    member_is_cut_off_ms=20_000,
    member_joins_ms=20_000,
    member_drains_ms=20_000,
    dawdling=0.2,
)
DYING_COORDINATOR = Profile(
    name="dying coordinator",
    weather=Weather(lost=0.05, doubled=0.1, slow=0.1),
    coordinator_dies_ms=8_000,
    member_joins_ms=15_000,
    member_drains_ms=15_000,
    member_dies_ms=25_000,
    count_changes_ms=30_000,
)
SLEEPING_COORDINATOR = Profile(
    name="sleeping coordinator",
    weather=Weather(slow=0.05),
    coordinator_pauses_ms=15_000,
    member_joins_ms=15_000,
    member_drains_ms=20_000,
    member_pauses_ms=20_000,
)
DYING_MEMBERS = Profile(
    name="dying members",
    weather=Weather(lost=0.02, doubled=0.1, slow=0.1),
    members=5,
    member_dies_ms=8_000,
    member_leaves_ms=15_000,
    member_joins_ms=15_000,
)
NAMED_INCARNATIONS = Profile(
    name="incarnations without order",
    weather=Weather(lost=0.05, doubled=0.2, slow=0.3, slow_ms=8_000),
    duration_ms=40_000,
    has_numbers=False,
    pause_ms=3_000,
    callback_ms=1_000,
    member_dies_ms=2_500,
    operator_drains_ms=1_500,
)
SLEEPING_MEMBERS = Profile(
    name="sleeping members",
    weather=Weather(slow=0.05),
    member_pauses_ms=6_000,
    member_joins_ms=20_000,
    dawdling=0.1,
)
DOUBLED_MEMBERS = Profile(
    name="doubled members",
    weather=Weather(lost=0.02, doubled=0.1, slow=0.1),
    member_doubles_ms=10_000,
    member_pauses_ms=15_000,
    member_joins_ms=15_000,
)
CUT_OFF_MEMBERS = Profile(
    name="cut off members",
    weather=Weather(lost=0.05, slow=0.05),
    member_is_cut_off_ms=6_000,
    member_drains_ms=20_000,
)
DAWDLING_MEMBERS = Profile(
    name="dawdling members",
    weather=Weather(slow=0.05),
    callback_ms=2_000,
    dawdling=0.3,
    dawdle_ms=60_000,
    member_joins_ms=8_000,
    member_drains_ms=15_000,
)
GROWING = Profile(
    name="growing and shrinking",
    weather=ROUGH,
    count_changes_ms=8_000,
    member_joins_ms=20_000,
    coordinator_dies_ms=25_000,
)
FICKLE = Profile(
    name="fickle operators",
    weather=Weather(lost=0.1, doubled=0.2, slow=0.3, slow_ms=6_000),
    policy=ShardPolicy(heartbeat_interval_ms=1_500),
    duration_ms=40_000,
    shards=6,
    operator_drains_ms=700,
    member_joins_ms=25_000,
    count_changes_ms=20_000,
    callback_ms=800,
)
SLUGGISH = Profile(
    name="sluggish network",
    weather=Weather(slow=0.5, slow_ms=16_000),
    pause_ms=16_000,
    member_pauses_ms=3_000,
    member_is_cut_off_ms=5_000,
    member_joins_ms=30_000,
)
DOZING_MEMBERS = Profile(
    name="dozing members",
    weather=Weather(slow=0.4, slow_from_ms=9_000, slow_ms=15_000, are_answers_quick=True),
    pause_ms=14_000,
    short_pause_ms=9_000,
    member_pauses_ms=3_000,
)
WRONG_CLOCKS = Profile(
    name="wrong clocks",
    weather=Weather(lost=0.05, slow=0.1, slow_ms=5_000),
    policy=ShardPolicy(drift=0.1),
    member_pauses_ms=10_000,
    member_is_cut_off_ms=6_000,
)
TURNED_CLOCK = Profile(
    name="turned clock",
    weather=Weather(lost=0.05, slow=0.1, slow_ms=5_000),
    clock_jumps_ms=8_000,
    coordinator_dies_ms=20_000,
    member_dies_ms=15_000,
    member_pauses_ms=10_000,
    member_is_cut_off_ms=10_000,
)
WEIGHED = Profile(
    name="weighed members",
    shards=17,
    weights=(500, 1_000, 2_000),
    weather=Weather(lost=0.05, slow=0.05),
    member_dies_ms=15_000,
    member_joins_ms=15_000,
    operator_drains_ms=15_000,
)
MIXED = Profile(
    name="mixed protocols",
    weather=ROUGH,
    members=5,
    old_members=2,
    member_dies_ms=20_000,
    member_pauses_ms=20_000,
    member_is_cut_off_ms=25_000,
    member_joins_ms=20_000,
    coordinator_dies_ms=25_000,
)
ORDERLY = Profile(
    name="old members in good order",
    weather=Weather(is_orderly=True, quick_ms=2_000),
    members=5,
    old_members=3,
    member_dies_ms=15_000,
    member_joins_ms=20_000,
    member_drains_ms=20_000,
    operator_drains_ms=800,
    count_changes_ms=30_000,
    coordinator_dies_ms=30_000,
    coordinator_pauses_ms=25_000,
)
DEAF = Profile(
    name="deaf old members",
    weather=Weather(slow=0.02),
    members=5,
    old_members=3,
    deaf=0.6,
    duration_ms=80_000,
    member_joins_ms=15_000,
    member_dies_ms=30_000,
)
FORCING = Profile(
    name="deaf old members, forced",
    weather=Weather(slow=0.02),
    policy=ShardPolicy(when_stuck="force"),
    members=5,
    old_members=3,
    deaf=0.6,
    duration_ms=80_000,
    member_joins_ms=15_000,
    member_dies_ms=30_000,
)
EVERYTHING = Profile(
    name="everything",
    weather=ROUGH,
    members=5,
    old_members=1,
    dawdling=0.1,
    member_dies_ms=20_000,
    member_pauses_ms=20_000,
    member_is_cut_off_ms=20_000,
    member_drains_ms=25_000,
    member_leaves_ms=40_000,
    member_joins_ms=25_000,
    operator_drains_ms=30_000,
    count_changes_ms=30_000,
    coordinator_dies_ms=20_000,
    coordinator_pauses_ms=40_000,
)

PROFILES = (
    EVERYTHING,
    CALM,
    ROUGH_NETWORK,
    DYING_COORDINATOR,
    SLEEPING_COORDINATOR,
    DYING_MEMBERS,
    NAMED_INCARNATIONS,
    SLEEPING_MEMBERS,
    DOUBLED_MEMBERS,
    CUT_OFF_MEMBERS,
    DAWDLING_MEMBERS,
    GROWING,
    FICKLE,
    SLUGGISH,
    DOZING_MEMBERS,
    WRONG_CLOCKS,
    TURNED_CLOCK,
    WEIGHED,
    MIXED,
    ORDERLY,
    DEAF,
    FORCING,
)


def profile_of(seed: int) -> Profile:
    return PROFILES[seed % len(PROFILES)]
