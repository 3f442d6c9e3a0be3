"""Values and locks: what is stored, which caller waits for which, and what survives a restart."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import Raw
from msgspec.structs import replace

from rota.core import kv, limits
from rota.core.events import EVERYTHING
from rota.core.kv import DeleteValue, KvEntry, PutValue
from rota.core.locks import AcquireLock, LockAnswer, ReleaseLock, RenewLock
from rota.engine.kv.domains import SWEPT_PER_STEP
from rota.errors import KeyNotFound, LockLost, Unavailable, VersionConflict
from rota.store.kv import KvStore
from rota.store.locks import LockStore
from rota.store.workers import WorkerStore
from tests.conftest import TurnedClock
from tests.engine.running import Engine, running, settle, soon
from tests.engine.virtual import in_virtual_time, let_pass

TTL_MS = 30_000


# --- memory -------------------------------------------------------------------------------------


async def put(engine: Engine, key: str = "k", value: bytes = b"1", **options: Any) -> KvEntry:
    return await engine.coordinator.execute(PutValue(key=key, value=Raw(value), **options))


async def delete(engine: Engine, key: str = "k", **options: Any) -> KvEntry:
    return await engine.coordinator.execute(DeleteValue(key=key, **options))


async def keys(engine: Engine, prefix: str = "") -> list[str]:
    found, is_more = await engine.coordinator.queries.kv.page(
        prefix=prefix, pattern=None, after="", limit=1_000
    )
    assert not is_more
    return [one.key for one in found]


async def told(engine: Engine) -> list[tuple[str, str, dict[str, Any]]]:
    """What the outside has been told of, without the numbers."""
    page = await engine.coordinator.queries.events.after(0, EVERYTHING, limit=1_000)
    return [
        (one.type, one.subject, {k: v for k, v in one.data.items() if k in {"owner", "reason"}})
        for one in page.items
    ]


async def test_a_value_is_kept_looked_up_and_deleted(engine: Engine) -> None:
    kept = await put(engine, value=b'{"a": 1}')

    assert await engine.coordinator.queries.kv.get("k") == kept
    assert await delete(engine) == kept
    assert await engine.coordinator.queries.kv.get("k") is None
    with pytest.raises(KeyNotFound):
        await delete(engine)


async def test_versions_rise_over_all_keys_and_are_never_used_twice(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        versions = [(await put(engine, key)).version for key in "aba"]
        await delete(engine, "a")
        await delete(engine, "b")

    async with running(tmp_path / "rota.db", clock) as engine:
        versions.append((await put(engine, "a")).version)

    assert versions == sorted(set(versions))


async def test_what_is_put_at_once_shares_a_commit_and_has_versions_in_order(
    engine: Engine,
) -> None:
    kept = await asyncio.gather(*(put(engine, str(number)) for number in range(100)))

    assert engine.database.commits == 1
    versions = [one.version for one in kept]
    assert versions == list(range(versions[0], versions[0] + 100))


async def test_of_those_who_decided_on_the_same_value_one_wins(engine: Engine) -> None:
    version = (await put(engine)).version

    outcomes = await asyncio.gather(
        *(put(engine, value=b"%d" % number, if_version=version) for number in range(10)),
        return_exceptions=True,
    )

    won = [one for one in outcomes if isinstance(one, KvEntry)]
    assert len(won) == 1
    assert sum(isinstance(one, VersionConflict) for one in outcomes) == 9
    assert await engine.coordinator.queries.kv.get("k") == won[0]


async def test_a_delete_on_condition_goes_by_the_version(engine: Engine) -> None:
    kept = await put(engine)

    with pytest.raises(VersionConflict):
        await delete(engine, if_version=kept.version + 1)
    with pytest.raises(VersionConflict):
        await delete(engine, "never", if_version=kept.version)
    await delete(engine, if_version=kept.version)

    assert await keys(engine) == []


async def test_a_value_is_gone_at_its_moment_whether_or_not_it_was_swept(engine: Engine) -> None:
    first = await put(engine, ttl_ms=1_000)
    engine.clock.turn(999)
    assert await keys(engine) == ["k"]

    engine.clock.turn(1)

    assert await engine.coordinator.queries.kv.get("k") is None
    assert await keys(engine) == []
    with pytest.raises(KeyNotFound):
        await delete(engine)
    assert (await put(engine, if_version=0)).version > first.version


async def test_values_past_their_time_are_forgotten_and_that_is_told(engine: Engine) -> None:
    await put(engine, "mortal", ttl_ms=1_000)
    await put(engine, "immortal")

    await engine.turn(1_000)

    assert await keys(engine) == ["immortal"]
    assert await told(engine) == [
        ("memory-set", "mortal", {}),
        ("memory-set", "immortal", {}),
        ("memory-deleted", "mortal", {"reason": "expired"}),
    ]


async def test_a_sweep_goes_on_until_all_that_is_over_is_gone(engine: Engine) -> None:
    count = SWEPT_PER_STEP + 1
    await asyncio.gather(*(put(engine, str(number), ttl_ms=1) for number in range(count)))

    await engine.turn(1)

    left = engine.database.read(lambda tx: KvStore(tx).expired(engine.clock.now_ms(), 9))
    assert left == []


async def test_a_page_of_large_values_is_cut_and_says_that_there_is_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_MEMORY_PAGE_BYTES", 100)
    for key in "abc":
        await put(engine, key, b'"%s"' % (b"x" * 48))

    page, is_more = await engine.coordinator.queries.kv.page(
        prefix=None, pattern="?", after="", limit=100
    )

    assert ([one.key for one in page], is_more) == (["a", "b"], True)


# --- locks --------------------------------------------------------------------------------------


def wish(owner: str, *, ttl_ms: int = TTL_MS, wait_ms: int = 0, name: str = "door") -> AcquireLock:
    return AcquireLock(name=name, owner=owner, ttl_ms=ttl_ms, wait_ms=wait_ms)


async def take(engine: Engine, owner: str, **options: Any) -> LockAnswer:
    return await engine.coordinator.execute(wish(owner, **options))


async def release(engine: Engine, had: LockAnswer) -> LockAnswer:
    assert had.fence is not None
    event = ReleaseLock(name=had.name, owner=had.owner, fence=had.fence)
    return await engine.coordinator.execute(event)


async def in_line(
    engine: Engine, owner: str, *, wait_ms: int = 600_000, **options: Any
) -> "asyncio.Task[LockAnswer]":
    """A call that waits for the lock."""
    event = wish(owner, wait_ms=wait_ms, **options)
    call = asyncio.ensure_future(engine.coordinator.execute(event))
    await settle()
    assert not call.done()
    return call


async def waiting(engine: Engine, name: str = "door") -> int:
    return (await engine.coordinator.queries.locks.status(name)).waiting


async def holder(engine: Engine, name: str = "door") -> str | None:
    return (await engine.coordinator.queries.locks.status(name)).owner


async def test_a_release_wakes_the_next_in_line_with_its_own_commit(engine: Engine) -> None:
    had = await take(engine, "ann")
    calls = [await in_line(engine, owner) for owner in ("bob", "cat", "dan")]
    assert await waiting(engine) == 3

    fences = [had.fence]
    for call in calls:
        commits = engine.database.commits
        await release(engine, had)
        had = await soon(call)
        assert engine.database.commits == commits + 1
        fences.append(had.fence)

    assert [call.result().owner for call in calls] == ["bob", "cat", "dan"]
    assert fences == sorted(set(fences), key=lambda fence: fence or 0)


async def test_a_free_lock_is_had_without_waiting(engine: Engine) -> None:
    had = await engine.coordinator.execute(wish("ann", wait_ms=600_000))

    assert had.acquired


async def test_a_lock_that_is_released_in_the_very_batch_that_asks_for_it_is_had(
    engine: Engine,
) -> None:
    had = await take(engine, "ann")
    call = asyncio.ensure_future(engine.coordinator.execute(wish("bob", wait_ms=600_000)))
    let_go = asyncio.create_task(release(engine, had))

    assert (await soon(call)).acquired
    assert (await soon(let_go)).holder == "bob"


async def test_a_crowd_before_one_lock_is_one_commit_and_all_but_one_wait(engine: Engine) -> None:
    calls = [
        asyncio.ensure_future(engine.coordinator.execute(wish(f"w{number}", wait_ms=600_000)))
        for number in range(300)
    ]
    await settle()

    assert engine.database.commits == 1
    assert [call.done() for call in calls].count(True) == 1
    assert await waiting(engine) == 299
    for call in calls:
        call.cancel()


async def test_what_happens_to_a_lock_is_told(engine: Engine) -> None:
    had = await take(engine, "ann")
    await take(engine, "ann")
    call = await in_line(engine, "bob", ttl_ms=1_000)
    await release(engine, had)
    await soon(call)

    await engine.turn(1_000)

    assert await told(engine) == [
        ("lock-acquired", "door", {"owner": "ann"}),
        ("lock-released", "door", {"owner": "ann"}),
        ("lock-acquired", "door", {"owner": "bob"}),
        ("lock-released", "door", {"owner": "bob"}),
    ]


async def test_a_refused_renewal_changes_nothing(engine: Engine) -> None:
    had = await take(engine, "ann", ttl_ms=1_000)
    engine.clock.turn(1_000)

    with pytest.raises(LockLost):
        await engine.coordinator.execute(RenewLock(name="door", owner="ann", fence=had.fence or 0))

    assert (await take(engine, "bob")).acquired


async def test_locks_are_listed_as_they_stand(engine: Engine) -> None:
    await take(engine, "ann", name="a", ttl_ms=1_000)
    await take(engine, "bob", name="b")
    call = await in_line(engine, "cat", name="b")

    engine.clock.turn(1_000)

    listed = await engine.coordinator.queries.locks.page(after="", limit=9)
    assert [(one.name, one.owner, one.waiting) for one in listed] == [("b", "bob", 1)]
    call.cancel()


async def test_a_lock_that_nobody_has_or_waits_for_leaves_no_row(engine: Engine) -> None:
    had = await take(engine, "ann")
    call = await in_line(engine, "bob", wait_ms=1_000, ttl_ms=1_000)
    call.cancel()
    await settle()
    await release(engine, had)
    assert len(engine.database.read(lambda tx: LockStore(tx).get("door").waiters)) == 1

    await engine.turn(limits.LOCK_PLACE_KEPT_MS)

    assert engine.database.read(lambda tx: tx.rows("locks.get", name="door")) == []
    assert engine.database.read(lambda tx: tx.rows("locks.waiters", lock="door")) == []


# --- time passes --------------------------------------------------------------------------------


def test_a_lock_whose_time_is_over_goes_on_at_that_very_moment() -> None:
    async def body(engine: Engine) -> list[int]:
        start_ms = engine.clock.now_ms()
        await take(engine, "ann", ttl_ms=7_300)
        moments = []

        async def in_turn(owner: str, ttl_ms: int) -> None:
            had = await engine.coordinator.execute(wish(owner, ttl_ms=ttl_ms, wait_ms=60_000))
            assert had.acquired
            moments.append(engine.clock.now_ms() - start_ms)

        calls = []
        for owner, ttl_ms in (("bob", 1_450), ("cat", 300), ("dan", 1)):
            calls.append(asyncio.create_task(in_turn(owner, ttl_ms)))
            await let_pass(1)
        await asyncio.gather(*calls)
        return moments

    moments = in_virtual_time(body)

    # Within a few milliseconds of when each was due, although the duty looks every second.
    due = (7_300, 7_300 + 1_450, 7_300 + 1_450 + 300)
    assert all(0 <= moment - at < 10 for moment, at in zip(moments, due, strict=True))


def test_whoever_waits_in_vain_hears_who_has_it_when_its_time_is_over() -> None:
    async def body(engine: Engine) -> tuple[LockAnswer, int]:
        start_ms = engine.clock.now_ms()
        await take(engine, "ann", ttl_ms=60_000)
        answer = await engine.coordinator.execute(wish("bob", wait_ms=4_200))
        return answer, engine.clock.now_ms() - start_ms

    answer, passed_ms = in_virtual_time(body)

    assert (answer.acquired, answer.holder, answer.position) == (False, "ann", 1)
    assert passed_ms == 4_200


def test_whoever_asks_again_and_again_keeps_its_place() -> None:
    async def body(engine: Engine) -> list[str]:
        had = await take(engine, "ann", ttl_ms=600_000)
        order: list[str] = []

        async def patient(owner: str, wait_ms: int) -> None:
            is_had = False
            while not is_had:
                is_had = (await engine.coordinator.execute(wish(owner, wait_ms=wait_ms))).acquired
            order.append(owner)
            await release(engine, await take(engine, owner))

        calls = []
        for owner, wait_ms in (("bob", 100), ("cat", 60_000), ("dan", 333)):
            calls.append(asyncio.create_task(patient(owner, wait_ms)))
            await let_pass(1)
        await let_pass(10_050)  # bob is in the middle of its hundredth call
        await release(engine, had)
        await asyncio.gather(*calls)
        return order

    assert in_virtual_time(body) == ["bob", "cat", "dan"]


def test_a_lock_that_expires_unnoticed_by_anybody_is_told_of_in_time() -> None:
    async def body(engine: Engine) -> list[int]:
        start_ms = engine.clock.now_ms()
        await take(engine, "ann", ttl_ms=3_210)
        await let_pass(5_000)
        page = await engine.coordinator.queries.events.after(0, EVERYTHING, limit=9)
        return [one.at_ms - start_ms for one in page.items]

    acquired_ms, released_ms = in_virtual_time(body)

    assert acquired_ms == 0
    assert 3_210 <= released_ms <= 3_215


@pytest.mark.only("sqlite")  # a store that is shared has one clock for all
async def test_a_wall_clock_that_is_put_forward_ends_no_lock(engine: Engine) -> None:
    """Its owner counts by a clock that nobody sets, and would not know."""
    steady = TurnedClock(engine.clock.now_ms())
    engine.coordinator.leading.pipeline._steady_clock = steady
    engine.coordinator.queries.locks._steady_clock = steady
    had = await take(engine, "ann")
    await put(engine, ttl_ms=TTL_MS)

    await engine.turn(2 * TTL_MS)

    assert await keys(engine) == []  # how long a value is kept is a matter of the calendar
    assert await holder(engine) == "ann"
    assert (await take(engine, "ann")).fence == had.fence
    steady.turn(TTL_MS)
    assert await holder(engine) is None


# --- callers that go away -----------------------------------------------------------------------


async def test_a_caller_that_goes_away_is_passed_over(engine: Engine) -> None:
    had = await take(engine, "ann")
    gone, next_one = await in_line(engine, "bob"), await in_line(engine, "cat")

    gone.cancel()
    await settle()
    await release(engine, had)

    assert (await soon(next_one)).acquired
    assert gone.cancelled()


async def test_a_caller_that_goes_away_as_it_is_given_the_lock_lets_go_of_it(
    engine: Engine,
) -> None:
    had = await take(engine, "ann")
    gone, next_one = await in_line(engine, "bob"), await in_line(engine, "cat")

    def hang_up() -> None:
        gone.cancel()

    engine.database.on_commit = hang_up
    await release(engine, had)
    engine.database.on_commit = None

    assert (await soon(next_one)).acquired
    assert await holder(engine) == "cat"


async def test_a_caller_that_goes_away_before_its_question_is_read_leaves_nothing(
    engine: Engine,
) -> None:
    call = asyncio.ensure_future(engine.coordinator.execute(wish("ann", wait_ms=600_000)))
    await asyncio.sleep(0)
    call.cancel()
    await settle()

    assert call.cancelled()
    assert await holder(engine) is None


async def test_a_connection_that_broke_does_not_take_the_place_of_the_next_one(
    engine: Engine,
) -> None:
    had = await take(engine, "ann")
    broken = await in_line(engine, "bob")
    other = await in_line(engine, "cat")
    again = await in_line(engine, "bob")

    broken.cancel()
    await settle()
    await release(engine, had)

    assert (await soon(again)).acquired
    assert not other.done()
    assert await holder(engine) == "bob"
    other.cancel()


async def test_what_was_had_and_let_go_of_before_is_no_answer(engine: Engine) -> None:
    """One batch gives the lock to a caller, has it released, and puts the same caller in line."""
    ann = await take(engine, "ann")
    first = await in_line(engine, "bob")
    fence = 1 + engine.database.read(lambda tx: WorkerStore(tx).counter("lock"))
    bob = replace(ann, owner="bob", fence=fence)
    changes = [release(engine, ann), release(engine, bob), take(engine, "cat")]

    changing = [asyncio.create_task(change) for change in changes]
    second = await in_line(engine, "bob")

    assert (await soon(first)).fence == fence
    _, _, cat = [await soon(change) for change in changing]
    assert cat.acquired
    await release(engine, cat)
    assert ((await soon(second)).fence or 0) > (cat.fence or 0)


async def test_calls_are_answered_when_the_coordinator_is_about_to_stop(engine: Engine) -> None:
    await take(engine, "ann")
    call = await in_line(engine, "bob")

    engine.coordinator.release_waiting()

    answer = await soon(call)
    assert (answer.acquired, answer.holder) == (False, "ann")
    late = await engine.coordinator.execute(wish("cat", wait_ms=600_000))
    assert not late.acquired


@pytest.mark.parametrize("inline", [True, False])
async def test_a_stop_answers_those_in_line(
    tmp_path: Path,
    inline: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    async with running(tmp_path / "rota.db", inline=inline) as engine:
        await take(engine, "ann")
        call = asyncio.ensure_future(engine.coordinator.execute(wish("bob", wait_ms=600_000)))
        await take(engine, "cat")  # goes through after the question above

    with pytest.raises(Unavailable):
        await soon(call)


# --- what remains -------------------------------------------------------------------------------


async def test_after_a_restart_owners_are_what_they_were_lines_are_gone_and_fences_rise(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        had = await take(engine, "ann")
        free = await take(engine, "eve", name="free")
        await release(engine, free)
        call = await in_line(engine, "bob")
        engine.coordinator.release_waiting()
        await soon(call)

    async with running(tmp_path / "rota.db", clock) as engine:
        again = await take(engine, "ann")
        assert again.fence == had.fence
        assert await waiting(engine) == 0
        newcomer = await in_line(engine, "cat")
        let_go = await release(engine, again)
        later = await take(engine, "eve", name="free")

    assert let_go.holder == "cat"
    fences = [had.fence, free.fence, (await soon(newcomer)).fence, later.fence]
    assert len(set(fences)) == 4
    assert max(had.fence or 0, free.fence or 0) < min(
        later.fence or 0, newcomer.result().fence or 0
    )


async def test_a_lock_runs_out_also_while_nobody_serves(tmp_path: Path, clock: TurnedClock) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        had = await take(engine, "ann", ttl_ms=1_000)
    clock.turn(1_000)

    async with running(tmp_path / "rota.db", clock) as engine:
        assert (await take(engine, "bob")).acquired
        with pytest.raises(LockLost):
            await release(engine, had)


async def test_what_is_rolled_back_was_given_to_nobody(engine: Engine) -> None:
    ann = await take(engine, "ann")
    call = await in_line(engine, "bob")
    kept = await put(engine)
    engine.database.commit_problem = apsw.FullError("database or disk is full")

    for change in (release(engine, ann), put(engine, value=b"2"), take(engine, "cat", name="c")):
        with pytest.raises(Unavailable):
            await change
    assert not call.done()
    engine.database.commit_problem = None

    assert await holder(engine) == "ann"
    assert await engine.coordinator.queries.kv.get("k") == kept
    await release(engine, ann)
    assert (await soon(call)).acquired
    assert (await put(engine, if_version=kept.version)).version > kept.version


async def test_a_batch_that_breaks_is_tried_again_one_by_one_each_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event cannot be carried out; the others are, and nobody is given a lock twice."""
    whole = kv.put

    def broken(before: KvEntry | None, event: PutValue, **options: Any) -> KvEntry:
        if event.key == "bad":
            raise ZeroDivisionError
        return whole(before, event, **options)

    monkeypatch.setattr(kv, "put", broken)

    outcomes = await asyncio.gather(
        put(engine, "good"),
        take(engine, "ann"),
        put(engine, "bad"),
        take(engine, "bob"),
        put(engine, "fine"),
        return_exceptions=True,
    )

    assert [type(one).__name__ for one in outcomes] == [
        "KvEntry",
        "LockAnswer",
        "ZeroDivisionError",
        "LockAnswer",
        "KvEntry",
    ]
    assert await keys(engine) == ["fine", "good"]
    assert await holder(engine) == "ann"
    assert [kind for kind, *_ in await told(engine)] == [
        "memory-set",
        "lock-acquired",
        "memory-set",
    ]
