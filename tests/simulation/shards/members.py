"""Members of protocol 2: a driver round `Holding`, as plain as can be."""

from typing import assert_never

from rota.core.shards.commands import RegisterMember
from rota.core.shards.member_client import Assigned, Loss, Lost, MemberClient, Revoked, Send, Step
from rota.core.shards.members import PROTOCOL, Assignment
from tests.simulation.shards.coordinator import SERVICE, Effect
from tests.simulation.shards.network import Direction
from tests.simulation.shards.processes import Process, Surroundings

BETWEEN_EFFECTS_MS = 1_500


class Member(Process):
    is_new_protocol = True

    def __init__(
        self, world: Surroundings, worker_id: str, shard_count: int, *, weight: int
    ) -> None:
        super().__init__(world, worker_id, shard_count)
        self.weight = weight
        self.is_leaving = False
        self._clock = world.new_clock()
        self._armed_ms = 0
        self.holding = self._begun()
        self._arm()
        self._later(world.dice.randrange(BETWEEN_EFFECTS_MS), self._act)

    def _begun(self) -> MemberClient:
        applicant = RegisterMember(
            service=SERVICE,
            worker_id=self.worker_id,
            shard_count=self.shard_count,
            protocol=PROTOCOL,
            incarnation=self.world.new_incarnation(),
            weight=self.weight,
        )
        drift = self.world.profile.policy.drift
        return MemberClient(applicant, now_ms=self._clock.now_ms(), drift=drift)

    # --- asking -----------------------------------------------------------------------------

    def shards(self) -> set[int]:
        return set(self.holding.held)

    def is_acting(self, shard: int) -> bool:
        return not self.is_dead and self.holding.is_acting(shard, self._clock.now_ms())

    # --- what others ask of it ----------------------------------------------------------------

    def drain(self) -> None:
        self.is_leaving = True
        self._do(self._drain)

    def rename_count(self, shard_count: int) -> None:
        super().rename_count(shard_count)
        self.holding.shard_count = shard_count

    def _drain(self) -> None:
        self.holding.drain()
        self._go_on([])

    def _leave(self) -> None:
        self._go_on(self.holding.leave())
        self.die()

    # --- what it does -------------------------------------------------------------------------

    def _receive(self, assignment: Assignment) -> None:
        self._go_on(self.holding.receive(assignment, self._clock.now_ms()))
        self.world.check_alone(self)

    def _tick(self, armed_ms: int) -> None:
        if armed_ms == self._armed_ms:
            self._armed_ms = 0
            self._go_on(self.holding.tick(self._clock.now_ms()))

    def _activate(self, holding: MemberClient, shard: int) -> None:
        self._go_on(holding.activate(shard))

    def _let_go(self, holding: MemberClient, shard: int) -> None:
        self._go_on(holding.let_go(shard))
        self.world.check_alone(self)

    def _act(self) -> None:
        """An effect on some shard, after a look at the clock and not otherwise."""
        world, holding = self.world, self.holding
        self._later(1 + world.dice.randrange(BETWEEN_EFFECTS_MS), self._act)
        if not holding.held:
            return
        shard = world.dice.choice(list(holding.held))
        epoch = holding.epoch_of(shard)
        if epoch is not None and self.is_acting(shard):
            effect = Effect(shard, epoch, self.worker_id, holding.applicant.incarnation)
            world.network.send(self.worker_id, Direction.IN, world.coordinator.take, effect)

    # --- carrying out -------------------------------------------------------------------------

    def _go_on(self, steps: list[Step]) -> None:
        for step in steps:
            self._carry_out(step)
        if self.is_leaving and self.holding.may_leave:
            self.is_leaving = False
            self._leave()
        self._arm()

    def _carry_out(self, step: Step) -> None:
        match step:
            case Send(message=message):
                self._send(message)
            case Assigned(shard=shard):
                self._later(self._callback_ms(), self._activate, self.holding, shard)
            case Revoked(shard=shard):
                self._later(self._callback_ms(), self._let_go, self.holding, shard)
            case Lost():
                self._lose(step)
            case _:
                assert_never(step)

    def _lose(self, lost: Lost) -> None:
        self.world.note(self.worker_id, "lost", lost)
        is_wise = self.is_zombie and lost.loss is Loss.FENCED and self.world.dice.random() < 0.7
        if self.is_leaving or is_wise:
            self.die()  # nothing keeps it, or its name is another's; some never learn
        else:
            self.holding = self._begun()

    def _callback_ms(self) -> int:
        profile, dice = self.world.profile, self.world.dice
        is_dawdling = not self.world.is_healing and dice.random() < profile.dawdling
        return dice.randrange(1 + (profile.dawdle_ms if is_dawdling else profile.callback_ms))

    def _arm(self) -> None:
        """See to it that the holding is asked when it has something to do."""
        if self.is_dead:
            return
        due_ms = self.holding.next_moment_ms()
        if due_ms is None:
            return
        now_ms = self.world.timeline.now_ms
        moment_ms = max(now_ms, self._clock.moment_ms(due_ms))
        if not self._armed_ms or moment_ms < self._armed_ms:
            self._armed_ms = moment_ms
            self._later(moment_ms - now_ms, self._tick, moment_ms)
