"""What goes wrong, and when? Each kind of fault strikes again and again until the world heals."""

from collections.abc import Callable
from typing import Protocol

from rota.core.shards.commands import ConfigureService, DrainMember
from tests.simulation.shards.coordinator import SERVICE, Moment
from tests.simulation.shards.members import Member
from tests.simulation.shards.network import Direction
from tests.simulation.shards.processes import Process, Surroundings

MOST_SHARDS = 16
MOST_MEMBERS = 8


class Troubled(Surroundings, Protocol):
    """What faults need of the world."""

    doubled: set[str]

    def living(self) -> list[Process]: ...

    def add_member(self, worker_id: str | None = None) -> None: ...

    def replace(self, process: Process) -> None: ...


class Faults:
    def __init__(self, world: Troubled) -> None:
        self._world = world
        self._dice = world.dice

    def start(self) -> None:
        profile = self._world.profile
        kinds: list[tuple[int, Callable[[], None]]] = [
            (profile.member_dies_ms, self._kill_member),
            (profile.member_pauses_ms, self._pause_member),
            (profile.member_is_cut_off_ms, self._cut_off_member),
            (profile.member_drains_ms, self._drain_member),
            (profile.member_leaves_ms, self._send_member_away),
            (profile.member_doubles_ms, self._double_member),
            (profile.member_joins_ms, self._add_member),
            (profile.operator_drains_ms, self._drain_by_operator),
            (profile.count_changes_ms, self._change_count),
            (profile.coordinator_dies_ms, self._kill_coordinator),
            (profile.coordinator_pauses_ms, self._pause_coordinator),
            (profile.clock_jumps_ms, self._turn_clock),
        ]
        for mean_ms, strike in kinds:
            if mean_ms:
                self._expect(mean_ms, strike)

    def _expect(self, mean_ms: int, strike: Callable[[], None]) -> None:
        wait_ms = int(self._dice.expovariate(1 / mean_ms)) + 1
        self._world.timeline.after(wait_ms, self._strike, mean_ms, strike)

    def _strike(self, mean_ms: int, strike: Callable[[], None]) -> None:
        if not self._world.is_healing:
            strike()
            self._expect(mean_ms, strike)

    def _some_member(self) -> Process | None:
        running = [one for one in self._world.living() if not one.is_paused and not one.is_zombie]
        return self._dice.choice(running) if running else None

    def _duration_ms(self) -> int:
        """Mostly short, sometimes longer than any lease."""
        shortest_ms, longest_ms = self._world.profile.short_pause_ms, self._world.profile.pause_ms
        chosen_ms = self._dice.choice((1_500, longest_ms // 2, longest_ms))
        return self._dice.randint(shortest_ms, max(shortest_ms, chosen_ms))

    # --- members --------------------------------------------------------------------------------

    def _kill_member(self) -> None:
        member = self._some_member()
        if member is not None:
            self._world.note(member.worker_id, "dies")
            member.die()
            self._world.timeline.after(self._duration_ms() // 2, self._world.replace, member)

    def _pause_member(self) -> None:
        member = self._some_member()
        if member is not None:
            self._let_sleep(member)

    def _let_sleep(self, member: Process) -> None:
        duration_ms = self._duration_ms()
        self._world.note(member.worker_id, "sleeps", duration_ms)
        member.pause()
        self._world.timeline.after(duration_ms, member.wake)

    def _cut_off_member(self) -> None:
        member = self._some_member()
        if member is not None:
            ways = self._dice.choice(([Direction.IN], [Direction.OUT], list(Direction)))
            cut = {(member.worker_id, way) for way in ways}
            duration_ms = self._duration_ms()
            self._world.note(member.worker_id, "is cut off", ways, duration_ms)
            self._world.network.cut_off |= cut
            self._world.timeline.after(duration_ms, self._reconnect, cut)

    def _reconnect(self, cut: set[tuple[str, Direction]]) -> None:
        self._world.network.cut_off -= cut

    def _drain_member(self) -> None:
        member = self._some_member()
        if isinstance(member, Member):
            self._world.note(member.worker_id, "drains")
            member.drain()
            self._world.timeline.after(self._duration_ms(), self._world.replace, member)

    def _send_member_away(self) -> None:
        member = self._some_member()
        if member is not None:
            self._world.note(member.worker_id, "leaves")
            member.leave()
            self._world.timeline.after(self._duration_ms(), self._world.replace, member)

    def _double_member(self) -> None:
        """A second process under the same id, while the first one goes on or sleeps."""
        member = self._some_member()
        if isinstance(member, Member):
            self._world.note(member.worker_id, "is doubled")
            member.is_zombie = True
            self._world.doubled.add(member.worker_id)
            if self._dice.random() < 0.5:
                self._let_sleep(member)
            self._world.add_member(member.worker_id)

    def _add_member(self) -> None:
        if len(self._world.living()) < MOST_MEMBERS:
            self._world.add_member()

    # --- operators ------------------------------------------------------------------------------

    def _drain_by_operator(self) -> None:
        """Now this one, now that one, and soon not any more."""
        member = self._some_member()
        known = self._world.coordinator.service.members
        if member is not None and member.worker_id in known:
            draining = not known[member.worker_id].draining
            self._world.note(member.worker_id, "is drained", draining)
            event = DrainMember(service=SERVICE, worker_id=member.worker_id, draining=draining)
            self._world.coordinator.operate(event)

    def _change_count(self) -> None:
        """By a member that names another one from now on, or by an operator."""
        count = self._dice.randrange(1, MOST_SHARDS)
        member = self._some_member()
        if member is not None and self._dice.random() < 0.7:
            self._world.note(member.worker_id, "names", count)
            member.rename_count(count)
        else:
            self._world.note("operator names", count)
            event = ConfigureService(service=SERVICE, shard_count=count)
            self._world.coordinator.operate(event)

    # --- the coordinator ------------------------------------------------------------------------

    def _kill_coordinator(self) -> None:
        coordinator = self._world.coordinator
        moment = self._dice.choice((None, *Moment))
        if moment is None:
            coordinator.die()
        else:
            coordinator.dies_at = moment

    def _pause_coordinator(self) -> None:
        self._world.coordinator.pause(self._duration_ms())

    def _turn_clock(self) -> None:
        by_ms = self._dice.choice(self._world.profile.jumps_ms)
        self._world.coordinator.turn_clock(by_ms)
