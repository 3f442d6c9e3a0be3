"""The knowledge that stays true when another coordinator has changed a service."""

from rota.core.shards.hydration import carry_over, push_due
from tests.core.shards.driving import together


def test_what_others_are_told_elsewhere_is_no_news_to_a_member() -> None:
    drive = together("w1", "w2")
    before = drive.service
    known = before.changed_in("w1")
    drive.restart()  # another coordinator, which has read the same
    drive.register("w2", incarnation="2")

    after = drive.rows.restored(drive.now_ms)
    carry_over(before, after)

    assert after.changed_in("w1") == known < after.generation
    assert after.changed_in("w2") == after.generation
    assert push_due(before, after) == {"w2"}


def test_what_is_asked_back_elsewhere_is_news() -> None:
    drive = together("w1", "w2")
    before = drive.service
    drive.restart()
    drive.drain("w1")
    drive.now_ms += drive.policy.leave_quiet_ms
    drive.sweep()

    after = drive.rows.restored(drive.now_ms)
    carry_over(before, after)

    assert after.revoked_from("w1") == (0, 1, 2, 3, 4)
    assert after.changed_in("w1") == after.generation
    assert push_due(before, after) == {"w1"}
