"""One coordinator, some clients, a resource, a network between them: does it all hold?"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.kv.clients import LOCK, TTL_MS, WAIT_MS, Client
from tests.simulation.kv.coordinator import SimulatedCoordinator
from tests.simulation.kv.profiles import Profile
from tests.simulation.kv.resource import Resource
from tests.simulation.shards.ledger import demand
from tests.simulation.shards.network import CALM, Network
from tests.simulation.shards.timeline import START_MS, Timeline
from tests.simulation.trace import Violation

SHOWN_LINES = 40
LOOK_MS = 1_000


@dataclass(frozen=True)
class Outcome:
    """How a schedule went that held."""

    commits: int
    fences: int
    accepted: int
    refused: int
    additions: int
    starts: int


class World:
    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.dice = Random(f"{seed}/{profile.name}")
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.dice, profile.weather)
        self.coordinator = SimulatedCoordinator(
            self.timeline, self.network, self.dice, busy_ms=profile.busy_ms
        )
        self.resource = Resource()
        self.clients: list[Client] = []  # also those that are dead
        self._is_healing = False
        self._lines: deque[tuple[object, ...]] = deque(maxlen=SHOWN_LINES)

    def note(self, *what: object) -> None:
        self._lines.append((self.timeline.now_ms - START_MS, *what))

    def story(self) -> str:
        return "\n".join(" ".join(map(str, line)) for line in self._lines)

    def living(self) -> list[Client]:
        return [client for client in self.clients if not client.is_dead]

    # --- what must never be ---------------------------------------------------------------------

    def check_alone(self, one: Client) -> None:
        """No two ever believe at one moment that they have the lock."""
        if one.is_holding():
            others = [other.name for other in self.clients if other.is_holding() and other != one]
            demand(not others, "two have the lock:", one.name, *others)

    # --- faults ---------------------------------------------------------------------------------

    def _expect(self, mean_ms: int, strike: Callable[[], None]) -> None:
        if mean_ms:
            wait_ms = int(self.dice.expovariate(1 / mean_ms)) + 1
            self.timeline.after(wait_ms, self._strike, mean_ms, strike)

    def _strike(self, mean_ms: int, strike: Callable[[], None]) -> None:
        if not self._is_healing:
            strike()
            self._expect(mean_ms, strike)

    def _add_client(self) -> None:
        self.clients.append(Client(self, f"c{len(self.clients)}"))

    def _kill_client(self) -> None:
        client = self.dice.choice(self.living())
        self.note(client.name, "dies")
        client.die()
        self._add_client()

    def _put_to_sleep(self) -> None:
        client = self.dice.choice(self.living())
        duration_ms = self.dice.randint(1, 3 * TTL_MS)
        self.note(client.name, "sleeps", duration_ms)
        client.sleep(duration_ms)

    def _kill_coordinator(self) -> None:
        self.note("the coordinator dies")
        if self.dice.random() < 0.5:
            self.coordinator.dies_next = True
        else:
            self.coordinator.die()
        self.timeline.after(self.dice.randint(100, 3 * TTL_MS), self.coordinator.start)

    # --- the schedule ---------------------------------------------------------------------------

    def run(self) -> None:
        profile = self.profile
        for _ in range(profile.clients):
            self._add_client()
        self._expect(profile.client_dies_ms, self._kill_client)
        self._expect(profile.client_sleeps_ms, self._put_to_sleep)
        self._expect(profile.coordinator_dies_ms, self._kill_coordinator)
        self.timeline.run_until(START_MS + profile.duration_ms)
        self._heal()
        self._end()

    def _heal(self) -> None:
        """Everybody has the lock soon, once nothing goes wrong any more."""
        self.note("the world heals")
        self._is_healing = True
        self.network.weather = CALM
        self.coordinator.dies_next = False
        self.coordinator.start()
        # What was under way and who was asleep may come late.
        self.timeline.run_until(max(self.timeline.now_ms, self.network.last_arrival_ms))
        waiting = {client: client.tenures for client in self.living()}
        turn_ms = TTL_MS + WAIT_MS + self.profile.hold_ms
        limit_ms = self.timeline.now_ms + 6 * TTL_MS + 3 * len(waiting) * turn_ms
        while waiting:
            names = [client.name for client in waiting]
            demand(self.timeline.now_ms < limit_ms, "never had the lock again:", *names)
            self.timeline.run_until(self.timeline.now_ms + LOOK_MS)
            waiting = {one: had for one, had in waiting.items() if one.tenures == had}

    def _end(self) -> None:
        """When all are gone, nothing is left of the lock, and every addition is in the value."""
        for client in self.living():
            client.die()
        self.timeline.run_until(self.timeline.now_ms + (len(self.clients) + 2) * TTL_MS + 20_000)
        ledger = self.coordinator.ledger
        demand(LOCK not in ledger.locks, "a lock that nobody wants is still there")
        known = sum(client.acknowledged for client in self.clients)
        unknown = sum(client.unknown for client in self.clients)
        demand(
            known <= ledger.additions <= known + unknown,
            "additions were lost or made up:",
            ledger.additions,
            known,
            unknown,
        )


def simulate(seed: int, profile: Profile) -> Outcome:
    """Run one schedule; raises what it broke, with the seed and the last that happened."""
    world = World(seed, profile)
    try:
        world.run()
    except Exception as error:
        raise Violation(
            f"{error!r} in seed {seed}, profile {profile.name!r}; the last that happened:\n"
            f"{world.story()}"
        ) from error
    ledger = world.coordinator.ledger
    return Outcome(
        commits=ledger.commits,
        fences=len(ledger.owners),
        accepted=world.resource.accepted,
        refused=world.resource.refused,
        additions=ledger.additions,
        starts=world.coordinator.starts,
    )
