"""Times and incarnations that arrive out of order."""

from rota.core.shards.decisions import GrantShards
from tests.core.shards.driving import COUNT, POLICY, Drive, together

ALL = tuple(range(COUNT))
HOUR_MS = 3_600_000


def test_a_clock_set_back_over_a_restart_keeps_no_dead_member() -> None:
    drive = together("w1", "w2")
    drive.now_ms -= HOUR_MS
    drive.restart()

    drive.wait(POLICY.expiry_ms + 2 * POLICY.sweep_ms, ["w2"])

    assert list(drive.service.members) == ["w2"]
    assert drive.all_told() == {"w2": ALL}


def test_a_takeover_hands_nothing_on_even_when_a_rebalance_is_due() -> None:
    """The one before may live: its register was heard before that of an even older one."""
    drive = Drive()
    drive.register("w1", incarnation="later")
    drive.register("w2")
    drive.now_ms += POLICY.join_quiet_ms

    drive.register("w1", incarnation="earlier")

    grants = drive.made(GrantShards)
    assert [grant.worker_id for grant in grants] == ["w1"]
    assert drive.told("w2") == ()
    drive.wait(POLICY.expiry_ms + 2 * POLICY.sweep_ms, ["w2"])
    assert drive.told("w2") == ALL
