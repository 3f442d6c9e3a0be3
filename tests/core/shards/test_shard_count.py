"""The shard count: changes count, repetitions do not, and an operator may pin it."""

import pytest

from rota.core.limits import MAX_SHARDS
from rota.core.shards.members import OLD_PROTOCOL
from tests.core.shards.driving import COUNT, POLICY, Drive, together


def count_of(drive: Drive) -> int:
    return drive.service.shard_count


# --- news ---------------------------------------------------------------------------------------


def test_the_first_member_says_how_many_shards_there_are() -> None:
    drive = Drive()

    drive.register("w1", shard_count=7)

    assert count_of(drive) == 7
    assert drive.told("w1") == tuple(range(7))


def test_a_member_that_names_another_number_is_heard() -> None:
    drive = together("w1", "w2")

    drive.beat("w1", shard_count=20)

    assert count_of(drive) == 20
    assert drive.service.superseded == (COUNT,)
    assert drive.service.rebalance_at_ms == drive.now_ms + POLICY.leave_quiet_ms


def test_a_member_that_repeats_its_old_number_is_not() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)

    for _ in range(3):
        drive.beat("w2", shard_count=COUNT)
        drive.beat("w1", shard_count=20)

    assert count_of(drive) == 20


def test_a_member_that_changes_its_mind_back_is_heard() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)

    drive.beat("w1", shard_count=COUNT)

    assert count_of(drive) == COUNT
    assert drive.service.superseded == (20,)


@pytest.mark.parametrize("protocol", [OLD_PROTOCOL, 2])
def test_a_newcomer_with_a_new_number_is_heard(protocol: int) -> None:
    drive = together("w1", "w2")

    drive.register("w3", shard_count=20, protocol=protocol)

    assert count_of(drive) == 20


def test_a_newcomer_with_an_old_number_is_not_heard() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)

    drive.register("w3", shard_count=COUNT)

    assert count_of(drive) == 20


def test_a_newcomer_that_is_alone_is_heard_whatever_it_names() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)
    drive.leave("w1")
    drive.leave("w2")

    drive.register("w3", shard_count=COUNT)

    assert count_of(drive) == COUNT
    assert drive.told("w3") == tuple(range(COUNT))


def test_an_incarnation_that_takes_over_is_heard_if_it_names_another_number() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)

    drive.register("w2", incarnation="2", shard_count=COUNT)
    assert count_of(drive) == 20
    drive.register("w2", incarnation="3", shard_count=30)

    assert count_of(drive) == 30


def test_an_old_client_that_registers_again_is_heard() -> None:
    drive = together("w1", "w2", protocol=OLD_PROTOCOL)

    drive.register("w1", shard_count=20)

    assert count_of(drive) == 20


# --- agreement ----------------------------------------------------------------------------------


def test_when_all_that_are_left_name_the_same_number_it_counts() -> None:
    drive = together("w1", "w2")
    drive.register("w3", shard_count=20)

    drive.leave("w3")

    assert count_of(drive) == COUNT


def test_the_silence_of_those_who_disagreed_is_agreement() -> None:
    drive = together("w1", "w2")
    drive.register("w3", shard_count=20)
    drive.settle()

    drive.wait(16_000, ["w1", "w2"])

    assert count_of(drive) == COUNT
    drive.settle()
    assert drive.all_told() == {"w1": (0, 1, 2, 3, 4), "w2": (5, 6, 7, 8, 9)}


def test_a_leave_of_one_who_agreed_does_not_undo_what_an_operator_decided() -> None:
    drive = together("w1", "w2", "w3")
    drive.configure(shard_count=20)

    drive.leave("w3")
    drive.beat("w1")
    drive.register("w4")

    assert count_of(drive) == 20


# --- pins ---------------------------------------------------------------------------------------


def test_a_pinned_number_is_not_for_members_to_change() -> None:
    drive = together("w1", "w2")
    drive.configure(shard_count=20, pinned=True)

    drive.beat("w1", shard_count=30)
    drive.register("w3", shard_count=40)
    drive.leave("w3")

    assert count_of(drive) == 20
    assert drive.service.members["w1"].reported_count == 30


def test_with_the_pin_gone_what_all_members_name_counts() -> None:
    drive = together("w1", "w2")
    drive.configure(shard_count=20, pinned=True)

    drive.configure(pinned=False)

    assert count_of(drive) == COUNT


def test_a_number_given_with_the_pin_taken_out_counts_first() -> None:
    drive = together("w1", "w2")
    drive.configure(shard_count=20, pinned=True)

    drive.configure(pinned=False, shard_count=30)

    assert count_of(drive) == 30


def test_a_service_may_be_pinned_before_it_has_a_number() -> None:
    drive = Drive()
    drive.configure(pinned=True)

    drive.register("w1", shard_count=7)
    drive.register("w2", shard_count=9)

    assert count_of(drive) == 7


def test_a_number_without_a_pin_may_be_changed_by_members() -> None:
    drive = together("w1")

    drive.configure(shard_count=20)
    assert (count_of(drive), drive.service.pinned) == (20, False)
    drive.beat("w1", shard_count=30)

    assert count_of(drive) == 30


# --- growing and shrinking ----------------------------------------------------------------------


def test_a_lone_member_has_the_new_shards_at_once() -> None:
    drive = together("w1")

    assert drive.beat("w1", shard_count=12).shards == tuple(range(12))


def test_growth_moves_nothing_that_is_in_its_place() -> None:
    drive = together("w1", "w2")

    drive.beat("w1", shard_count=12)
    drive.shard_count = 12
    drive.settle()

    assert drive.all_told() == {"w1": (0, 1, 2, 3, 4, 10), "w2": (5, 6, 7, 8, 9, 11)}
    assert (drive.rebalances[-1].moved, drive.rebalances[-1].placed) == (0, 2)


def test_what_is_cut_off_is_asked_back_and_its_epochs_are_remembered() -> None:
    drive = together("w1", "w2")

    drive.configure(shard_count=6)
    assert drive.service.shard_count == 6
    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep()
    assert drive.service.revoked_from("w2") == (6, 7, 8, 9)
    drive.settle()
    assert drive.all_told() == {"w1": (0, 1, 2), "w2": (3, 4, 5)}
    drive.configure(shard_count=COUNT)
    drive.settle()

    assert [drive.service.epochs[shard] for shard in range(6, 10)] == [3, 3, 3, 3]


def test_shards_that_are_cut_off_are_not_granted_any_more() -> None:
    drive = together("w1", "w2")
    drive.configure(shard_count=6)

    drive.register("w2", incarnation="2")

    assert drive.told("w2") == (5,)


def test_a_number_that_is_taken_back_at_once_moves_nothing() -> None:
    drive = together("w1", "w2")
    before = drive.all_told()

    drive.configure(shard_count=6)
    drive.configure(shard_count=COUNT)
    drive.settle()

    assert drive.all_told() == before
    assert len(drive.rebalances) == 2


@pytest.mark.parametrize("shard_count", [0, MAX_SHARDS + 1])
def test_numbers_out_of_range_never_come_this_far(shard_count: int) -> None:
    drive = Drive()

    with pytest.raises(AssertionError):
        drive.register("w1", shard_count=shard_count)
    with pytest.raises(AssertionError):
        drive.configure(shard_count=shard_count)
