"""Registration: new and returning members, and the wait for the first answer."""

import pytest

from rota.core.shards import membership
from rota.core.shards.decisions import GrantShards, NoteBeat, PutMember, Rebalanced, ReleaseShards
from rota.core.shards.members import OLD_PROTOCOL, ShardPolicy
from rota.errors import TooMany
from tests.core.shards.driving import COUNT, POLICY, Drive, together

ALL = tuple(range(COUNT))


# --- newcomers ----------------------------------------------------------------------------------


def test_a_lone_member_is_given_everything_at_once() -> None:
    drive = Drive()

    reply = drive.register("w1", seq=7)

    assert (reply.shards, reply.epochs, reply.revoking) == (ALL, (1,) * COUNT, ())
    assert (reply.status, reply.seq, reply.generation) == ("ok", 7, 1)
    assert (reply.lease_ms, reply.heartbeat_interval_ms) == (15_000, 5_000)
    assert drive.rebalances == [Rebalanced("feed", moved=0, placed=COUNT)]


def test_those_who_come_together_are_given_their_parts_together() -> None:
    drive = Drive()
    drive.register("a")

    drive.register("b")
    drive.now_ms += 200
    drive.register("c")
    assert drive.service.rebalance_at_ms == drive.now_ms + POLICY.join_quiet_ms
    drive.now_ms += POLICY.join_quiet_ms - 1
    drive.sweep()
    assert len(drive.rebalances) == 1
    drive.now_ms += 1
    drive.sweep()

    assert drive.rebalances[1:] == [Rebalanced("feed", moved=6, placed=0)]
    assert drive.service.revoked_from("a") == (4, 5, 6, 7, 8, 9)
    drive.beat("a")
    assert drive.all_told() == {"a": (0, 1, 2, 3), "b": (4, 5, 6), "c": (7, 8, 9)}
    assert drive.changed == {"a", "b", "c"}


def test_those_who_wait_do_not_wait_for_ever_for_more() -> None:
    drive = together("w1")
    first_ms = drive.now_ms

    for number in range(POLICY.join_most_ms // 100):
        drive.register(f"x{number}")
        drive.now_ms += 100

    assert len(drive.rebalances) == 1
    assert drive.service.rebalance_at_ms == first_ms + POLICY.join_most_ms
    drive.register("late")
    drive.sweep()
    assert len(drive.rebalances) == 2
    assert drive.service.targeted["late"]


def test_an_urgent_rebalance_that_is_due_comes_with_any_event() -> None:
    drive = together("w1", "w2")
    drive.drain("w1")

    drive.now_ms += POLICY.leave_quiet_ms
    reply = drive.beat("w1")

    assert reply.revoking == (0, 1, 2, 3, 4)


def test_one_that_joins_late_waits_for_those_behind_it() -> None:
    drive = together("w1")
    drive.register("w2")

    # All of these were heard only now, whenever they came.
    drive.now_ms += POLICY.join_quiet_ms + 1
    for number in range(3, 6):
        drive.register(f"w{number}")
        drive.beat("w1")
    drive.sweep()
    assert len(drive.rebalances) == 1
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()

    assert drive.rebalances[1:] == [Rebalanced("feed", moved=8, placed=0)]


def test_no_quiet_time_passes_while_nobody_can_be_heard() -> None:
    drive = together("w1")
    drive.register("w2")

    drive.now_ms += 5 * POLICY.join_quiet_ms
    drive.sweep(deaf_until_ms=drive.now_ms - 10)
    assert len(drive.rebalances) == 1
    assert drive.next_moment_ms() == drive.now_ms - 10 + POLICY.join_quiet_ms
    drive.register("w3")
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep(deaf_until_ms=drive.now_ms - POLICY.join_quiet_ms)

    assert drive.rebalances[1:] == [Rebalanced("feed", moved=6, placed=0)]


def test_being_deaf_again_and_again_does_not_put_off_a_rebalance_for_ever() -> None:
    drive = together("w1")
    drive.register("w2")
    first_ms = drive.now_ms

    while len(drive.rebalances) == 1:
        drive.now_ms += 100
        drive.sweep(deaf_until_ms=drive.now_ms)

    assert drive.now_ms == first_ms + POLICY.join_most_ms


def test_being_deaf_puts_off_nothing_that_somebody_waits_for() -> None:
    drive = together("w1", "w2")
    drive.register("w3")
    drive.leave("w2")

    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep(deaf_until_ms=drive.now_ms)

    assert drive.told("w3") == (5, 6, 7, 8, 9)


def test_grants_and_revokes_of_one_event_share_a_generation() -> None:
    drive = together("w1")
    drive.register("w2", max_shards=2)
    drive.configure(shard_count=COUNT + 1)
    before = drive.service.generation

    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()

    assert {told.generation for told in drive.pushed().values()} == {before + 1}
    assert drive.pushed()["w1"].revoking == (9,)
    assert drive.pushed()["w2"].shards == (10,)


def test_every_event_has_a_generation_of_its_own_even_in_one_batch() -> None:
    drive = together("w1", "w2")
    before = drive.service.generation

    drive.register("w1", incarnation="2")
    drive.register("w1", incarnation="3")

    assert drive.service.generation == before + 2


def test_a_service_takes_only_so_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MAX_MEMBERS", 2)
    drive = together("w1", "w2")

    with pytest.raises(TooMany, match="2 members already"):
        drive.register("w3")
    with pytest.raises(TooMany):
        drive.beat("w3")

    assert drive.service.take_decisions() == []
    assert drive.register("w1", incarnation="2").status == "ok"


def test_a_service_refuses_protocols_that_are_too_old() -> None:
    drive = Drive()
    drive.configure(shard_count=COUNT, min_protocol=2)

    registered = drive.register("w1", protocol=OLD_PROTOCOL)
    beaten = drive.beat("w1", protocol=OLD_PROTOCOL)

    assert [one.status for one in (registered, beaten)] == ["fenced", "fenced"]
    assert registered.reason == "the service takes workers of protocol 2 and later"
    assert (registered.shards, registered.protocol) == ((), OLD_PROTOCOL)
    assert drive.service.members == {}


# --- coming back --------------------------------------------------------------------------------


def test_the_same_register_again_is_answered_the_same() -> None:
    drive = together("w1", "w2")
    drive.now_ms += 1_000

    reply = drive.register("w1", shard_count=COUNT)

    assert reply.shards == drive.told("w1")
    assert drive.decisions == [NoteBeat("feed", "w1", drive.now_ms)]


def test_a_late_register_does_not_bring_back_an_old_count() -> None:
    drive = together("w1", "w2")
    drive.beat("w1", shard_count=20)

    drive.register("w1", shard_count=COUNT)

    assert drive.service.shard_count == 20
    assert drive.service.members["w1"].reported_count == 20


def test_a_new_incarnation_takes_over_at_once_and_moves_nothing() -> None:
    drive = together("w1", "w2")
    before = drive.all_told()
    drive.now_ms += 100

    reply = drive.register("w1", incarnation="2")

    assert drive.all_told() == before
    assert (reply.shards, reply.epochs) == (before["w1"], (2,) * 5)
    assert drive.made(ReleaseShards)[0].shards == before["w1"]
    assert drive.changed == {"w1"}
    member = drive.service.members["w1"]
    assert (member.incarnation, member.replaced) == ("2", ("1",))
    assert (member.joined_ms, member.seen_ms) == (drive.now_ms, drive.now_ms)
    drive.settle()
    assert drive.all_told() == before
    assert len(drive.rebalances) == 2


def test_what_the_old_incarnation_was_to_give_up_stays_with_the_name_for_now() -> None:
    drive = together("w1")
    drive.register("w2")
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    assert drive.told("w2") == ()

    reply = drive.register("w1", incarnation="2")

    # The old one may live yet, if the two were heard in the wrong order.
    assert (reply.shards, reply.revoking) == (tuple(range(10)), ())
    assert not drive.service.revoking
    drive.settle()
    assert drive.told("w2") == (5, 6, 7, 8, 9)


def test_a_new_incarnation_starts_undrained_and_unfenced_with_its_own_weight() -> None:
    drive = together("w1", "w2")
    drive.drain("w1")
    drive.settle()
    assert drive.told("w1") == ()

    drive.register("w1", incarnation="2", weight=4_000)
    drive.settle()

    assert not drive.service.members["w1"].draining
    assert {one: len(shards) for one, shards in drive.all_told().items()} == {"w1": 8, "w2": 2}


@pytest.mark.parametrize(
    ("current", "given"), [("10", "9"), ("b", "a"), ("0010", "9")], ids=["number", "name", "zeros"]
)
def test_an_older_incarnation_is_fenced_and_changes_nothing(current: str, given: str) -> None:
    drive = together("w1", incarnation=given)
    drive.register("w1", incarnation=current)

    registered = drive.register("w1", incarnation=given, seq=3)
    beaten = drive.beat("w1", incarnation=given)

    assert [one.status for one in (registered, beaten)] == ["fenced", "fenced"]
    assert (registered.shards, registered.incarnation, registered.seq) == ((), given, 3)
    assert drive.decisions == []
    assert drive.service.members["w1"].incarnation == current


def test_a_smaller_number_that_was_never_seen_is_older_too() -> None:
    drive = together("w1", incarnation="10")

    assert drive.register("w1", incarnation="9").status == "fenced"
    assert drive.register("w1", incarnation="11").status == "ok"


def test_only_the_last_incarnations_are_remembered() -> None:
    drive = Drive()

    for number in range(30):
        drive.register("w1", incarnation=f"i{number}")

    assert drive.service.members["w1"].replaced == tuple(f"i{one}" for one in range(13, 29))


def test_weight_and_limit_count_from_a_register_that_comes_after_the_beat() -> None:
    drive = together("w1")
    drive.beat("w2", holds=())

    drive.register("w2", weight=4_000)
    drive.settle()

    assert len(drive.told("w2")) == 8


# --- two protocols under one name ---------------------------------------------------------------


def test_an_old_client_does_not_take_the_name_of_a_newer_one() -> None:
    drive = together("w1")

    registered = drive.register("w1", protocol=OLD_PROTOCOL)
    beaten = drive.beat("w1", protocol=OLD_PROTOCOL)

    assert [one.status for one in (registered, beaten)] == ["fenced", "fenced"]
    assert drive.decisions == []


def test_a_worker_that_learned_the_new_protocol_takes_over_from_its_old_self() -> None:
    drive = together("w1", protocol=OLD_PROTOCOL)

    reply = drive.register("w1", protocol=2, incarnation="1")

    assert (reply.shards, reply.epochs) == (ALL, (2,) * COUNT)
    assert drive.service.members["w1"].replaced == ("",)


# --- old clients, which may read only once ------------------------------------------------------


def test_an_old_client_waits_for_its_first_shards() -> None:
    drive = together("w1")

    reply = drive.register("old", protocol=OLD_PROTOCOL)
    assert (reply.is_pending, reply.shards) == (True, ())
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    assert drive.changed == {"w1"}
    drive.now_ms += 100
    drive.beat("w1")

    assert drive.pushed()["old"].shards == (5, 6, 7, 8, 9)
    assert not drive.pushed()["old"].is_pending
    assert drive.service.protocol_states["old"].pending_since_ms is None


def test_an_old_client_that_asks_again_keeps_its_place() -> None:
    drive = together("w1")
    drive.register("old", protocol=OLD_PROTOCOL)
    since_ms = drive.now_ms

    drive.now_ms += 100
    reply = drive.register("old", protocol=OLD_PROTOCOL)

    assert reply.is_pending
    assert drive.service.protocol_states["old"].pending_since_ms == since_ms


def test_an_old_client_is_answered_after_one_lease_at_the_latest() -> None:
    drive = together("w1", policy=ShardPolicy(stuck_ms=60_000))
    drive.register("old", protocol=OLD_PROTOCOL)
    since_ms = drive.now_ms

    while "old" not in drive.changed:
        drive.now_ms += 500
        drive.beat("w1", holds=ALL)
        drive.sweep()

    assert drive.now_ms == since_ms + POLICY.lease_ms
    assert drive.pushed()["old"].shards == ()
    assert drive.service.protocol_states["old"].pending_since_ms is None


def test_the_lease_of_an_old_client_begins_with_its_answer() -> None:
    drive = together("w1", policy=ShardPolicy(stuck_ms=60_000))
    drive.register("old", protocol=OLD_PROTOCOL)
    for _ in range(28):
        drive.now_ms += 500
        drive.beat("w1", holds=ALL)
        drive.sweep()
    drive.beat("w1")
    assert drive.pushed()["old"].shards == (5, 6, 7, 8, 9)

    drive.wait(10_000, ["w1"])

    assert drive.told("old") == (5, 6, 7, 8, 9)
    drive.wait(6_000, ["w1"])
    assert "old" not in drive.service.members


def test_an_old_client_does_not_expire_while_it_waits() -> None:
    drive = together("w1", policy=ShardPolicy(stuck_ms=60_000))
    drive.register("old", protocol=OLD_PROTOCOL)
    since_ms = drive.now_ms
    for _ in range(29):
        drive.now_ms += 500
        drive.beat("w1", holds=ALL)
        drive.sweep()

    drive.now_ms = since_ms + POLICY.expiry_ms
    drive.sweep()

    assert drive.pushed()["old"].shards == ()
    assert drive.service.members["old"].seen_ms == drive.now_ms


def test_an_old_client_that_gets_nothing_is_told_so_by_the_rebalance() -> None:
    drive = Drive(shard_count=1)
    drive.register("w1")

    assert drive.register("w2", protocol=OLD_PROTOCOL).is_pending
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()

    assert drive.pushed()["w2"].shards == ()
    assert not drive.register("w2").is_pending


def test_an_old_client_that_registers_again_is_told_what_it_has() -> None:
    drive = together("old", protocol=OLD_PROTOCOL)
    drive.now_ms += 1_000

    reply = drive.register("old", protocol=OLD_PROTOCOL)

    assert reply.shards == ALL
    assert drive.decisions == [NoteBeat("feed", "old", drive.now_ms)]


def test_a_restart_forgets_who_waits_and_a_new_register_waits_again() -> None:
    drive = together("w1")
    drive.register("old", protocol=OLD_PROTOCOL)

    drive.restart()
    reply = drive.register("old", protocol=OLD_PROTOCOL)

    assert reply.is_pending
    drive.settle(["w1"])
    assert drive.told("old") == (5, 6, 7, 8, 9)


# --- unknown workers that beat ------------------------------------------------------------------


def test_an_unknown_worker_keeps_what_nobody_else_owns() -> None:
    drive = Drive()

    reply = drive.beat("w1", holds=(2, 3, 99))

    assert reply.shards == (2, 3)
    assert [grant.shards for grant in drive.made(GrantShards)] == [(2, 3)]


def test_an_unknown_worker_is_not_given_what_others_own() -> None:
    drive = together("w1", "w2")
    drive.leave("w1")

    reply = drive.beat("w3", holds=(0, 1, 5, 6))

    assert reply.shards == (0, 1)
    drive.settle()
    assert drive.all_told() == {"w2": (5, 6, 7, 8, 9), "w3": (0, 1, 2, 3, 4)}


def test_a_fleet_that_we_have_forgotten_moves_nothing_when_it_is_heard_of() -> None:
    drive = Drive()
    drive.configure(shard_count=9)
    drive.beat("w0", holds=(0, 1, 2), shard_count=9)
    # The first is given everything, and gives it up again.
    drive.beat("w1", holds=(3, 4, 5), shard_count=9)
    drive.beat("w2", holds=(6, 7, 8), shard_count=9)
    drive.shard_count = 9
    drive.settle()

    assert drive.all_told() == {"w0": (0, 1, 2), "w1": (3, 4, 5), "w2": (6, 7, 8)}


def test_a_new_incarnation_that_beats_before_it_registers_takes_over() -> None:
    drive = together("w1", "w2", weight=2_000)

    reply = drive.beat("w1", incarnation="2", holds=ALL, seq=1)

    assert (reply.shards, reply.epochs, reply.status) == ((0, 1, 2, 3, 4), (2,) * 5, "ok")
    member = drive.service.members["w1"]
    assert (member.incarnation, member.weight) == ("2", 2_000)
    assert drive.service.protocol_states["w1"].seq == 1
    assert [one.member.incarnation for one in drive.made(PutMember)] == ["2"]
