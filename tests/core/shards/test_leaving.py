"""Leaves, drains, and the configuration by operators."""

import pytest

from rota.core.shards.decisions import PutService, ReleaseShards, RemoveMember
from rota.core.shards.members import OLD_PROTOCOL, Departure
from rota.errors import MemberNotFound
from tests.core.shards.driving import COUNT, POLICY, Drive, together

ALL = tuple(range(COUNT))


# --- leaving ------------------------------------------------------------------------------------


def test_what_a_leaving_member_had_goes_to_the_others_in_no_time() -> None:
    drive = together("w1", "w2", "w3")
    before = drive.all_told()

    drive.leave("w1", incarnation="1")
    assert drive.made(RemoveMember) == [RemoveMember("feed", "w1", "1", Departure.LEFT)]
    assert not drive.made(ReleaseShards)[0].forced
    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep()

    after = drive.all_told()
    assert {shard for shards in after.values() for shard in shards} == {*ALL}
    assert {*before["w2"]} <= {*after["w2"]}
    assert {*before["w3"]} <= {*after["w3"]}


@pytest.mark.parametrize("incarnation", ["0", "2"])
def test_the_leave_of_another_incarnation_is_ignored(incarnation: str) -> None:
    drive = together("w1")

    drive.leave("w1", incarnation=incarnation)

    assert drive.decisions == []


def test_the_leave_of_a_stranger_is_ignored() -> None:
    drive = together("w1")

    drive.leave("w2")

    assert drive.decisions == []


def test_several_that_leave_are_one_rebalance() -> None:
    drive = together("w1", "w2", "w3", "w4")
    before = len(drive.rebalances)

    drive.leave("w1")
    drive.now_ms += 10
    drive.leave("w2")
    drive.now_ms += 40
    drive.sweep()

    assert len(drive.rebalances) == before + 1
    assert {len(shards) for shards in drive.all_told().values()} == {5}


def test_a_join_does_not_put_off_what_a_leave_has_asked_for() -> None:
    drive = together("w1", "w2")
    drive.leave("w1")
    left_ms = drive.now_ms

    drive.now_ms += 20
    drive.register("w3")

    assert drive.service.rebalance_at_ms == left_ms + POLICY.leave_quiet_ms


def test_the_last_to_leave_leaves_the_epochs_behind() -> None:
    drive = together("w1")

    drive.leave("w1")
    drive.settle()
    drive.register("w2")

    assert drive.service.assigned_to("w2") == (ALL, (2,) * COUNT)


# --- draining -----------------------------------------------------------------------------------


def test_a_drained_member_gives_everything_up_and_stays() -> None:
    drive = together("w1", "w2")

    drive.drain("w1")
    assert drive.service.rebalance_at_ms == drive.now_ms + POLICY.leave_quiet_ms
    drive.settle()

    assert drive.all_told() == {"w1": (), "w2": ALL}
    assert drive.service.members["w1"].draining


def test_a_member_may_have_shards_again() -> None:
    drive = together("w1", "w2")
    drive.drain("w1")
    drive.settle()

    drive.drain("w1", draining=False)
    drive.settle()

    assert {len(shards) for shards in drive.all_told().values()} == {5}


def test_draining_a_draining_member_changes_nothing() -> None:
    drive = together("w1", "w2")
    drive.drain("w1")

    drive.drain("w1")

    assert drive.decisions == []


def test_when_all_drain_the_shards_are_nobodys() -> None:
    drive = together("w1", "w2")

    drive.drain("w1")
    drive.drain("w2")
    drive.settle()

    assert drive.all_told() == {"w1": (), "w2": ()}
    assert drive.service.unowned() == COUNT
    drive.register("w3")
    drive.settle()
    assert drive.told("w3") == ALL


def test_nobody_can_drain_a_stranger() -> None:
    drive = together("w1")

    with pytest.raises(MemberNotFound, match="'w2' not found"):
        drive.drain("w2")

    assert drive.service.take_decisions() == []


# --- protocols ----------------------------------------------------------------------------------


def test_members_whose_protocol_is_no_longer_taken_are_put_out() -> None:
    drive = together("w1")
    drive.register("old", protocol=OLD_PROTOCOL)
    drive.settle()

    drive.configure(min_protocol=2)

    assert drive.made(RemoveMember) == [RemoveMember("feed", "old", "", Departure.REFUSED)]
    assert drive.made(ReleaseShards) == [ReleaseShards("feed", "old", ALL[5:], forced=True)]
    drive.settle()
    assert drive.all_told() == {"w1": ALL}


def test_what_is_not_said_stays_as_it_is() -> None:
    drive = Drive()
    drive.configure(shard_count=5, pinned=True, min_protocol=2)

    drive.configure()

    assert drive.decisions == [
        PutService(name="feed", shard_count=5, pinned=True, min_protocol=2, generation=0)
    ]
