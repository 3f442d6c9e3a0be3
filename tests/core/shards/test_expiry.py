"""The passing of time: leases, pauses of the coordinator, and stuck members."""

from rota.core.shards.decisions import PutMember, Rebalanced, ReleaseShards, RemoveMember
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL, Departure, ShardPolicy
from rota.core.shards.reducer import assignment
from tests.core.shards.driving import COUNT, POLICY, Drive, together

ALL = tuple(range(COUNT))
LOWER, UPPER = ALL[:5], ALL[5:]
SHORT = ShardPolicy(stuck_ms=3_000)
FORCED = ShardPolicy(stuck_ms=3_000, when_stuck="force")


# --- leases -------------------------------------------------------------------------------------


def test_a_member_is_gone_when_its_lease_and_a_little_more_is_over() -> None:
    drive = together("w1", "w2")
    drive.beat("w1")
    drive.beat("w2")
    last_ms = drive.now_ms
    drive.wait(14_800, ["w2"])

    drive.now_ms = last_ms + POLICY.expiry_ms - 1
    drive.sweep()
    assert drive.decisions == []
    drive.now_ms += 1
    drive.sweep()

    assert POLICY.expiry_ms == 15_300
    assert drive.made(RemoveMember) == [RemoveMember("feed", "w1", "1", Departure.EXPIRED)]
    assert drive.all_told() == {"w2": ALL}


def test_all_that_go_in_one_sweep_are_one_rebalance_at_once() -> None:
    drive = together("w1", "w2", "w3", "w4")
    before = len(drive.rebalances)

    drive.wait(16_000, ["w4"])

    assert drive.rebalances[before:] == [Rebalanced("feed", moved=0, placed=8)]
    assert drive.all_told() == {"w4": ALL}
    assert drive.service.rebalance_at_ms is None


def test_nobody_is_gone_when_it_was_we_who_were_away() -> None:
    drive = together("w1", "w2")
    drive.wait(10_000, ["w1", "w2"])

    drive.now_ms += 40_000
    drive.sweep()
    assert drive.decisions == []
    drive.wait(POLICY.expiry_ms - 800, ["w2"])
    assert drive.service.members.keys() == {"w1", "w2"}
    drive.wait(1_000, ["w2"])

    assert drive.service.members.keys() == {"w2"}


def test_a_sweep_that_is_a_little_late_is_no_absence() -> None:
    drive = together("w1", "w2")
    drive.wait(14_000, ["w2"])

    drive.now_ms += POLICY.sweep_ms + POLICY.pause_ms
    drive.beat("w2")
    drive.sweep()

    assert drive.service.members.keys() == {"w2"}


def test_after_a_restart_all_leases_begin_anew() -> None:
    drive = together("w1", "w2")
    drive.wait(10_000)

    drive.restart()
    drive.wait(POLICY.expiry_ms - 500)
    assert drive.service.members.keys() == {"w1", "w2"}
    drive.wait(1_000)

    assert drive.service.members.keys() == set()


def test_a_pause_right_after_a_restart_is_an_absence_too() -> None:
    drive = together("w1", "w2")
    drive.restart()

    drive.now_ms += 40_000
    drive.sweep()

    assert drive.service.members.keys() == {"w1", "w2"}


def test_a_clock_that_was_set_back_does_not_keep_the_dead_alive() -> None:
    drive = together("w1", "w2")
    drive.register("old", protocol=OLD_PROTOCOL)

    drive.now_ms -= 3_600_000
    drive.sweep()
    assert {member.seen_ms for member in drive.service.members.values()} == {drive.now_ms}
    drive.wait(16_000, ["w2", "old"])

    assert drive.service.members.keys() == {"w2", "old"}


def test_what_was_asked_back_before_the_clock_was_set_back_is_not_forgotten() -> None:
    drive = stuck(OLD_PROTOCOL, SHORT)

    drive.now_ms -= 3_600_000
    drive.sweep()
    keep(drive, 3_000)

    assert "w1" not in drive.service.members


# --- stuck members ------------------------------------------------------------------------------


def stuck(protocol: int, policy: ShardPolicy) -> Drive:
    """w1 was just asked to give up its upper half."""
    drive = together("w1", policy=policy, protocol=protocol)
    drive.register("w2")
    drive.now_ms += policy.join_quiet_ms
    drive.sweep()
    assert drive.service.revoked_from("w1") == UPPER
    return drive


def keep(drive: Drive, by_ms: int) -> None:
    """Time passes, and w1 beats, but does not give up anything."""
    for _ in range(by_ms // 500):
        drive.now_ms += 500
        drive.beat("w1", holds=ALL)
        drive.beat("w2")
        drive.sweep()


def test_an_old_client_that_gives_nothing_up_is_put_out() -> None:
    drive = stuck(OLD_PROTOCOL, SHORT)

    keep(drive, 2_500)
    assert drive.told("w2") == ()
    keep(drive, 500)

    assert drive.made(RemoveMember) == [RemoveMember("feed", "w1", "", Departure.EVICTED)]
    assert drive.made(ReleaseShards)[0].forced
    assert drive.all_told() == {"w2": ALL}


def test_an_old_client_that_was_put_out_is_let_in_when_it_registers() -> None:
    drive = stuck(OLD_PROTOCOL, SHORT)
    keep(drive, 3_000)

    late = drive.beat("w1", protocol=OLD_PROTOCOL, holds=ALL)
    assert (late.status, late.shards) == ("ok", ())
    assert "w1" not in drive.service.members
    drive.register("w1", protocol=OLD_PROTOCOL)
    drive.settle()

    assert {len(shards) for shards in drive.all_told().values()} == {5}


def test_by_policy_only_what_it_keeps_is_taken_from_an_old_client() -> None:
    drive = stuck(OLD_PROTOCOL, FORCED)

    keep(drive, 3_000)

    assert drive.made(ReleaseShards) == [ReleaseShards("feed", "w1", UPPER, forced=True)]
    assert drive.all_told() == {"w1": LOWER, "w2": UPPER}


def test_a_newer_client_is_fenced_and_keeps_its_shards_until_its_lease_is_over() -> None:
    for policy in (SHORT, FORCED):
        drive = stuck(PROTOCOL, policy)
        keep(drive, 3_000)
        reason = "kept revoked shards for more than 3000 ms"
        assert drive.made(PutMember)[0].member.fenced == reason
        assert drive.pushed()["w1"].status == "fenced"
        fenced_ms = drive.service.members["w1"].seen_ms

        reply = drive.beat("w1", holds=LOWER)
        assert (reply.status, reply.reason, reply.shards) == ("fenced", reason, ())
        assert drive.register("w1").status == "fenced"
        assert drive.decisions == []
        keep(drive, 15_000)
        assert drive.service.owned["w1"] == ALL
        keep(drive, 500)

        assert drive.now_ms == fenced_ms + 15_500
        assert drive.made(RemoveMember) == [RemoveMember("feed", "w1", "1", Departure.EVICTED)]
        assert drive.all_told() == {"w2": ALL}
        assert drive.beat("w1", incarnation="1").status == "fenced"


def test_a_new_incarnation_of_a_fenced_member_is_not_fenced() -> None:
    drive = stuck(PROTOCOL, SHORT)
    keep(drive, 3_000)

    reply = drive.register("w1", incarnation="2")

    assert reply.status == "ok"
    drive.settle()
    assert {len(shards) for shards in drive.all_told().values()} == {5}


def test_a_fenced_member_is_granted_nothing() -> None:
    drive = stuck(PROTOCOL, SHORT)
    keep(drive, 3_000)

    drive.leave("w2")
    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep()

    assert drive.service.targeted == {}
    assert drive.service.revoked_from("w1") == ALL


def test_time_that_we_were_away_does_not_count_against_a_stuck_member() -> None:
    drive = stuck(OLD_PROTOCOL, SHORT)

    drive.now_ms += 10_000
    drive.sweep()
    assert drive.decisions == []
    keep(drive, 2_500)
    assert "w1" in drive.service.members
    keep(drive, 500)

    assert drive.made(RemoveMember) == [RemoveMember("feed", "w1", "", Departure.EVICTED)]


# --- the next moment ----------------------------------------------------------------------------


def test_the_next_moment_is_that_of_the_rebalance() -> None:
    drive = together("w1")
    drive.register("w2")

    assert drive.next_moment_ms() == drive.now_ms + POLICY.join_quiet_ms


def test_the_next_moment_is_when_the_first_lease_is_over() -> None:
    drive = together("w1", "w2")
    drive.beat("w1")
    first_ms = drive.now_ms
    drive.now_ms += 1_000
    drive.beat("w2")

    assert drive.next_moment_ms() == first_ms + POLICY.expiry_ms


def test_the_next_moment_is_when_somebody_is_stuck() -> None:
    drive = stuck(PROTOCOL, SHORT)

    assert drive.next_moment_ms() == drive.now_ms + SHORT.stuck_ms


def test_the_next_moment_is_when_somebody_has_waited_long_enough() -> None:
    drive = together("w1")
    drive.register("old", protocol=OLD_PROTOCOL)
    since_ms = drive.now_ms
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    drive.now_ms += 1_000
    drive.beat("w1", holds=ALL)

    assert drive.next_moment_ms() == since_ms + POLICY.lease_ms


def test_without_members_there_is_no_next_moment() -> None:
    drive = Drive()
    drive.configure(shard_count=5)
    drive.sweep()

    assert drive.next_moment_ms() is None


# --- strangers ----------------------------------------------------------------------------------


def test_who_is_no_member_is_told_to_register() -> None:
    drive = together("w1")

    told = assignment(drive.service, "w2", POLICY)

    assert (told.status, told.shards, told.generation) == ("reregister", (), 1)
