"""The state of one service, and the only hands that change it.

Theory of operation. A shard has a *target*, whose it shall be, and an *owner*, whose it is. A
rebalance writes targets and nothing else. Where the two differ, the owner is asked to give the
shard up (it is *revoking*), and once nobody owns it, the target is granted it under a higher epoch.
A shard that is being revoked is never handed back as if nothing had happened: its owner may already
have let go of it, so it has to be released and granted anew even when the target turns out to be
the same again.

Every event that changes what anybody is told raises the generation; what a member is told is a
function of the generation, so members can put late and repeated messages in order.

Every method that changes something also writes down the decision, so what is stored and what is
known can never differ. A service is a working value: filled from the store, and free of I/O. If the
transaction that its decisions belong to fails, it is thrown away and filled anew. Where a method
takes shards, it takes them sorted, and keeps what it is given.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, compress, groupby, repeat
from operator import is_

import msgspec

from rota.core.shards.columns import (
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
from rota.core.shards.members import Assignment, Departure, Member
from rota.core.shards.talks import Revoking, Talk

__all__ = ["Revoking", "Service", "Talk"]

MOST_SUPERSEDED = 16  # shard counts remembered; an older one would count as new again
MOST_DEPARTED = 10_000  # names of former members remembered; a late message of others lets them in


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
    # The same the other way round.
    owned: dict[str, Shards] = field(default_factory=dict)
    targeted: dict[str, Shards] = field(default_factory=dict)
    # Below the count, with a target, and nobody owns them: by target, and none without any.
    grantable: dict[str, Shards] = field(default_factory=dict)
    # Of what they own, what members were asked to give up; whoever was asked for nothing is absent.
    revoking: dict[str, tuple[Revoking, ...]] = field(default_factory=dict)
    # Not stored.
    departed: dict[str, tuple[str, ...]] = field(default_factory=dict)  # incarnations not let in
    talks: dict[str, Talk] = field(default_factory=lambda: defaultdict(Talk))
    awake_since_ms: int = 0  # when this coordinator started, or came back from a pause
    swept_ms: int | None = None
    rebalance_at_ms: int | None = None
    first_join_ms: int | None = None  # of those that the next rebalance is for
    urgent_at_ms: int | None = None  # when it is due, even if more join meanwhile
    listening_until_ms: int | None = None  # before that others may yet say what they hold
    decisions: list[ShardDecision] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)  # members to be told, by this batch
    _told: dict[str, tuple[Shards, tuple[int, ...]]] = field(default_factory=dict)
    _said: dict[str, Assignment] = field(default_factory=dict)
    _changed_in: dict[str, int] = field(default_factory=dict)  # generations
    _restored_in: int = 0  # what was before that generation is not known
    _has_raised: bool = False  # the generation, in this event

    # --- reading --------------------------------------------------------------------------------

    def told(self, worker_id: str) -> tuple[Shards, tuple[int, ...]]:
        """The shards a member is told to have, and their epochs."""
        known = self._told.get(worker_id)
        if known is None:
            shards = self.owned.get(worker_id, ())
            if worker_id in self.revoking:
                shards = without(shards, self.revoked_from(worker_id))
            epochs = picked(self.epochs, place_of(shards)) if shards else []
            known = shards, tuple(epochs)
            if worker_id in self.members:
                self._told[worker_id] = known
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
        """For each shard, the generation in which its owner was asked to give it up, if it was."""
        column: list[int | None] = [None] * len(self.owners)
        for asked in chain.from_iterable(self.revoking.values()):
            fill(column, place_of(asked.shards), asked.generation, times=len(asked.shards))
        return column

    def changed_in(self, worker_id: str) -> int:
        """The generation since which a member is told the same, as far as is known."""
        return self._changed_in.get(worker_id, self._restored_in)

    def note_unchanged(self, worker_id: str, since: int) -> None:
        """A member is told the same as it was before this was read from the store."""
        self._changed_in[worker_id] = since

    def said(self, worker_id: str) -> Assignment | None:
        """What a member is to be told, if that was worked out before and nothing has changed."""
        known = self._said.get(worker_id)
        return known if known is not None and known.generation == self.generation else None

    def note_said(self, assignment: Assignment) -> None:
        if assignment.worker_id in self.members:
            self._said[assignment.worker_id] = assignment

    def owner_at(self, shard: int, epoch: int) -> str | None:
        """Who owns a shard under this very epoch; None: nobody does, so no effect of it counts."""
        if not 0 <= shard < len(self.owners) or self.epochs[shard] != epoch:
            return None
        return self.owners[shard]

    @property
    def untargeted(self) -> list[int]:
        """The shards below the count that shall be nobody's for now, sorted."""
        shards = range(self.shard_count)
        if not self.targeted:
            return list(shards)
        if sum(map(len, self.targeted.values())) == len(self.targets):
            return []
        return list(compress(shards, map(is_, self.targets, repeat(None))))

    def unowned(self) -> int:
        """Shards that should have an owner and have none."""
        beyond = len(self.owners[self.shard_count :]) - self.owners[self.shard_count :].count(None)
        return self.shard_count + beyond - sum(map(len, self.owned.values()))

    # --- changing -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Another event: members may see what was before it, so it has its own generation."""
        self._has_raised = False

    def take_decisions(self) -> list[ShardDecision]:
        """All that was decided since this was last asked."""
        taken, self.decisions = self.decisions, []
        return taken

    def raise_generation(self) -> int:
        """Once for all that an event changes."""
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
        """Look at all shards for those that wait for their owners."""
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
        self._said.pop(member.worker_id, None)
        self.decisions.append(PutMember(self.name, member))

    def note_beat(self, worker_id: str, seen_ms: int) -> None:
        member = self.members[worker_id]
        self.members[worker_id] = msgspec.structs.replace(member, seen_ms=seen_ms)
        self.decisions.append(NoteBeat(self.name, worker_id, seen_ms))

    def remove_member(self, worker_id: str, reason: Departure) -> None:
        """The member is gone, with all that it owned and should have had."""
        forced = reason in (Departure.EVICTED, Departure.REFUSED)
        self.set_targets(None, self.targeted.get(worker_id, ()))
        self.release(worker_id, self.owned.get(worker_id, ()), forced=forced)
        member = self.members.pop(worker_id)
        self.owned.pop(worker_id, None)
        self.targeted.pop(worker_id, None)
        self.talks.pop(worker_id, None)
        self._told.pop(worker_id, None)
        self._said.pop(worker_id, None)
        self._changed_in.pop(worker_id, None)
        self.changed.discard(worker_id)
        self._remember(member, reason)
        self.decisions.append(RemoveMember(self.name, worker_id, member.incarnation, reason))

    def _remember(self, member: Member, reason: Departure) -> None:
        """Late messages of this incarnation, and of those before it, must not let it in again."""
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
        """These shards were to be those workers', and are not any more."""
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
        asked = Revoking(shards, generation, now_ms, self.talks[worker_id].beats)
        self.revoking[worker_id] = (*self.revoking.get(worker_id, ()), asked)
        self._tell(worker_id)
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
        self._tell(worker_id)
        self.decisions.append(ReleaseShards(self.name, worker_id, shards, forced))

    def _forget_revoking(self, worker_id: str, shards: Shards) -> None:
        """A worker does not own these any more, so it is not asked for them."""
        several = [
            replace(asked, shards=left)
            for asked in self.revoking.pop(worker_id)
            if (left := without(asked.shards, shards))
        ]
        if several:
            self.revoking[worker_id] = tuple(several)

    def _hand_on(self, shards: Shards, targets: list[str | None]) -> None:
        """Whoever shall have what was released is to be granted it."""
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
        """To whom they shall belong; under higher epochs than ever before."""
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
        self._tell(worker_id)
        self.decisions.append(GrantShards(self.name, worker_id, shards, tuple(epochs), generation))

    def note_rebalanced(self, *, moved: int, placed: int) -> None:
        self.decisions.append(Rebalanced(self.name, moved, placed))

    def tell(self, worker_ids: Iterable[str]) -> None:
        """These are to be sent their assignment, changed or not."""
        self.changed.update(worker_ids)

    def take_changed(self) -> set[str]:
        taken, self.changed = self.changed, set()
        return taken

    def _tell(self, worker_id: str) -> None:
        self._told.pop(worker_id, None)
        self._said.pop(worker_id, None)
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
