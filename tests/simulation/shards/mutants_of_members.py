"""Broken rules on the member's side."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from unittest.mock import patch

from msgspec.structs import replace

from rota.core.shards.commands import BeatMember, RegisterMember
from rota.core.shards.member_client import HeldState, MemberClient, Step
from rota.core.shards.members import Assignment, ShardPolicy
from tests.simulation.mutation import Mutants
from tests.simulation.shards import profiles
from tests.simulation.shards.profiles import Profile

MUTANTS = Mutants[Profile](seeds=20)
mutant = MUTANTS.add

FAR_MS = 10**15

_receive = MemberClient.receive
_note_answer = MemberClient._note_answer
_beat = MemberClient._beat
_init = MemberClient.__init__


# --- the lease ----------------------------------------------------------------------------------


@mutant(profiles.SLEEPING_MEMBERS)
def no_self_stop() -> Iterator[None]:
    """A member acts until it is told not to."""

    def note_answer(self: MemberClient, assignment: Assignment, now_ms: int) -> None:
        _note_answer(self, assignment, now_ms)
        if self.lease_end_ms is not None:
            self.lease_end_ms = FAR_MS

    with patch.object(MemberClient, "_note_answer", note_answer):
        yield


@mutant(profiles.SLUGGISH, seeds=60)
def lease_counted_from_the_reply() -> Iterator[None]:
    def note_answer(self: MemberClient, assignment: Assignment, now_ms: int) -> None:
        if assignment.seq in self._sent_ms:
            self._sent_ms[assignment.seq] = now_ms
        _note_answer(self, assignment, now_ms)

    with patch.object(MemberClient, "_note_answer", note_answer):
        yield


@mutant(profiles.CUT_OFF_MEMBERS, seeds=40)
def a_push_renews_the_lease() -> Iterator[None]:
    """The member believes that a coordinator which hears it is heard by it."""

    def note_answer(self: MemberClient, assignment: Assignment, now_ms: int) -> None:
        _note_answer(self, assignment, now_ms)
        if self.lease_end_ms is not None and assignment.seq is None:
            self.lease_end_ms = max(self.lease_end_ms, now_ms + self._lease_ms)

    with patch.object(MemberClient, "_note_answer", note_answer):
        yield


@mutant(profiles.DOZING_MEMBERS, seeds=80)
def an_answer_revives_the_lease() -> Iterator[None]:
    """A late answer is taken for good, also when the lease was over before it came."""

    def receive(self: MemberClient, assignment: Assignment, now_ms: int) -> list[Step]:
        if not self.is_over and assignment.incarnation == self.applicant.incarnation:
            self._note_answer(assignment, now_ms)
        return _receive(self, assignment, now_ms)

    with patch.object(MemberClient, "receive", receive):
        yield


@mutant(profiles.WRONG_CLOCKS)
def clocks_are_trusted() -> Iterator[None]:
    """Nobody allows for clocks of different speeds."""

    def init(self: MemberClient, applicant: RegisterMember, *, now_ms: int, **_: object) -> None:
        _init(self, applicant, now_ms=now_ms, drift=0.0)

    with (
        patch.object(MemberClient, "__init__", init),
        patch.object(ShardPolicy, "expiry_ms", property(lambda policy: policy.lease_ms)),
    ):
        yield


@mutant(profiles.SLUGGISH, seeds=40)
def the_answer_to_another_incarnation_counts() -> Iterator[None]:
    def receive(self: MemberClient, assignment: Assignment, now_ms: int) -> list[Step]:
        ours = replace(assignment, incarnation=self.applicant.incarnation)
        return _receive(self, ours, now_ms)

    with patch.object(MemberClient, "receive", receive):
        yield


# --- the shards ---------------------------------------------------------------------------------


@mutant(profiles.ROUGH_NETWORK)
def old_generation_accepted() -> Iterator[None]:
    """What was said last counts, not what was decided last."""

    def receive(self: MemberClient, assignment: Assignment, now_ms: int) -> list[Step]:
        self.generation = None
        return _receive(self, assignment, now_ms)

    with patch.object(MemberClient, "receive", receive):
        yield


@mutant(profiles.DAWDLING_MEMBERS)
def given_up_before_the_callback_returns() -> Iterator[None]:
    """A beat no longer lists what is still acted on."""
    with listing_all_but(HeldState.REVOKING):
        yield


@mutant(profiles.DAWDLING_MEMBERS)
def held_only_when_the_callback_has_returned() -> Iterator[None]:
    """A beat does not list yet what is acted on already."""
    with listing_all_but(HeldState.ASSIGNED):
        yield


def listing_all_but(state: HeldState) -> AbstractContextManager[object]:
    def beat(self: MemberClient, seq: int) -> BeatMember:
        listed = [shard for shard, held in self.held.items() if held.state is not state]
        return replace(_beat(self, seq), holds=tuple(sorted(listed)))

    return patch.object(MemberClient, "_beat", beat)
