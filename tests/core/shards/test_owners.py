"""A member belongs to the binding that registered it."""

import msgspec
import pytest

from rota.core.access import LOCAL, Caller, Scope
from rota.core.shards.commands import LeaveMember
from rota.errors import Forbidden
from tests.core.shards.driving import COUNT, Drive

ALL = tuple(range(COUNT))
OF_FEED = Caller(name="feed", scopes=(Scope.WORKER,), queues=(), services=("feed",))
ROTATED = Caller(name="feed-2", scopes=(Scope.WORKER,), queues=(), services=("feed",))
OF_MORE = Caller(name="more", scopes=(Scope.WORKER,), queues=(), services=("feed", "cart"))
OF_ID = Caller(name="id", scopes=(Scope.WORKER,), worker_id="w1")
UNBOUND = Caller(name="any", scopes=(Scope.WORKER,))
LEAVE = LeaveMember(service="feed", worker_id="w1")


@pytest.mark.parametrize("other", [OF_MORE, OF_ID, UNBOUND])
def test_another_binding_neither_takes_over_nor_beats_nor_leaves(other: Caller) -> None:
    drive = Drive()
    drive.register("w1", by=OF_FEED)

    with pytest.raises(Forbidden, match="another binding"):
        drive.register("w1", incarnation="2", by=other)
    with pytest.raises(Forbidden, match="another binding"):
        drive.beat("w1", by=other)
    with pytest.raises(Forbidden, match="another binding"):
        drive.beat("w1", incarnation="2", by=other)
    with pytest.raises(Forbidden, match="another binding"):
        drive.feed(msgspec.structs.replace(LEAVE, by=other))

    assert drive.beat("w1", by=OF_FEED).shards == ALL


@pytest.mark.parametrize("other", [OF_FEED, ROTATED, LOCAL, None])
def test_the_same_binding_an_operator_and_the_coordinator_take_over(other: Caller | None) -> None:
    drive = Drive()
    drive.register("w1", by=OF_FEED)

    assert drive.register("w1", incarnation="2", by=other).shards == ALL
    assert drive.feed(msgspec.structs.replace(LEAVE, by=other)) is None
    assert drive.service.members == {}


def test_a_member_that_was_heard_by_its_beat_first_has_an_owner_too() -> None:
    drive = Drive()
    drive.beat("w1", holds=(), by=OF_FEED)

    with pytest.raises(Forbidden):
        drive.register("w1", incarnation="2", by=UNBOUND)


def test_a_member_from_before_owners_were_kept_gets_one_when_it_registers() -> None:
    drive = Drive()
    drive.register("w1", by=OF_FEED)
    member = drive.service.members["w1"]
    drive.service.members["w1"] = drive.rows.members["w1"] = msgspec.structs.replace(
        member, owner=None
    )

    drive.beat("w1", by=OF_MORE)
    assert drive.service.members["w1"].owner is None
    drive.register("w1", by=OF_MORE)

    assert drive.service.members["w1"].owner == OF_MORE.binding
