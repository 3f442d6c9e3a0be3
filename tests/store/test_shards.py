from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core.shards.decisions import PutService
from rota.core.shards.hydration import StoredShard, restored
from rota.core.shards.members import PROTOCOL, Departure, Member
from rota.core.shards.service import Service
from rota.engine.shards.changes import ServiceChanges
from rota.engine.shards.row_ranges import runs_of
from rota.store.shards import ShardRange, ShardStore, StoredCheckpoint, StoredService
from rota.store.sqlite.database import SqliteDatabase
from tests.store.opened import NOW_MS, Opened, in_memory

LATER_MS = NOW_MS + 60_000
SERVICE = PutService(
    name="feed", shard_count=4, pinned=True, min_protocol=2, generation=7, superseded=(3, 5)
)


@pytest.fixture
def shards(store: Opened) -> ShardStore:
    return ShardStore(store.tx)


def member(worker_id: str = "w1", **changes: Any) -> Member:
    fields: dict[str, Any] = {"reported_count": 4, "joined_ms": 5, "seen_ms": 9}
    return Member(worker_id=worker_id, **{**fields, **changes})


def row(
    shard: int, epoch: int, owner: str | None, target: str | None, revoked_in: int | None
) -> ShardRange:
    return ShardRange(shard, shard, epoch, owner, target, revoked_in)


def ids_of(shards: ShardStore) -> list[str]:
    found = shards.find("feed")
    assert found is not None
    return [one.worker_id for one in found.members]


# --- services and members -----------------------------------------------------------------------


def test_a_service_is_found_as_it_was_put(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)

    assert shards.find("feed") == StoredService(number, SERVICE, [], [])
    assert shards.find("other") is None


def test_a_service_keeps_its_number_when_it_changes(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    changed = msgspec.structs.replace(
        SERVICE, shard_count=9, pinned=False, min_protocol=1, generation=8, superseded=()
    )

    assert shards.put_service(changed) == number
    assert shards.find("feed") == StoredService(number, changed, [], [])


def test_services_are_named_in_order(shards: ShardStore) -> None:
    for name in ("b", "ü", "a"):
        shards.put_service(msgspec.structs.replace(SERVICE, name=name))

    assert shards.service_names() == ["a", "b", "ü"]


def test_a_member_is_found_as_it_was_put(shards: ShardStore) -> None:
    full = member(
        protocol=PROTOCOL,
        incarnation="17",
        replaced=("15", "16"),
        weight=2_500,
        max_shards=3,
        draining=True,
        fenced="keeps shard 3",
    )
    number = shards.put_service(SERVICE)

    shards.put_members(number, [full, member("w2")])

    found = shards.find("feed")
    assert found is not None
    assert found.members == [full, member("w2")]


def test_a_member_that_is_put_again_takes_the_place_of_its_row(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member()])
    shards.put_shards(number, [row(0, 1, "w1", "w1", None)])

    shards.put_members(number, [member(incarnation="2", seen_ms=11)])

    found = shards.find("feed")
    assert found is not None
    assert found.members == [member(incarnation="2", seen_ms=11)]
    assert found.shards == [StoredShard(0, 1, "w1", "w1", None)]


def test_a_beat_changes_when_a_member_was_seen_and_nothing_else(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member("w1", draining=True), member("w2")])

    shards.record_heartbeats(number, [member("w1", seen_ms=70), member("gone", seen_ms=71)])

    found = shards.find("feed")
    assert found is not None
    assert found.members == [member("w1", draining=True, seen_ms=70), member("w2")]


def test_a_member_that_is_gone_leaves_nothing_behind(store: Opened, shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member("w1"), member("w2")])

    shards.remove_members(number, ["w1", "never there"])

    assert ids_of(shards) == ["w2"]
    assert store.rows("SELECT count(*) FROM member_seen") == [(1,)]


def test_one_worker_may_be_a_member_of_two_services(shards: ShardStore) -> None:
    feed = shards.put_service(SERVICE)
    other = shards.put_service(msgspec.structs.replace(SERVICE, name="other"))
    for number in (feed, other):
        shards.put_members(number, [member()])
        shards.put_shards(number, [row(number, 1, "w1", "w1", None)])

    shards.put_shards(feed, [row(feed, 1, None, None, None)])
    shards.remove_members(feed, ["w1"])

    assert ids_of(shards) == []
    found = shards.find("other")
    assert found is not None
    assert found.members == [member()]
    assert found.shards == [StoredShard(other, 1, "w1", "w1", None)]


def test_worker_ids_may_be_awkward(shards: ShardStore) -> None:
    ids = ["'", "a", "a\0b", "ü€😀"]
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member(one) for one in ids])

    shards.put_shards(number, [row(place, 1, one, one, None) for place, one in enumerate(ids)])

    found = shards.find("feed")
    assert found is not None
    assert [one.owner for one in found.shards] == ids


# --- shards -------------------------------------------------------------------------------------


def test_shards_are_found_in_order_as_they_were_put(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member("w1"), member("w2")])

    shards.put_shards(number, [row(3, 5, "w1", "w2", 6), row(1, 1, None, "w1", None)])
    shards.put_shards(number, [row(2, 9, None, None, None), row(1, 2, "w1", "w1", None)])

    found = shards.find("feed")
    assert found is not None
    assert found.shards == [
        StoredShard(1, 2, "w1", "w1", None),
        StoredShard(2, 9, None, None, None),
        StoredShard(3, 5, "w1", "w2", 6),
    ]


def test_a_shard_cannot_belong_to_somebody_who_is_no_member(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)

    with pytest.raises(AssertionError, match="shards belong to members"):
        shards.put_shards(number, [row(0, 1, "w1", None, None)])


@pytest.mark.parametrize("there", [(), (7,), (0, 9), range(10), range(20)])
def test_a_run_is_written_whatever_of_it_was_there_before(
    shards: ShardStore, there: Sequence[int]
) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member("w1"), member("w2")])
    shards.put_shards(number, [row(one, 1, "w1", "w1", None) for one in there])

    shards.put_shards(number, [ShardRange(0, 9, 2, "w2", None, 7)])

    found = shards.find("feed")
    assert found is not None
    beyond = [one for one in there if one > 9]
    assert found.shards == [
        *(StoredShard(one, 2, "w2", None, 7) for one in range(10)),
        *(StoredShard(one, 1, "w1", "w1", None) for one in beyond),
    ]


def test_a_run_of_another_service_is_left_alone(shards: ShardStore) -> None:
    names = ("feed", "other")
    numbers = [shards.put_service(msgspec.structs.replace(SERVICE, name=one)) for one in names]
    for number in numbers:
        shards.put_shards(number, [ShardRange(0, 99, 1, None, None, None)])

    shards.put_shards(numbers[0], [ShardRange(0, 99, 2, None, None, None)])

    found = shards.find("other")
    assert found is not None
    assert {one.epoch for one in found.shards} == {1}


@pytest.mark.only("sqlite")  # whose steps are counted
def test_a_hundred_thousand_shards_that_stand_alike_are_written_by_one_statement(
    database: SqliteDatabase, store: Opened, shards: ShardStore
) -> None:
    number = shards.put_service(SERVICE)
    shards.put_members(number, [member("w1")])
    everything = ShardRange(0, 99_999, 1, "w1", "w1", None)
    shards.put_shards(number, [everything])
    statements: list[str] = []
    before = database._writer.total_changes()

    database._writer.set_profile(lambda statement, _: statements.append(statement))
    shards.put_shards(number, [everything._replace(epoch=2, owner=None)])
    database._writer.set_profile(None)

    assert database._writer.total_changes() - before == 100_000
    assert ["UPDATE shard SET" in one for one in statements] == [False, True]
    plan = database._writer.execute(f"EXPLAIN QUERY PLAN {statements[1]}", (0,) * 7)
    assert "USING PRIMARY KEY (service=? AND shard>? AND shard<?)" in str(plan.fetchall())


def test_a_service_is_summed_up_as_it_stands(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)
    other = shards.put_service(msgspec.structs.replace(SERVICE, name="early", pinned=False))
    shards.put_members(number, [member("w1"), member("w2")])
    shards.put_shards(
        number,
        [
            row(0, 1, "w1", "w1", None),
            row(1, 1, "w1", "w2", 6),
            row(2, 1, None, "w2", None),
            row(9, 1, "w1", None, 7),  # beyond the count, and still owned
        ],
    )
    assert other != number

    early, feed = shards.summaries()

    assert early == ("early", 4, False, 2, 7, 0, 4, 0)
    assert feed == ("feed", 4, True, 2, 7, 2, 2, 2)


# --- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_is_found_with_its_epoch(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)

    shards.put_checkpoints([StoredCheckpoint(number, 3, 2, NOW_MS, b'{"offset":7}')])

    found = shards.checkpoint("feed", 3)
    assert found is not None
    assert (found.service, found.shard, found.epoch, found.saved_at_ms) == ("feed", 3, 2, NOW_MS)
    assert found.value == Raw(b'{"offset":7}')
    assert shards.checkpoint("feed", 2) is None
    assert shards.checkpoint("other", 3) is None


def test_a_checkpoint_is_replaced_by_its_own_and_by_later_epochs(shards: ShardStore) -> None:
    number = shards.put_service(SERVICE)

    values = []
    for epoch, value in ((2, b"1"), (2, b"2"), (1, b"3"), (3, b"4")):
        shards.put_checkpoints([StoredCheckpoint(number, 0, epoch, NOW_MS, value)])
        found = shards.checkpoint("feed", 0)
        assert found is not None
        values.append((found.epoch, bytes(found.value)))

    assert values == [(2, b"1"), (2, b"2"), (2, b"2"), (3, b"4")]


# --- there and back -----------------------------------------------------------------------------

LASTING = (
    "name",
    "shard_count",
    "pinned",
    "min_protocol",
    "generation",
    "superseded",
    "members",
    "owners",
    "epochs",
    "targets",
    "untargeted",
)


def write(shards: ShardStore, service: Service, number: int | None = None) -> int:
    """All that was decided about a service since it was last written."""
    changes = ServiceChanges()
    changes.note(service.take_decisions())
    number = shards.put_service(
        PutService(**{name: getattr(service, name) for name in PutService.__struct_fields__})
    )
    present = service.members
    shards.remove_members(number, sorted(changes.members - present.keys()))
    shards.put_members(number, [present[one] for one in sorted(changes.members & present.keys())])
    shards.put_shards(number, runs_of(service, changes.shards))
    shards.record_heartbeats(number, [present[one] for one in changes.seen & present.keys()])
    return number


def read(shards: ShardStore, name: str, *, now_ms: int) -> Service:
    stored = shards.find(name)
    assert stored is not None
    return restored(stored.service, stored.members, stored.shards, now_ms=now_ms)


def assert_same(found: Service, service: Service) -> None:
    for name in LASTING:
        assert getattr(found, name) == getattr(service, name), name
    for name in ("owned", "targeted", "grantable"):
        here, there = getattr(found, name), getattr(service, name)
        assert {one: held for one, held in here.items() if held} == {
            one: held for one, held in there.items() if held
        }
    assert found.asked_in() == service.asked_in()


def test_a_service_comes_back_as_it_was(shards: ShardStore) -> None:
    service = Service("feed")
    service.configure(shard_count=6)
    for worker_id in ("w1", "w2"):
        service.put_member(member(worker_id))
    service.set_targets("w1", (0, 1, 2, 3))
    service.set_targets("w2", (4,))
    service.grant("w1", (0, 1, 2))
    service.set_targets("w2", (1, 2))
    service.revoke("w1", (1, 2), now_ms=NOW_MS)
    service.release("w1", (2,))
    service.note_beat("w2", 77)

    write(shards, service)
    found = read(shards, "feed", now_ms=LATER_MS)

    assert_same(found, service)
    assert found.assigned_to("w1") == ((0,), (1,))
    assert found.revoked_from("w1") == (1,)
    assert found.members["w2"].seen_ms == 77
    assert found.awake_since_ms == LATER_MS


def test_a_shard_beyond_the_count_keeps_its_epoch(shards: ShardStore) -> None:
    service = Service("feed")
    service.configure(shard_count=3)
    service.put_member(member())
    service.set_targets("w1", (0, 1, 2))
    service.grant("w1", (0, 1, 2))
    service.configure(shard_count=1)
    service.set_targets(None, (1, 2))
    service.revoke("w1", (1, 2), now_ms=NOW_MS)
    service.release("w1", (1, 2))
    write(shards, service)

    found = read(shards, "feed", now_ms=LATER_MS)

    assert_same(found, service)
    assert (found.shard_count, found.epochs) == (1, [1, 1, 1])


class Story:
    """Anything that may happen to a service, by its own hands."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def happen(self, what: int, which: int) -> None:
        service, worker_id = self.service, f"w{which % 3}"
        if worker_id not in service.members:
            service.put_member(member(worker_id))
        shard = which % service.shard_count
        owner = service.owners[shard]
        match what:
            case 0:
                service.configure(shard_count=1 + which % 7)
            case 1:
                service.set_targets(worker_id, (shard,))
            case 2 if owner is None and (target := service.targets[shard]) is not None:
                service.grant(target, (shard,))
            case 3 if owner is not None and service.asked_in()[shard] is None:
                service.revoke(owner, (shard,), now_ms=NOW_MS)
            case 4 if owner is not None:
                service.release(owner, (shard,))
            case 5:
                service.remove_member(worker_id, Departure.LEFT)
            case _:
                service.note_beat(worker_id, which)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), max_size=12),
        min_size=1,
        max_size=4,
    )
)
def test_a_service_comes_back_whatever_happened_to_it(
    batches: list[list[tuple[int, int]]],
) -> None:
    service = Service("feed")
    service.configure(shard_count=5)
    with in_memory() as store:
        shards, story = ShardStore(store.tx), Story(service)
        write(shards, service)
        for batch in batches:
            for what, which in batch:
                story.happen(what, which)
            write(shards, service)

            found = read(shards, "feed", now_ms=LATER_MS)
            # Shards that nobody ever had have no row; they come with the count.
            for name in ("owners", "epochs", "targets"):
                rest = getattr(service, name)[len(getattr(found, name)) :]
                assert rest == [0 if name == "epochs" else None] * len(rest)
                getattr(found, name).extend(rest)
            assert_same(found, service)
