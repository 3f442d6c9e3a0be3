"""One coordinator, some members, a network between them: does it all hold?

A schedule is a function of its seed and profile. Faults go on for a while; then they heal, and
everything must settle within a bounded time.
"""

from collections import deque
from dataclasses import dataclass
from random import Random

from rota.core.shards.commands import ConfigureService, DrainMember
from rota.core.shards.decisions import ReleaseShards
from tests.simulation.shards.coordinator import SERVICE, SimulatedCoordinator
from tests.simulation.shards.faults import Faults
from tests.simulation.shards.ledger import demand
from tests.simulation.shards.members import Member
from tests.simulation.shards.network import CALM, Network, Weather
from tests.simulation.shards.old_members import OldMember
from tests.simulation.shards.processes import Process
from tests.simulation.shards.profiles import Profile
from tests.simulation.shards.settling import unsettled
from tests.simulation.shards.timeline import START_MS, MemberClock, Timeline
from tests.simulation.trace import Violation

SHOWN_LINES = 60


@dataclass(frozen=True)
class Outcome:
    """How a schedule went that held."""

    events: int
    commits: int
    generation: int
    epochs: tuple[int, ...]
    owners: tuple[str | None, ...]
    accepted: int
    refused: int
    starts: int
    moved: int
    settled_after_ms: int


class World:
    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.dice = Random(f"{seed}/{profile.name}")
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.dice, profile.weather)
        self.processes: list[Process] = []
        self.doubled: set[str] = set()  # ids that two processes have had at once
        self.is_healing = False
        self._lines: deque[tuple[object, ...]] = deque(maxlen=SHOWN_LINES)
        self._incarnations = 0
        self._names = 0
        self.coordinator = SimulatedCoordinator(
            self.timeline, self.network, self.dice, profile.policy, self
        )

    # --- what everybody uses ----------------------------------------------------------------

    def note(self, *what: object) -> None:
        self._lines.append((self.timeline.now_ms - START_MS, *what))

    def story(self) -> str:
        return "\n".join(" ".join(map(str, line)) for line in self._lines)

    def new_incarnation(self) -> str:
        if not self.profile.has_numbers:
            return f"{self.dice.getrandbits(64):x}"
        self._incarnations += 1
        return str(self._incarnations)

    def new_clock(self) -> MemberClock:
        drift = self.profile.policy.drift
        rate = self.dice.choice((1 - drift, 1.0, 1 + drift))
        return MemberClock(self.timeline, rate=rate, zero_ms=self.dice.randrange(-(10**6), 10**6))

    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.is_dead]

    def add_member(self, worker_id: str | None = None) -> None:
        profile, dice = self.profile, self.dice
        is_old = worker_id is None and self._names < profile.old_members
        if worker_id is None:
            worker_id = f"{'old' if is_old else 'new'}-{self._names}"
            self._names += 1
        self._begin(worker_id, self._named_count(), weight=dice.choice(profile.weights))

    def replace(self, process: Process) -> None:
        """A new process in the place of one that has ended, under its id."""
        is_there = any(one.worker_id == process.worker_id for one in self.living())
        if not self.is_healing and not is_there:
            self._begin(process.worker_id, process.shard_count, weight=1_000)

    def _begin(self, worker_id: str, shard_count: int, *, weight: int) -> None:
        self.note(worker_id, "begins")
        process: Process
        if worker_id.startswith("old"):
            is_deaf = not self.is_healing and self.dice.random() < self.profile.deaf
            process = OldMember(self, worker_id, shard_count, is_deaf=is_deaf)
        else:
            process = Member(self, worker_id, shard_count, weight=weight)
        self.processes = [one for one in self.processes if not one.is_dead]
        self.processes.append(process)

    def _named_count(self) -> int:
        return next((one.shard_count for one in self.living()), self.profile.shards)

    # --- what must never be -----------------------------------------------------------------

    def check_alone(self, one: Process) -> None:
        """No two workers ever act on one shard at the same moment."""
        if not self._counts(one):
            return
        mine = one.shards()
        for other in self.processes:
            if other.worker_id == one.worker_id or not self._counts(other):
                continue
            for shard in mine & other.shards():
                both = one.is_acting(shard) and other.is_acting(shard)
                demand(not both, "two act on one shard:", shard, one.worker_id, other.worker_id)

    def look_at_release(self, release: ReleaseShards) -> None:
        """What is released, nobody acts on any more, unless it stays with the same name."""
        rows = self.coordinator.ledger.rows
        moved = [shard for shard in release.shards if rows[shard].owner != release.worker_id]
        for process in self.processes:
            if moved and process.worker_id == release.worker_id and self._counts(process):
                acting = [shard for shard in moved if process.is_acting(shard)]
                demand(not acting, "released while acted on:", acting, process.worker_id)

    def _counts(self, one: Process) -> bool:
        # Two processes under one id break the rule that an id is exclusive.
        if one.worker_id in self.doubled:
            return False
        return one.is_new_protocol or self.profile.is_orderly

    # --- the schedule -----------------------------------------------------------------------

    def run(self) -> int:
        for _ in range(self.profile.members):
            self.add_member()
        Faults(self).start()
        self.timeline.run_until(START_MS + self.profile.duration_ms)
        self._heal()
        return self._settle()

    def _heal(self) -> None:
        self.note("the world heals")
        self.is_healing = True
        orderly = self.network.weather.is_orderly
        self.network.weather = Weather(is_orderly=True) if orderly else CALM
        self.network.cut_off.clear()
        self.coordinator.dies_at = None
        self.coordinator.start()
        for process in self.living():
            process.wake()
            if process.is_zombie or (isinstance(process, OldMember) and process.is_deaf):
                process.die()
        if not any(self._stays(process) for process in self.living()):
            self.add_member()
        # What is under way from before may still arrive, and what was drained stays drained.
        self.timeline.run_until(max(self.network.last_arrival_ms, self.timeline.now_ms))
        count = self._named_count()
        for process in self.living():
            process.rename_count(count)
            if not self._stays(process):
                continue
            event = DrainMember(service=SERVICE, worker_id=process.worker_id, draining=False)
            self.coordinator.operate(event)
        self.coordinator.operate(ConfigureService(service=SERVICE, shard_count=count))

    def _stays(self, process: Process) -> bool:
        return not (isinstance(process, Member) and process.is_leaving)

    def _settle(self) -> int:
        """Wait until all is well, and stays so."""
        policy, timeline = self.profile.policy, self.timeline
        begin_ms = timeline.now_ms
        limit_ms = begin_ms + policy.stuck_ms + 3 * policy.expiry_ms + self.profile.dawdle_ms
        generation = -1
        while problem := self._unsettled() or self._changed(generation):
            demand(timeline.now_ms < limit_ms, "not settled long after the faults:", problem)
            generation = self.coordinator.service.generation
            timeline.run_until(timeline.now_ms + policy.heartbeat_interval_ms)
        self.coordinator.ledger.check_same(self.coordinator.service, self.coordinator.now_ms())
        return timeline.now_ms - begin_ms

    def _unsettled(self) -> str | None:
        return unsettled(self.coordinator.service, self.living())

    def _changed(self, generation: int) -> str | None:
        is_same = self.coordinator.service.generation == generation
        return None if is_same else "something changes all the time"


def simulate(seed: int, profile: Profile) -> Outcome:
    """Run one schedule; raises what it broke, with the seed and the last that happened."""
    world = World(seed, profile)
    try:
        settled_after_ms = world.run()
    except Exception as error:
        raise Violation(
            f"{error!r} in seed {seed}, profile {profile.name!r}; the last that happened:\n"
            f"{world.story()}"
        ) from error
    coordinator = world.coordinator
    return Outcome(
        events=world.timeline.events,
        commits=coordinator.ledger.commits,
        generation=coordinator.service.generation,
        epochs=tuple(coordinator.service.epochs),
        owners=tuple(coordinator.service.owners),
        accepted=coordinator.accepted,
        refused=coordinator.refused,
        starts=coordinator.starts,
        moved=coordinator.ledger.moved,
        settled_after_ms=settled_after_ms,
    )
