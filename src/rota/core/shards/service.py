"""The state of one service. Only the methods of `Service` change it.

Theory of operation. A shard has a *target*, the member that is to own it, and an *owner*. A
rebalance writes targets and nothing else. Where the two differ, the owner is asked to give the
shard up (it is *revoking*), and once no member owns it, the target is granted it under a higher
epoch. A shard that is being revoked is never simply handed back: its owner may already have let go
of it, so it is released and granted again even when the target turns out to be the same.

Every command that changes an assignment raises the generation. An assignment is a function of the
generation, so members can put late and repeated messages in order.

Every method that changes something also records the decision, so the stored and the known state
cannot differ. A service is a working value: filled from the store, and free of I/O. If the
transaction of its decisions fails, it is dropped and filled again. Methods take shards sorted, and
keep what they are given.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, compress, groupby, repeat
from operator import is_

import msgspec

from rota.core.shards.decisions import (
    GrantShards,
    NoteBeat,
    PutMember,
    PutService,
    Rebalanced,
    ReleaseShards,
    RemoveMember,
    RevokeShards,
    SetTargets,
    ShardDecision,
)
from rota.core.shards.members import Assignment, Departure, Member, ProtocolState, Revoking
from rota.core.shards.ranges import (
    Shards,
    exclude,
    fill,
    include,
    is_all,
    picked,
    place_of,
    put,
    raised,
    without,
)

MOST_SUPERSEDED = 16  # shard counts remembered; an older one would count as new again
MOST_DEPARTED = 10_000  # former members remembered; late messages of older ones admit them again


@dataclass
class Service:
    name: str
    shard_count: int = 0
    pinned: bool = False
    min_protocol: int = 1
    generation: int = 0
    superseded: tuple[int, ...] = ()
    members: dict[str, Member] = field(default_factory=dict)
    # One entry a shard ever known; those at and above the count are on their way out.
    owners: list[str | None] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    targets: list[str | None] = field(default_factory=list)
    # The same by worker.
    owned: dict[str, Shards] = field(default_factory=dict)
    targeted: dict[str, Shards] = field(default_factory=dict)
    # Unowned shards below the count, by target; no entry is empty.
    grantable: dict[str, Shards] = field(default_factory=dict)
    # The owned shards that members were asked to give up; no entry is empty.
    revoking: dict[str, tuple[Revoking, ...]] = field(default_factory=dict)
    # Not stored.
    departed: dict[str, tuple[str, ...]] = field(default_factory=dict)  # incarnations not let in
    protocol_states: dict[str, ProtocolState] = field(
        default_factory=lambda: defaultdict(ProtocolState)
    )
    awake_since_ms: int = 0  # when this coordinator started, or came back from a pause
    swept_ms: int | None = None
    rebalance_at_ms: int | None = None
    first_join_ms: int | None = None  # since the last rebalance
    urgent_at_ms: int | None = None  # the rebalance is due then, even if more members join
    listening_until_ms: int | None = (
        None  # until then other members may report shards that they hold
    )
    decisions: list[ShardDecision] = field(default_factory=list)
    changed: set[str] = field(
        default_factory=set
    )  # members to be sent their assignment by this batch
    _assigned: dict[str, tuple[Shards, tuple[int, ...]]] = field(default_factory=dict)
    _assignments: dict[str, Assignment] = field(default_factory=dict)
    _changed_in: dict[str, int] = field(default_factory=dict)  # generations
    _restored_in: int = 0  # earlier generations are not known
    _has_raised: bool = False  # the generation, for this command

    # --- reading --------------------------------------------------------------------------------

    def assigned_to(self, worker_id: str) -> tuple[Shards, tuple[int, ...]]:
        """The shards of a member that it is not asked to give up, and their epochs."""
        known = self._assigned.get(worker_id)
        if known is None:
            shards = self.owned.get(worker_id, ())
            if worker_id in self.revoking:
                shards = without(shards, self.revoked_from(worker_id))
            epochs = picked(self.epochs, place_of(shards)) if shards else []
            known = shards, tuple(epochs)
            if worker_id in self.members:
                self._assigned[worker_id] = known
        return known

    def revoked_from(self, worker_id: str) -> Shards:
        """The shards a member still owns and was asked to give up."""
        several = self.revoking.get(worker_id)
        if several is None:
            return ()
        if len(several) == 1:
            return several[0].shards
        return tuple(sorted(chain.from_iterable([asked.shards for asked in several])))

    def asked_in(self) -> list[int | None]:
        """The generation in which each shard was revoked, if it was."""
        column: list[int | None] = [None] * len(self.owners)
        for asked in chain.from_iterable(self.revoking.values()):
            fill(column, place_of(asked.shards), asked.generation, times=len(asked.shards))
        return column

    def changed_in(self, worker_id: str) -> int:
        """The generation of the last change to a member's assignment, as far as is known."""
        return self._changed_in.get(worker_id, self._restored_in)

    def cached_assignment(self, worker_id: str) -> Assignment | None:
        """The assignment of a member, if it was computed in this generation."""
        known = self._assignments.get(worker_id)
        return known if known is not None and known.generation == self.generation else None

    def cache_assignment(self, assignment: Assignment) -> None:
        if assignment.worker_id in self.members:
            self._assignments[assignment.worker_id] = assignment

    def owner_at(self, shard: int, epoch: int) -> str | None:
        """The owner of a shard under exactly this epoch; None: effects under it are stale."""
        if not 0 <= shard < len(self.owners) or self.epochs[shard] != epoch:
            return None
        return self.owners[shard]

    @property
    def untargeted(self) -> list[int]:
        """The shards below the count that have no target, sorted."""
        shards = range(self.shard_count)
        if not self.targeted:
            return list(shards)
        if sum(map(len, self.targeted.values())) == len(self.targets):
            return []
        return list(compress(shards, map(is_, self.targets, repeat(None))))

    def unowned(self) -> int:
        """The number of shards that should have an owner and have none."""
        beyond = len(self.owners[self.shard_count :]) - self.owners[self.shard_count :].count(None)
        return self.shard_count + beyond - sum(map(len, self.owned.values()))

    def waiting(self) -> dict[str, int]:
        """The members whose registration waits for its answer, and since when."""
        return {
            worker_id: state.pending_since_ms
            for worker_id, state in self.protocol_states.items()
            if state.pending_since_ms is not None
        }

    # --- changing -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a command, which has its own generation: members may see the state before it."""
        self._has_raised = False

    def take_decisions(self) -> list[ShardDecision]:
        """The decisions since the last call."""
        taken, self.decisions = self.decisions, []
        return taken

    def raise_generation(self) -> int:
        """Raise the generation, once for all changes of a command."""
        if not self._has_raised:
            self._has_raised = True
            self.generation += 1
            self._put()
        return self.generation

    def configure(
        self,
        *,
        shard_count: int | None = None,
        pinned: bool | None = None,
        min_protocol: int | None = None,
    ) -> None:
        if shard_count is not None and shard_count != self.shard_count:
            self._count(shard_count)
        if pinned is not None:
            self.pinned = pinned
        if min_protocol is not None:
            self.min_protocol = min_protocol
        self._put()

    def _count(self, shard_count: int) -> None:
        before = self.shard_count
        if before:
            past = tuple(one for one in self.superseded if one not in (before, shard_count))
            self.superseded = (*past, before)[-MOST_SUPERSEDED:]
        self.shard_count = shard_count
        more = max(0, shard_count - len(self.owners))
        self.owners += [None] * more
        self.epochs += [0] * more
        self.targets += [None] * more
        self.find_grantable()

    def find_grantable(self) -> None:
        """Find the unowned shards that have a target."""
        self.grantable.clear()
        for worker_id, shards in self.targeted.items():
            self._await_grant(worker_id, shards)

    def _await_grant(self, worker_id: str, shards: Shards) -> None:
        owners = picked(self.owners, place_of(shards))
        if is_all(owners, None):
            self._note_grantable(worker_id, shards)
        elif None in set(owners):  # quicker than to compare with each, for most are the same
            pairs = zip(shards, owners, strict=True)
            unowned = tuple([shard for shard, owner in pairs if owner is None])
            self._note_grantable(worker_id, unowned)

    def _note_grantable(self, worker_id: str, unowned: Shards) -> None:
        count = self.shard_count
        if unowned[-1] >= count:
            unowned = tuple([shard for shard in unowned if shard < count])
        include(self.grantable, worker_id, unowned)

    def put_member(self, member: Member) -> None:
        self.members[member.worker_id] = member
        self._assignments.pop(member.worker_id, None)
        self.decisions.append(PutMember(self.name, member))

    def note_beat(self, worker_id: str, seen_ms: int) -> None:
        member = self.members[worker_id]
        self.members[worker_id] = msgspec.structs.replace(member, seen_ms=seen_ms)
        self.decisions.append(NoteBeat(self.name, worker_id, seen_ms))

    def remove_member(self, worker_id: str, reason: Departure) -> None:
        """Remove a member, with the shards that it owned and was to own."""
        forced = reason in (Departure.EVICTED, Departure.REFUSED)
        self.set_targets(None, self.targeted.get(worker_id, ()))
        self.release(worker_id, self.owned.get(worker_id, ()), forced=forced)
        member = self.members.pop(worker_id)
        self.owned.pop(worker_id, None)
        self.targeted.pop(worker_id, None)
        self.protocol_states.pop(worker_id, None)
        self._assigned.pop(worker_id, None)
        self._assignments.pop(worker_id, None)
        self._changed_in.pop(worker_id, None)
        self.changed.discard(worker_id)
        self._remember(member, reason)
        self.decisions.append(RemoveMember(self.name, worker_id, member.incarnation, reason))

    def _remember(self, member: Member, reason: Departure) -> None:
        """Keep late messages of this incarnation, and of earlier ones, from admitting it again."""
        past = member.replaced
        if reason in (Departure.LEFT, Departure.EVICTED):
            past = (*past, member.incarnation)
        if past:
            self.departed[member.worker_id] = past
            if len(self.departed) > MOST_DEPARTED:
                del self.departed[next(iter(self.departed))]

    def set_targets(self, worker_id: str | None, shards: Shards) -> None:
        if not shards:
            return
        place = place_of(shards)
        before = picked(self.targets, place)
        if not is_all(before, None):
            fill(self.targets, place, None, times=len(shards))
            self._forget_untargeted(set(before), shards)
        if worker_id is not None:
            assert shards[-1] < self.shard_count
            fill(self.targets, place, worker_id, times=len(shards))
            include(self.targeted, worker_id, shards)
            self._await_grant(worker_id, shards)
        self.decisions.append(SetTargets(self.name, worker_id, shards))

    def _forget_untargeted(self, before: set[str | None], shards: Shards) -> None:
        """Drop these shards from the indexes of their former targets."""
        for index in (self.targeted, self.grantable):
            for worker_id in before:
                if worker_id is None or worker_id not in index:
                    continue
                if len(before) == 1:
                    exclude(index, worker_id, shards)
                else:
                    self._forget_untargeted_of(index, worker_id)

    def _forget_untargeted_of(self, index: dict[str, Shards], worker_id: str) -> None:
        known = index.pop(worker_id)
        include(index, worker_id, tuple([one for one in known if self.targets[one] is not None]))

    def revoke(self, worker_id: str, shards: Shards, *, now_ms: int) -> None:
        if not shards:
            return
        assert is_all(picked(self.owners, place_of(shards)), worker_id)
        generation = self.raise_generation()
        asked = Revoking(shards, generation, now_ms, self.protocol_states[worker_id].beats)
        self.revoking[worker_id] = (*self.revoking.get(worker_id, ()), asked)
        self._note_change(worker_id)
        self.decisions.append(RevokeShards(self.name, worker_id, shards, generation))

    def release(self, worker_id: str, shards: Shards, *, forced: bool = False) -> None:
        if not shards:
            return
        place = place_of(shards)
        assert is_all(picked(self.owners, place), worker_id)
        self.raise_generation()
        fill(self.owners, place, None, times=len(shards))
        exclude(self.owned, worker_id, shards)
        if worker_id in self.revoking:
            self._forget_revoking(worker_id, shards)
        self._hand_on(shards, picked(self.targets, place))
        self._note_change(worker_id)
        self.decisions.append(ReleaseShards(self.name, worker_id, shards, forced))

    def _forget_revoking(self, worker_id: str, shards: Shards) -> None:
        """Drop shards that a worker no longer owns from those it is asked for."""
        several = [
            replace(asked, shards=left)
            for asked in self.revoking.pop(worker_id)
            if (left := without(asked.shards, shards))
        ]
        if several:
            self.revoking[worker_id] = tuple(several)

    def _hand_on(self, shards: Shards, targets: list[str | None]) -> None:
        """Make released shards grantable to their targets."""
        if is_all(targets, None):
            return
        waiting: dict[str, list[int]] = {}
        start = 0
        for target, run in groupby(targets):
            end = start + len(list(run))
            if target is not None:
                waiting.setdefault(target, []).extend(shards[start:end])
            start = end
        for target, unowned in waiting.items():
            self._note_grantable(target, tuple(unowned))

    def grant(self, worker_id: str, shards: Shards) -> None:
        """Give unowned shards to their target, under higher epochs than ever before."""
        if not shards:
            return
        place = place_of(shards)
        assert is_all(picked(self.owners, place), None)
        assert is_all(picked(self.targets, place), worker_id)
        exclude(self.grantable, worker_id, shards)
        generation = self.raise_generation()
        fill(self.owners, place, worker_id, times=len(shards))
        epochs = raised(picked(self.epochs, place))
        put(self.epochs, place, epochs)
        include(self.owned, worker_id, shards)
        self._note_change(worker_id)
        self.decisions.append(GrantShards(self.name, worker_id, shards, tuple(epochs), generation))

    def note_rebalanced(self, *, moved: int, placed: int) -> None:
        self.decisions.append(Rebalanced(self.name, moved, placed))

    def mark_changed(self, worker_ids: Iterable[str]) -> None:
        """Have these members sent their assignment, changed or not."""
        self.changed.update(worker_ids)

    def take_changed(self) -> set[str]:
        taken, self.changed = self.changed, set()
        return taken

    def _note_change(self, worker_id: str) -> None:
        self._assigned.pop(worker_id, None)
        self._assignments.pop(worker_id, None)
        self._changed_in[worker_id] = self.generation
        self.changed.add(worker_id)

    def _put(self) -> None:
        self.decisions.append(
            PutService(
                name=self.name,
                shard_count=self.shard_count,
                pinned=self.pinned,
                min_protocol=self.min_protocol,
                generation=self.generation,
                superseded=self.superseded,
            )
        )
