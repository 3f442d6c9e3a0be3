"""A service in memory, with time turned by hand. All promises are checked after every event."""

from collections.abc import Iterable, Sequence
from typing import Any

from rota.core.shards.commands import (
    BeatMember,
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
    ServiceCommand,
    SweepServices,
)
from rota.core.shards.decisions import GrantShards, Rebalanced, ShardDecision
from rota.core.shards.members import PROTOCOL, Assignment, ShardPolicy
from rota.core.shards.reducer import assignment, next_moment_ms, reduce
from rota.core.shards.service import Service
from tests.core.shards.checking import check, check_decisions, lasting, standing
from tests.core.shards.folding import Rows
from tests.core.snapshots import context_at

POLICY = ShardPolicy()
START_MS = 1_800_000_000_000
COUNT = 10


class Drive:
    """One service, and what is stored of it."""

    def __init__(self, policy: ShardPolicy = POLICY, *, shard_count: int = COUNT) -> None:
        self.policy = policy
        self.shard_count = shard_count  # that members name, if nothing else is said
        self.now_ms = START_MS
        self.service = Service("feed", awake_since_ms=START_MS)
        self.rows = Rows()
        self.decisions: list[ShardDecision] = []  # of the last event
        self.changed: set[str] = set()  # by the last event
        self.rebalances: list[Rebalanced] = []
        self.granted: set[tuple[int, int]] = set()  # every shard and epoch ever

    # --- events ---------------------------------------------------------------------------------

    def feed(self, event: ServiceCommand | SweepServices) -> Assignment | None:
        service = self.service
        told, epochs = standing(service), list(service.epochs)
        generation = service.generation
        context = context_at(self.now_ms, shards=self.policy)
        self.decisions, reply = reduce(service, event, context)
        self.changed = service.take_changed()
        self.rebalances += [one for one in self.decisions if isinstance(one, Rebalanced)]

        check(service)
        check_decisions(self.decisions)
        assert all(before <= now for before, now in zip(epochs, service.epochs, strict=False))
        now_told = standing(service)
        differing = {one for one in now_told if now_told[one] != told.get(one, ((), (), ()))}
        assert differing <= self.changed <= service.members.keys()
        # What is taken over and asked back at once is told as before, under new epochs.
        is_granted = service.epochs[: len(epochs)] != epochs
        is_left = told.keys() - now_told.keys()
        assert service.generation == generation + bool(differing) or is_granted or is_left
        assert generation <= service.generation <= generation + 1
        for grant in self.made(GrantShards):
            epochs_given = set(zip(grant.shards, grant.epochs, strict=True))
            assert not epochs_given & self.granted
            self.granted |= epochs_given
        self.rows.fold(self.decisions)
        if self.rows.service is not None:
            assert lasting(self.rows.restored(self.now_ms)) == lasting(service)
        return reply

    def register(self, worker_id: str, **said: Any) -> Assignment:
        reply = self.feed(RegisterMember(**self._spoken(worker_id, said)))
        assert reply is not None
        return reply

    def beat(self, worker_id: str, **said: Any) -> Assignment:
        """As a member does that has heard, and carried out, all there is to hear."""
        said.setdefault("holds", self.told(worker_id))
        said = self._spoken(worker_id, said)
        if said["protocol"] == PROTOCOL:
            said.setdefault("generation", self.service.generation)
        reply = self.feed(BeatMember(**said))
        assert reply is not None
        return reply

    def _spoken(self, worker_id: str, said: dict[str, Any]) -> dict[str, Any]:
        member = self.service.members.get(worker_id)
        protocol = PROTOCOL if member is None else member.protocol
        said = {"protocol": protocol, **said}
        if said["protocol"] == PROTOCOL:
            known = "" if member is None else member.incarnation
            said.setdefault("incarnation", known or "1")
        said.setdefault("shard_count", self.shard_count)
        return {"service": "feed", "worker_id": worker_id, **said}

    def leave(self, worker_id: str, incarnation: str | None = None) -> None:
        event = LeaveMember(service="feed", worker_id=worker_id, incarnation=incarnation)
        assert self.feed(event) is None

    def drain(self, worker_id: str, *, draining: bool = True) -> None:
        event = DrainMember(service="feed", worker_id=worker_id, draining=draining)
        assert self.feed(event) is None

    def configure(self, **said: Any) -> None:
        assert self.feed(ConfigureService(service="feed", **said)) is None

    def sweep(self, *, deaf_until_ms: int | None = None) -> None:
        assert self.feed(SweepServices(deaf_until_ms)) is None

    def restart(self) -> None:
        """The coordinator dies, and comes back with what was stored."""
        self.service = self.rows.restored(self.now_ms)

    # --- time -----------------------------------------------------------------------------------

    def wait(self, by_ms: int, beating: Iterable[str] = ()) -> None:
        """Time passes with its sweeps; these beat all along."""
        beating = list(beating)
        end_ms = self.now_ms + by_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + self.policy.sweep_ms)
            for worker_id in beating:
                self.beat(worker_id)
            self.sweep()

    def settle(self, worker_ids: Sequence[str] | None = None) -> None:
        """Until nothing is due and nothing is to be given up; everybody beats."""
        for _ in range(100):
            service = self.service
            if service.rebalance_at_ms is None and not service.revoking:
                return
            self.wait(self.policy.sweep_ms, worker_ids or sorted(service.members))
        raise AssertionError("it does not settle")

    # --- reading --------------------------------------------------------------------------------

    def told(self, worker_id: str) -> tuple[int, ...]:
        return self.service.assigned_to(worker_id)[0]

    def all_told(self) -> dict[str, tuple[int, ...]]:
        return {worker_id: self.told(worker_id) for worker_id in sorted(self.service.members)}

    def pushed(self) -> dict[str, Assignment]:
        """What the last event has to tell to others."""
        return {
            worker_id: assignment(self.service, worker_id, self.policy)
            for worker_id in sorted(self.changed)
        }

    def next_moment_ms(self) -> int | None:
        return next_moment_ms(self.service, self.policy)

    def made(self, kind: type[ShardDecision]) -> list[Any]:
        """The decisions of this kind that the last event led to."""
        return [one for one in self.decisions if isinstance(one, kind)]


def together(*worker_ids: str, policy: ShardPolicy = POLICY, **said: Any) -> Drive:
    """Members that have come to rest."""
    drive = Drive(policy)
    for worker_id in worker_ids:
        drive.register(worker_id, **said)
    drive.settle()
    return drive
