from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember
from rota.core.shards.member_client import (
    DRIFT,
    GATHER_MS,
    MAX_UNANSWERED,
    RETRY_MS,
    Assigned,
    HeldState,
    Loss,
    Lost,
    MemberClient,
    Revoked,
    Send,
    Step,
)
from rota.core.shards.members import PROTOCOL, Assignment

BEGIN_MS = -70_000  # a clock of one's own may start anywhere
LEASE_MS = 15_000
INTERVAL_MS = 5_000
USABLE_MS = int(LEASE_MS * (1 - DRIFT))


def begun() -> MemberClient:
    applicant = RegisterMember(
        service="orders",
        worker_id="a",
        shard_count=10,
        protocol=PROTOCOL,
        incarnation="7",
        weight=2_000,
    )
    return MemberClient(applicant, now_ms=BEGIN_MS)


def told(
    epochs: dict[int, int] | None = None,
    *,
    generation: int = 1,
    seq: int | None = None,
    revoking: tuple[int, ...] = (),
    status: Literal["ok", "fenced", "reregister"] = "ok",
    incarnation: str = "7",
    lease_ms: int = LEASE_MS,
) -> Assignment:
    epochs = epochs or {}
    return Assignment(
        service="orders",
        worker_id="a",
        incarnation=incarnation,
        protocol=PROTOCOL,
        shards=tuple(sorted(epochs)),
        epochs=tuple(epochs[shard] for shard in sorted(epochs)),
        revoking=revoking,
        generation=generation,
        lease_ms=lease_ms,
        heartbeat_interval_ms=INTERVAL_MS,
        seq=seq,
        status=status,
        reason=None if status == "ok" else "go",
    )


def holding_of(epochs: dict[int, int], *, generation: int = 1) -> MemberClient:
    """A member that registered at the beginning and has made good use of the answer."""
    holding = begun()
    holding.tick(BEGIN_MS)
    holding.receive(told(epochs, generation=generation, seq=0), BEGIN_MS)
    for shard in epochs:
        holding.activate(shard)
    return holding


def only_beat(steps: list[Step]) -> BeatMember:
    (step,) = steps
    assert isinstance(step, Send)
    assert isinstance(step.message, BeatMember)
    return step.message


def beat_at(holding: MemberClient, now_ms: int) -> BeatMember:
    return only_beat(holding.tick(now_ms))


# --- registering --------------------------------------------------------------------------------


def test_a_member_registers_until_it_is_answered() -> None:
    holding = begun()

    assert holding.next_moment_ms() == BEGIN_MS
    (first,) = holding.tick(BEGIN_MS)
    assert holding.next_moment_ms() == BEGIN_MS + RETRY_MS
    assert holding.tick(BEGIN_MS + RETRY_MS - 1) == []
    (second,) = holding.tick(BEGIN_MS + RETRY_MS)

    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert isinstance(first.message, RegisterMember)
    assert isinstance(second.message, RegisterMember)
    assert (first.message.seq, second.message.seq) == (0, 1)
    assert second.message.weight == 2_000


def test_the_first_answer_assigns_everything() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)

    steps = holding.receive(told({3: 1, 5: 4}, seq=0), BEGIN_MS + 10)

    assert steps == [Assigned(3, 1), Assigned(5, 4)]
    assert holding.epoch_of(5) == 4
    assert holding.epoch_of(4) is None
    assert holding.is_acting(3, BEGIN_MS + 10)
    assert not holding.is_acting(4, BEGIN_MS + 10)


def test_a_push_before_the_first_answer_gives_nothing() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)

    assert holding.receive(told({3: 1}, generation=4), BEGIN_MS + 10) == []
    assert holding.receive(told({3: 1}, generation=4, seq=0), BEGIN_MS + 20) == [Assigned(3, 1)]


def test_an_answer_that_comes_after_its_own_lease_begins_nothing() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)
    late_ms = BEGIN_MS + USABLE_MS
    holding.tick(late_ms)

    assert holding.receive(told({3: 1}, seq=0), late_ms) == []
    assert not holding.is_over
    assert holding.receive(told({3: 1}, seq=1), late_ms + 1) == [Assigned(3, 1)]


def test_what_another_incarnation_is_told_does_not_count() -> None:
    holding = holding_of({3: 1})

    assert holding.receive(told({}, generation=9, incarnation="6"), BEGIN_MS) == []
    assert holding.receive(told(status="fenced", incarnation="6"), BEGIN_MS) == []
    assert holding.is_acting(3, BEGIN_MS)


# --- the lease ----------------------------------------------------------------------------------


def test_the_lease_counts_from_the_sending_however_late_the_answer() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)
    holding.receive(told({3: 1}, seq=0), BEGIN_MS + 9_000)

    assert holding.lease_end_ms == BEGIN_MS + USABLE_MS
    assert holding.is_acting(3, BEGIN_MS + USABLE_MS - 1)
    assert not holding.is_acting(3, BEGIN_MS + USABLE_MS)


def test_each_answer_renews_the_lease_from_its_own_message() -> None:
    holding = holding_of({3: 1})
    beat_at(holding, BEGIN_MS + 5_000)
    beat_at(holding, BEGIN_MS + 10_000)

    holding.receive(told({3: 1}, seq=2), BEGIN_MS + 10_100)
    assert holding.lease_end_ms == BEGIN_MS + 10_000 + USABLE_MS

    # The answer to the beat before was overtaken: it takes nothing back.
    holding.receive(told({3: 1}, seq=1), BEGIN_MS + 10_200)
    assert holding.lease_end_ms == BEGIN_MS + 10_000 + USABLE_MS


def test_a_push_renews_nothing() -> None:
    holding = holding_of({3: 1})

    holding.receive(told({3: 1, 4: 1}, generation=2), BEGIN_MS + 9_000)

    assert holding.lease_end_ms == BEGIN_MS + USABLE_MS


def test_an_answer_doubled_or_never_asked_for_renews_nothing() -> None:
    holding = holding_of({3: 1})

    holding.receive(told({3: 1}, seq=0), BEGIN_MS + 9_000)
    holding.receive(told({3: 1}, seq=44), BEGIN_MS + 9_000)

    assert holding.lease_end_ms == BEGIN_MS + USABLE_MS


def test_an_answer_that_knows_less_still_renews_the_lease() -> None:
    holding = holding_of({3: 1}, generation=5)
    beat_at(holding, BEGIN_MS + 5_000)

    assert holding.receive(told({}, generation=4, seq=1), BEGIN_MS + 5_100) == []
    assert holding.lease_end_ms == BEGIN_MS + 5_000 + USABLE_MS
    assert holding.is_acting(3, BEGIN_MS + 5_100)


def test_a_shorter_lease_is_believed_at_once() -> None:
    holding = holding_of({3: 1})
    beat_at(holding, BEGIN_MS + 5_000)

    (lost,) = holding.receive(told({3: 1}, seq=1, lease_ms=2_000), BEGIN_MS + 8_000)

    assert isinstance(lost, Lost)


def test_when_the_lease_is_over_everything_is_lost_once() -> None:
    holding = holding_of({5: 2, 3: 1})
    end_ms = BEGIN_MS + USABLE_MS

    assert holding.next_moment_ms() is not None
    assert holding.expire(end_ms - 1) == []
    assert holding.expire(end_ms) == [Lost((3, 5), (1, 2), Loss.EXPIRED)]
    assert holding.expire(end_ms + 1) == []
    assert holding.is_over
    assert holding.next_moment_ms() is None


def test_a_member_that_slept_past_its_lease_says_nothing_in_its_old_name() -> None:
    holding = holding_of({3: 1})

    steps = holding.tick(BEGIN_MS + 40_000)

    assert steps == [Lost((3,), (1,), Loss.EXPIRED)]
    assert holding.tick(BEGIN_MS + 41_000) == []
    assert holding.receive(told({3: 1}, generation=9), BEGIN_MS + 41_000) == []
    assert holding.activate(3) == []
    assert holding.let_go(3) == []
    assert holding.leave() == []


def test_no_answer_revives_a_lease_that_is_over() -> None:
    holding = holding_of({3: 1})
    beat_at(holding, BEGIN_MS + 5_000)
    woken_ms = BEGIN_MS + USABLE_MS

    steps = holding.receive(told({}, generation=2, seq=1), woken_ms)

    assert steps == [Lost((3,), (1,), Loss.EXPIRED)]


@pytest.mark.parametrize(
    ("status", "loss"), [("fenced", Loss.FENCED), ("reregister", Loss.FORGOTTEN)]
)
def test_a_member_that_is_turned_away_loses_everything_at_once(
    status: Literal["fenced", "reregister"], loss: Loss
) -> None:
    holding = holding_of({3: 1, 5: 2})

    steps = holding.receive(told(status=status, generation=0), BEGIN_MS + 1)

    assert steps == [Lost((3, 5), (1, 2), loss, "go")]
    assert not holding.is_acting(3, BEGIN_MS + 1)
    assert holding.is_over


# --- generations --------------------------------------------------------------------------------


def test_an_older_generation_is_old_news() -> None:
    holding = holding_of({3: 1}, generation=5)

    assert holding.receive(told({3: 1, 4: 1}, generation=4), BEGIN_MS) == []
    assert holding.receive(told({}, generation=5), BEGIN_MS) == []
    assert set(holding.held) == {3}
    assert holding.generation == 5


@given(st.permutations(range(6)))
def test_in_whatever_order_it_is_told_it_ends_with_the_newest(order: list[int]) -> None:
    generations = [{3: 1}, {3: 1, 4: 1}, {4: 1}, {4: 1, 3: 2}, {3: 2, 5: 1}, {5: 1, 6: 1}]
    holding = holding_of({}, generation=0)

    for number in order:
        steps = holding.receive(told(generations[number], generation=number + 1), BEGIN_MS)
        while steps:
            step = steps.pop()
            if isinstance(step, Assigned):
                steps += holding.activate(step.shard)
            elif isinstance(step, Revoked):
                steps += holding.let_go(step.shard)

    assert {shard: held.epoch for shard, held in holding.held.items()} == {5: 1, 6: 1}
    assert beat_at(holding, BEGIN_MS + INTERVAL_MS).generation == 6


# --- giving up ----------------------------------------------------------------------------------


def test_a_revoked_shard_is_listed_until_it_is_let_go_of() -> None:
    holding = holding_of({3: 1, 5: 1})

    assert holding.receive(told({5: 1}, generation=2, revoking=(3,)), BEGIN_MS) == [Revoked(3, 1)]
    assert holding.is_acting(3, BEGIN_MS + 1)
    beat = beat_at(holding, BEGIN_MS + INTERVAL_MS)
    assert (beat.holds, beat.generation) == ((3, 5), 2)

    assert holding.let_go(3) == []
    assert not holding.is_acting(3, BEGIN_MS + INTERVAL_MS)
    beat = beat_at(holding, BEGIN_MS + INTERVAL_MS)
    assert (beat.holds, beat.generation) == ((5,), 2)


def test_a_shard_that_is_only_just_assigned_is_given_up_after_that() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)
    holding.receive(told({3: 1}, seq=0), BEGIN_MS)

    assert holding.receive(told({}, generation=2, revoking=(3,)), BEGIN_MS) == []
    assert holding.held[3].state is HeldState.ASSIGNED
    assert holding.activate(3) == [Revoked(3, 1)]
    assert holding.let_go(3) == []
    assert holding.held == {}


def test_a_shard_that_comes_back_while_it_is_given_up_is_let_go_of_first() -> None:
    holding = holding_of({3: 1})
    holding.receive(told({}, generation=2, revoking=(3,)), BEGIN_MS)

    assert holding.receive(told({3: 2}, generation=3), BEGIN_MS) == []
    assert holding.epoch_of(3) == 1
    assert holding.let_go(3) == [Assigned(3, 2)]
    assert holding.epoch_of(3) == 2
    assert holding.held[3].state is HeldState.ASSIGNED


def test_a_shard_that_comes_back_and_is_revoked_again_is_given_up_once() -> None:
    holding = holding_of({3: 1})
    holding.receive(told({}, generation=2, revoking=(3,)), BEGIN_MS)
    holding.receive(told({3: 2}, generation=3), BEGIN_MS)

    assert holding.receive(told({}, generation=4, revoking=(3,)), BEGIN_MS) == []
    assert holding.let_go(3) == []
    assert holding.held == {}


def test_what_is_being_given_up_is_not_taken_back_under_the_same_epoch() -> None:
    holding = holding_of({3: 1})
    holding.receive(told({}, generation=2, revoking=(3,)), BEGIN_MS)

    assert holding.receive(told({3: 1}, generation=3), BEGIN_MS) == []
    assert holding.let_go(3) == []
    assert holding.held == {}


def test_a_new_epoch_of_an_active_shard_means_giving_it_up_and_starting_anew() -> None:
    holding = holding_of({3: 1})

    assert holding.receive(told({3: 2}, generation=2), BEGIN_MS) == [Revoked(3, 1)]
    assert holding.let_go(3) == [Assigned(3, 2)]


def test_what_was_revoked_is_lost_with_the_rest() -> None:
    holding = holding_of({3: 1, 5: 1})
    holding.receive(told({5: 1}, generation=2, revoking=(3,)), BEGIN_MS)

    assert holding.expire(BEGIN_MS + LEASE_MS) == [Lost((3, 5), (1, 1), Loss.EXPIRED)]


# --- talking ------------------------------------------------------------------------------------


def test_an_answered_member_beats_as_often_as_it_was_asked_to() -> None:
    holding = holding_of({3: 1})

    assert holding.next_moment_ms() == BEGIN_MS + INTERVAL_MS
    assert holding.tick(BEGIN_MS + INTERVAL_MS - 1) == []
    beat = beat_at(holding, BEGIN_MS + INTERVAL_MS)

    assert (beat.seq, beat.holds, beat.generation, beat.incarnation) == (1, (3,), 1, "7")
    assert not beat.draining


def test_an_unanswered_member_beats_more_often_from_the_middle_of_its_lease() -> None:
    holding = holding_of({3: 1})
    moments = []
    while not holding.is_over:
        moment_ms = holding.next_moment_ms()
        assert moment_ms is not None
        moments.append(moment_ms - BEGIN_MS)
        holding.tick(moment_ms)

    middle_ms, hurry_ms = USABLE_MS - USABLE_MS // 2, INTERVAL_MS // 4
    hurried = [middle_ms + hurry_ms * number for number in range(6)]
    assert moments == [INTERVAL_MS, *hurried, USABLE_MS]


def test_what_was_let_go_of_is_told_at_once_and_again_until_answered() -> None:
    holding = holding_of({3: 1})
    now_ms = BEGIN_MS + 1_000
    holding.receive(told({}, generation=2, revoking=(3,)), now_ms)
    holding.let_go(3)

    assert beat_at(holding, now_ms).holds == ()
    assert holding.next_moment_ms() == now_ms + RETRY_MS
    again = beat_at(holding, now_ms + RETRY_MS)
    holding.receive(told({}, generation=3, seq=again.seq), now_ms + RETRY_MS + 10)
    assert holding.next_moment_ms() == now_ms + RETRY_MS + INTERVAL_MS


def test_shards_let_go_of_in_a_row_are_told_together() -> None:
    shards = dict.fromkeys(range(4), 1)
    holding = holding_of(shards)
    now_ms = BEGIN_MS + 1_000
    holding.receive(told({}, generation=2, revoking=tuple(shards)), now_ms)

    holding.let_go(0)
    assert beat_at(holding, now_ms).holds == (1, 2, 3)
    holding.let_go(1)
    holding.let_go(2)
    assert holding.next_moment_ms() == now_ms + GATHER_MS
    holding.let_go(3)
    assert beat_at(holding, now_ms + 1).holds == ()


def test_a_shard_asked_back_before_it_was_known_is_answered_for_at_once() -> None:
    holding = holding_of({3: 1})
    now_ms = BEGIN_MS + 1_000

    assert holding.receive(told({3: 1}, generation=4, revoking=(8,)), now_ms) == []
    beat = beat_at(holding, now_ms)
    assert (beat.holds, beat.generation) == ((3,), 4)


def test_a_changed_count_is_named_by_the_next_beat() -> None:
    holding = holding_of({3: 1})
    holding.shard_count = 20

    assert beat_at(holding, BEGIN_MS + INTERVAL_MS).shard_count == 20


def test_only_so_many_unanswered_messages_are_remembered() -> None:
    holding = begun()
    for number in range(MAX_UNANSWERED + 1):
        holding.tick(BEGIN_MS + number * RETRY_MS)
    now_ms = BEGIN_MS + MAX_UNANSWERED * RETRY_MS

    assert holding.receive(told({3: 1}, seq=0, lease_ms=10**9), now_ms) == []
    assert holding.receive(told({3: 1}, seq=1, lease_ms=10**9), now_ms) == [Assigned(3, 1)]


# --- leaving ------------------------------------------------------------------------------------


def test_a_draining_member_says_so_and_stays_while_it_holds_something() -> None:
    holding = holding_of({3: 1})
    now_ms = BEGIN_MS + 1_000

    holding.drain()
    assert beat_at(holding, now_ms).draining
    holding.receive(told({}, generation=2, revoking=(3,)), now_ms)

    assert not holding.may_leave


def test_a_draining_member_may_leave_when_it_holds_nothing() -> None:
    holding = holding_of({3: 1})
    holding.drain()
    holding.receive(told({}, generation=2, revoking=(3,)), BEGIN_MS)
    holding.let_go(3)

    assert holding.may_leave
    leave = LeaveMember(service="orders", worker_id="a", incarnation="7")
    assert holding.leave() == [Send(leave)]
    assert holding.is_over


def test_a_member_that_leaves_in_a_hurry_loses_what_it_holds_first() -> None:
    holding = holding_of({3: 1})

    lost, sent = holding.leave()

    assert lost == Lost((3,), (1,), Loss.LEFT)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, LeaveMember)
    assert not holding.is_acting(3, BEGIN_MS)


def test_a_member_that_drains_before_it_is_known_says_so_as_soon_as_it_is() -> None:
    holding = begun()
    holding.tick(BEGIN_MS)
    holding.drain()
    holding.receive(told({3: 1}, seq=0), BEGIN_MS + 10)

    assert beat_at(holding, BEGIN_MS + 10).draining
