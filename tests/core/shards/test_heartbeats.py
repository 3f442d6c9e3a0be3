"""Heartbeats: leases, duplicates, and the release of revoked shards."""

import pytest

from rota.core.shards.decisions import GrantShards, NoteBeat, ReleaseShards
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL, ShardPolicy
from rota.core.workers.model import HealthPolicy
from tests.core.shards.driving import COUNT, POLICY, Drive, together

ALL = tuple(range(COUNT))
LOWER, UPPER = ALL[:5], ALL[5:]


def asked_back(protocol: int = PROTOCOL) -> Drive:
    """w1 had everything, and is to give the upper half to w2."""
    drive = together("w1", protocol=protocol)
    drive.register("w2")
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    assert drive.service.revoked_from("w1") == UPPER
    return drive


# --- nothing new --------------------------------------------------------------------------------


def test_a_beat_renews_the_lease_and_says_what_there_is() -> None:
    drive = together("w1", "w2")
    drive.now_ms += 5_000

    reply = drive.beat("w1", seq=3)

    assert (reply.shards, reply.seq, reply.status) == (LOWER, 3, "ok")
    assert drive.decisions == [NoteBeat("feed", "w1", drive.now_ms)]
    assert drive.service.members["w1"].seen_ms == drive.now_ms
    assert drive.changed == set()


@pytest.mark.parametrize("seq", [4, 5])
def test_a_beat_that_is_late_or_doubled_is_answered_and_does_nothing(seq: int) -> None:
    drive = asked_back()
    drive.beat("w1", seq=5, holds=ALL)
    drive.now_ms += 1_000

    reply = drive.beat("w1", seq=seq, holds=(), shard_count=20, draining=True)

    assert (reply.shards, reply.revoking, reply.seq) == (LOWER, UPPER, seq)
    assert drive.decisions == []


def test_a_beat_is_accepted_anew_after_a_restart() -> None:
    drive = together("w1")
    drive.beat("w1", seq=5)

    drive.restart()
    drive.beat("w1", seq=5)

    assert NoteBeat("feed", "w1", drive.now_ms) in drive.decisions


def test_numbers_begin_anew_with_a_new_incarnation() -> None:
    drive = together("w1")
    drive.beat("w1", seq=5)
    drive.register("w1", incarnation="2", seq=100)

    drive.beat("w1", seq=1)

    assert drive.decisions == [NoteBeat("feed", "w1", drive.now_ms)]


def test_a_shard_that_is_not_listed_is_not_given_up_unless_it_was_asked_back() -> None:
    drive = together("w1", "w2")

    reply = drive.beat("w1", holds=())

    assert reply.shards == LOWER
    assert drive.made(ReleaseShards) == []


def test_what_a_member_lists_beyond_its_own_is_not_given_to_it() -> None:
    drive = together("w1", "w2")

    assert drive.beat("w1", holds=(*ALL, 50)).shards == LOWER


# --- releases -----------------------------------------------------------------------------------


def test_what_is_not_listed_by_one_who_knows_is_released_and_granted_on() -> None:
    drive = asked_back()

    reply = drive.beat("w1", holds=(*LOWER, 7))

    assert (reply.shards, reply.revoking) == (LOWER, (7,))
    assert drive.made(ReleaseShards) == [ReleaseShards("feed", "w1", (5, 6, 8, 9))]
    assert drive.pushed()["w2"].shards == (5, 6, 8, 9)
    assert drive.pushed()["w2"].epochs == (2,) * 4
    assert drive.made(GrantShards)[0].generation == drive.service.generation


@pytest.mark.parametrize("generation", [None, -1], ids=["none", "older"])
def test_what_is_not_listed_by_one_who_does_not_know_is_kept(generation: int | None) -> None:
    drive = asked_back()
    if generation is not None:
        generation += drive.service.generation

    drive.beat("w1", holds=(), generation=generation)

    assert drive.made(ReleaseShards) == []


def test_a_generation_that_we_have_not_come_to_says_nothing() -> None:
    drive = asked_back()

    drive.beat("w1", holds=(), generation=drive.service.generation + 1)

    assert drive.made(ReleaseShards) == []


def test_an_older_generation_is_enough_for_what_was_asked_back_in_it() -> None:
    drive = asked_back()
    known = drive.service.generation
    drive.register("w3")
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    assert drive.service.revoked_from("w1") == ALL[4:]

    drive.beat("w1", holds=LOWER[:4], generation=known)

    assert drive.service.revoked_from("w1") == (4,)


def test_an_old_client_releases_with_its_second_beat() -> None:
    drive = asked_back(OLD_PROTOCOL)

    first = drive.beat("w1", holds=LOWER)
    assert first.revoking == UPPER
    second = drive.beat("w1", holds=LOWER)

    assert (second.shards, second.revoking) == (LOWER, ())
    assert drive.pushed()["w2"].shards == UPPER


def test_an_old_client_that_still_lists_a_shard_keeps_it() -> None:
    drive = asked_back(OLD_PROTOCOL)

    for _ in range(5):
        drive.beat("w1", holds=(*LOWER, 9))

    assert drive.service.revoked_from("w1") == (9,)


def test_the_beat_that_brings_the_rebalance_is_not_counted_by_old_clients() -> None:
    drive = together("w1", protocol=OLD_PROTOCOL)
    drive.register("w2")
    drive.drain("w1")
    drive.now_ms += POLICY.leave_quiet_ms

    drive.beat("w1", holds=())
    drive.beat("w1", holds=())
    assert drive.service.revoked_from("w1") == ALL
    drive.beat("w1", holds=())

    assert drive.service.revoked_from("w1") == ()


def test_after_a_restart_an_old_client_needs_two_beats_again() -> None:
    drive = asked_back(OLD_PROTOCOL)
    drive.beat("w1", holds=LOWER)

    drive.restart()
    drive.beat("w1", holds=LOWER)
    assert drive.service.revoked_from("w1") == UPPER
    drive.beat("w1", holds=LOWER)

    assert drive.told("w2") == UPPER


def test_a_shard_that_shall_be_its_owners_again_is_released_and_granted_anew() -> None:
    drive = asked_back()
    drive.leave("w2")
    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep()
    assert drive.service.targeted == {"w1": ALL}
    assert drive.service.revoked_from("w1") == UPPER

    reply = drive.beat("w1", holds=LOWER)

    assert (reply.shards, reply.epochs) == (ALL, (1,) * 5 + (2,) * 5)


# --- draining by itself -------------------------------------------------------------------------


def test_a_member_that_says_it_drains_is_rid_of_its_shards() -> None:
    drive = together("w1", "w2")

    drive.beat("w1", draining=True)
    assert drive.service.members["w1"].draining
    drive.now_ms += POLICY.leave_quiet_ms
    drive.sweep()
    drive.beat("w1")

    assert drive.all_told() == {"w1": (), "w2": ALL}
    assert drive.service.members["w1"].draining


# --- who is not listened to ---------------------------------------------------------------------


@pytest.mark.parametrize("message", ["register", "beat"])
def test_an_incarnation_that_has_left_is_fenced(message: str) -> None:
    drive = together("w1", "w2")
    drive.leave("w1")

    say = drive.register if message == "register" else drive.beat
    reply = say("w1", incarnation="1")

    assert (reply.status, reply.shards) == ("fenced", ())
    assert "w1" not in drive.service.members
    assert drive.register("w1", incarnation="2").status == "ok"
    assert drive.service.members["w1"].replaced == ("1",)


def test_an_incarnation_before_one_that_has_expired_is_fenced() -> None:
    drive = together("w1", "w2", incarnation="a")
    drive.register("w1", incarnation="b")
    drive.wait(16_000, ["w2"])
    assert "w1" not in drive.service.members

    assert drive.beat("w1", incarnation="a").status == "fenced"
    assert drive.beat("w1", incarnation="b").status == "ok"


def test_an_old_client_that_left_is_let_in_when_it_registers_or_lists_nothing() -> None:
    drive = together("w1", "w2", protocol=OLD_PROTOCOL)
    drive.leave("w1")

    late = drive.beat("w1", protocol=OLD_PROTOCOL, holds=LOWER)
    assert (late.status, late.shards, late.is_pending) == ("ok", (), False)
    assert "w1" not in drive.service.members
    drive.beat("w1", protocol=OLD_PROTOCOL, holds=())

    assert "w1" in drive.service.members


def test_only_so_many_former_members_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.core.shards.service.MOST_DEPARTED", 2)
    drive = together("w1", "w2", "w3", "w4")

    for worker_id in ("w1", "w2", "w3"):
        drive.leave(worker_id)

    assert list(drive.service.departed) == ["w2", "w3"]


# --- a coordinator that knows nobody ------------------------------------------------------------


@pytest.mark.parametrize("protocol", [OLD_PROTOCOL, PROTOCOL])
def test_all_who_worked_on_under_another_coordinator_keep_what_they_hold(protocol: int) -> None:
    drive = Drive()

    for worker_id, holds in (("w1", (0, 1, 2, 3)), ("w2", (4, 5, 6)), ("w3", (7, 8, 9))):
        drive.beat(worker_id, holds=holds, protocol=protocol)
        drive.now_ms += POLICY.join_most_ms
        drive.sweep()

    assert drive.all_told() == {"w1": (0, 1, 2, 3), "w2": (4, 5, 6), "w3": (7, 8, 9)}


def test_what_nobody_lists_is_given_out_when_all_have_had_time_to_speak() -> None:
    drive = Drive()
    drive.beat("w1", holds=LOWER)
    assert drive.told("w1") == LOWER

    drive.wait(POLICY.lease_ms, beating=["w1"])

    assert drive.told("w1") == ALL


def test_a_lone_stranger_that_holds_nothing_is_given_everything_at_once() -> None:
    drive = Drive()

    assert drive.beat("w1", holds=()).shards == ALL


# --- who is told something new ------------------------------------------------------------------


def test_what_others_are_told_is_no_news_to_a_member() -> None:
    drive = together("w1", "w2", "w3")
    known = drive.beat("w1")
    assert known.changed_in <= known.generation

    drive.register("w2", incarnation="2")
    after = drive.beat("w1")

    assert after.generation > known.generation
    assert after.changed_in == known.changed_in


def test_whatever_changes_for_a_member_is_news_to_it() -> None:
    drive = together("w1")
    granted = drive.beat("w1")
    assert granted.changed_in == granted.generation

    drive.register("w2")
    drive.now_ms += POLICY.join_quiet_ms
    drive.sweep()
    asked = drive.pushed()["w1"]
    assert asked.changed_in == asked.generation > granted.generation
    released = drive.beat("w1")
    assert released.changed_in == released.generation > asked.generation

    drive.restart()
    assert drive.beat("w1").changed_in == released.generation


@pytest.mark.parametrize(
    ("degraded_after", "share"), [(0.5, 0.25), (1.0, 0.5), (2.0, 1.0), (5.0, 1.0)]
)
def test_a_beat_waits_for_news_only_so_long_that_the_next_is_in_time(
    degraded_after: float, share: float
) -> None:
    health = HealthPolicy(degraded_after=degraded_after, unhealthy_after=5.0)
    policy = ShardPolicy(heartbeat_interval_ms=1_000, health=health)

    assert policy.news_wait_ms == 1_000 * share
