"""The coordinator's side: hears, decides, commits, and only then answers; dies between any two."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Protocol

from rota.core.shards.commands import MemberCommand, ServiceCommand, SweepServices
from rota.core.shards.decisions import (
    PutService,
    Rebalanced,
    ReleaseShards,
    RemoveMember,
    ShardDecision,
)
from rota.core.shards.members import PROTOCOL, Assignment, ShardPolicy
from rota.core.shards.reducer import assignment, next_moment_ms, reduce
from rota.core.shards.service import Service
from rota.errors import MemberNotFound
from tests.core.snapshots import context_at
from tests.simulation.shards.ledger import Ledger, demand
from tests.simulation.shards.network import Direction, Network
from tests.simulation.shards.timeline import Timeline

SERVICE = "orders"


class Peer(Protocol):
    """A process that talks to the coordinator over a connection of its own."""

    worker_id: str

    def deliver(self, assignment: Assignment) -> None: ...


class Watcher(Protocol):
    """An observer."""

    def note(self, *what: object) -> None: ...

    def look_at_release(self, release: ReleaseShards) -> None: ...


@dataclass(frozen=True, slots=True)
class Effect:
    """A worker has acted on a shard, and wants it to count."""

    shard: int
    epoch: int
    worker_id: str
    incarnation: str


class Moment(Enum):
    """When a coordinator dies that is in the midst of something."""

    BEFORE_COMMIT = "before the commit"
    AFTER_COMMIT = "after the commit, before the answer"


class SimulatedCoordinator:
    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        dice: Random,
        policy: ShardPolicy,
        watcher: Watcher,
    ) -> None:
        self.policy = policy
        self.is_up = True
        self.starts = 1
        self.accepted = 0  # effects
        self.refused = 0
        self.dies_at: Moment | None = None
        self.service = Service(SERVICE, awake_since_ms=timeline.now_ms)
        self.ledger = Ledger(
            PutService(name=SERVICE, shard_count=0, pinned=False, min_protocol=1, generation=0)
        )
        self._timeline = timeline
        self._network = network
        self._dice = dice
        self._watcher = watcher
        self._told: dict[tuple[str, str, int], Assignment] = {}
        self._connections: dict[str, Peer] = {}
        self._wrong_by_ms = 0
        self._pauses_until_ms = 0
        self._deaf_until_ms: int | None = None
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        timeline.after(1, self._sweep, self.starts)

    def now_ms(self) -> int:
        """What the clock on its wall shows."""
        return self._timeline.now_ms + self._wrong_by_ms

    def turn_clock(self, by_ms: int) -> None:
        self._watcher.note("the coordinator's clock jumps by", by_ms)
        self._wrong_by_ms += by_ms

    # --- hearing ----------------------------------------------------------------------------

    def hear(self, peer: Peer, message: MemberCommand) -> None:
        self._do(self._hear, peer, message)

    def operate(self, event: ServiceCommand) -> None:
        self._do(self._operate, event)

    def take(self, effect: Effect) -> None:
        self._do(self._take, effect)

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        if not self.is_up:
            return
        if self._timeline.now_ms < self._pauses_until_ms:
            self._waiting.append((action, arguments))
        else:
            action(*arguments)

    def _hear(self, peer: Peer, message: MemberCommand) -> None:
        self._connections[message.worker_id] = peer
        self._decide(message, peer)

    def _operate(self, event: ServiceCommand) -> None:
        with suppress(MemberNotFound):
            self._decide(event, None)

    def _take(self, effect: Effect) -> None:
        if self.service.owner_at(effect.shard, effect.epoch) is None:
            self.refused += 1
            return
        self.accepted += 1
        self.ledger.check_effect(effect.shard, effect.epoch, effect.worker_id, effect.incarnation)

    def _sweep(self, start: int) -> None:
        if not self.is_up or start != self.starts:
            return
        if self._timeline.now_ms >= self._pauses_until_ms:
            self._decide(SweepServices(self._deaf_until_ms), None)
        self._timeline.after(self.policy.sweep_ms, self._sweep, start)

    # --- deciding ---------------------------------------------------------------------------

    def _decide(self, event: ServiceCommand | SweepServices, peer: Peer | None) -> None:
        service, now_ms = self.service, self.now_ms()
        due_ms, swept_ms = next_moment_ms(service, self.policy), service.swept_ms
        first_join_ms, urgent_at_ms = service.first_join_ms, service.urgent_at_ms
        decisions, reply = reduce(service, event, context_at(now_ms, shards=self.policy))
        changed = service.take_changed()
        if isinstance(event, SweepServices):
            is_due = due_ms is not None and due_ms <= now_ms
            was_set_back = swept_ms is not None and now_ms < swept_ms
            is_idle = not decisions or was_set_back
            demand(is_due or is_idle, "a sweep was needed before it was due")
            self._demand_nobody_waits_for_ever()
        is_gathering = first_join_ms is not None and urgent_at_ms is None
        if is_gathering and any(isinstance(one, Rebalanced) for one in decisions):
            assert first_join_ms is not None
            self._demand_others_were_waited_for(event, decisions, first_join_ms)
        if decisions and self._dies(Moment.BEFORE_COMMIT):
            return
        self._commit(decisions)
        if decisions and self._dies(Moment.AFTER_COMMIT):
            return
        if len(decisions) > 1:
            self._watcher.note("decided", event, decisions)
        if peer is not None and reply is not None and not reply.is_pending:
            changed.discard(peer.worker_id)
            self._send(peer, reply)
        for worker_id in sorted(changed):
            connection = self._connections.get(worker_id)
            if connection is not None:
                self._send(connection, assignment(service, worker_id, self.policy))

    def _demand_nobody_waits_for_ever(self) -> None:
        """A member that does not give up a shard is told to go, and then its lease runs out."""
        policy, awake_ms = self.policy, self.service.awake_since_ms
        longest_ms = policy.stuck_ms + policy.expiry_ms + 2 * policy.sweep_ms
        for worker_id, several in self.service.revoking.items():
            for asked in several:
                waited_ms = self.now_ms() - max(asked.since_ms, awake_ms)
                demand(
                    waited_ms <= longest_ms,
                    "asked back without effect:",
                    worker_id,
                    asked,
                    waited_ms,
                )

    def _demand_others_were_waited_for(
        self, event: object, decisions: list[ShardDecision], first_join_ms: int
    ) -> None:
        """Those who join at a time share a rebalance; nobody had left, so there was no hurry."""
        if any(isinstance(one, RemoveMember) for one in decisions):
            return
        demand(isinstance(event, SweepServices), "one that joined was not waited behind:", event)
        now_ms, deaf_ms = self.now_ms(), self._deaf_until_ms
        is_late = now_ms - first_join_ms >= self.policy.join_most_ms
        has_listened = deaf_ms is None or now_ms - deaf_ms >= self.policy.join_quiet_ms
        demand(is_late or has_listened, "nobody could be heard before", now_ms, deaf_ms)

    def _commit(self, decisions: list[ShardDecision]) -> None:
        self.ledger.commit(decisions)
        for decision in decisions:
            if isinstance(decision, ReleaseShards):
                self._watcher.look_at_release(decision)

    def _send(self, peer: Peer, told: Assignment) -> None:
        if told.status == "ok" and told.protocol == PROTOCOL:
            self._demand_same(told)
        self._network.send(peer.worker_id, Direction.OUT, peer.deliver, told)

    def _demand_same(self, told: Assignment) -> None:
        """What a member is told is a function of the generation."""
        known = self._told.setdefault((told.worker_id, told.incarnation, told.generation), told)
        is_same = (known.shards, known.epochs) == (told.shards, told.epochs)
        demand(is_same, "told two things in one generation", known, told)

    # --- accidents --------------------------------------------------------------------------

    def _dies(self, moment: Moment) -> bool:
        if self.dies_at is not moment:
            return False
        self.dies_at = None
        self.die()
        return True

    def die(self) -> None:
        if self.is_up:
            self._watcher.note("the coordinator dies")
            self.is_up = False
            self._waiting.clear()
            self._connections.clear()
            self._timeline.after(self._dice.choice((50, 1_000, 5_000, 20_000)), self.start)

    def start(self) -> None:
        """Come back, knowing no more than was committed."""
        if not self.is_up:
            self._watcher.note("the coordinator starts")
            self.is_up = True
            self.starts += 1
            self._pauses_until_ms = 0
            self._deaf_until_ms = None
            self.service = self.ledger.restore(self.now_ms())
            self._sweep(self.starts)

    def pause(self, duration_ms: int) -> None:
        if self.is_up and not self._waiting:
            self._watcher.note("the coordinator pauses", duration_ms)
            self._pauses_until_ms = self._timeline.now_ms + duration_ms
            self._timeline.at(self._pauses_until_ms, self._go_on, self.starts)

    def _go_on(self, start: int) -> None:
        if start != self.starts:
            return
        waiting, self._waiting = self._waiting, []
        # A timer that is overdue may fire before what lies in the sockets is read, or after.
        self._deaf_until_ms = self.now_ms()
        if self._dice.random() < 0.5:
            self._decide(SweepServices(self._deaf_until_ms), None)
        for action, arguments in waiting:
            self._do(action, *arguments)
