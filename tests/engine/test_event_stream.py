"""Who follows what happens misses nothing, and hears nothing twice."""

import asyncio
from pathlib import Path

import pytest

from rota.core.events import EVERYTHING, EventFilter, LoggedEvent, types_of
from rota.engine.events import log as events_log
from rota.engine.events.stream import End, EventSubscription
from rota.engine.topics import CommittedEvents, EventsAfter
from tests.engine.recording import told
from tests.engine.running import Engine, running, settle, soon

ALL = 1_000


def seqs(notices: list[LoggedEvent]) -> list[int]:
    return [one.seq for one in notices]


async def taken(follower: EventSubscription, most: int = ALL) -> list[int]:
    return seqs(await soon(asyncio.ensure_future(follower.take(most))))


# --- watching -----------------------------------------------------------------------------------


async def test_whoever_watches_is_told_all_of_a_commit_at_once(engine: Engine) -> None:
    heard: list[list[str]] = []
    unwatch = engine.coordinator.subscribe(
        CommittedEvents(lambda some: heard.append([n.type for n in some]))
    )
    await engine.submit("a", "b")
    await engine.register()
    await settle()
    unwatch()
    await engine.submit()
    await settle()

    assert heard == [["task-submitted", "task-submitted"], ["worker-registered"]]


async def test_a_commit_that_tells_nothing_wakes_nobody(engine: Engine) -> None:
    heard: list[object] = []
    worker = await engine.register()
    engine.coordinator.subscribe(CommittedEvents(heard.append))
    await engine.beat(worker)
    await settle()

    assert heard == []


async def test_nothing_is_made_for_watchers_when_there_are_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("rota.core.events.EventBatch.logged")

    await engine.submit()

    assert engine.coordinator.last_seq == 1


async def test_watchers_hear_of_the_end(engine: Engine) -> None:
    ends: list[str] = []
    engine.coordinator.subscribe(CommittedEvents(lambda _: None, lambda: ends.append("early")))
    engine.coordinator.release_waiting()
    engine.coordinator.subscribe(CommittedEvents(lambda _: None, lambda: ends.append("late")))
    await settle()

    assert ends == ["early", "late"]


# --- following ----------------------------------------------------------------------------------


async def test_a_follower_catches_up_and_goes_on(engine: Engine) -> None:
    await engine.submit("a", "b", "c")
    with engine.coordinator.subscribe(EventsAfter(EVERYTHING, 1)) as follower:
        caught_up = await taken(follower)
        next_one = asyncio.ensure_future(follower.take(ALL))
        await settle()
        assert not next_one.done()
        await engine.submit("d")

        assert caught_up == [2, 3]
        assert seqs(await soon(next_one)) == [4]
        assert follower.position == 4


async def test_a_follower_takes_no_more_than_it_wants(engine: Engine) -> None:
    await engine.submit("a", "b", "c")
    with engine.coordinator.subscribe(EventsAfter(EVERYTHING, 0)) as follower:
        from_log = [await taken(follower, 2), await taken(follower, 2)]
        waiting = asyncio.ensure_future(follower.take(1))
        await settle()
        await engine.submit("d", "e")
        live = [seqs(await soon(waiting)), await taken(follower, 1)]

        assert from_log == [[1, 2], [3]]
        assert live == [[4], [5]]


async def test_nothing_is_missed_or_doubled_while_a_follower_catches_up(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", inline=False) as engine:
        await engine.submit(*["work"] * 5)
        heard: list[int] = []
        with engine.coordinator.subscribe(EventsAfter(EVERYTHING, 0)) as follower:
            submitting = asyncio.ensure_future(_submit_often(engine, 40))
            while len(heard) < 45:
                heard += await taken(follower, 3)
            await submitting

        assert heard == list(range(1, 46))


async def _submit_often(engine: Engine, times: int) -> None:
    for _ in range(times):
        await engine.submit()


async def test_a_follower_hears_only_what_it_wants(engine: Engine) -> None:
    wanted = EventFilter(types=types_of(["task-*"]))
    await engine.register()
    with engine.coordinator.subscribe(EventsAfter(wanted, 0)) as follower:
        waiting = asyncio.ensure_future(follower.take(ALL))
        await settle()
        await engine.register("w2")
        await settle()
        position = follower.position
        await engine.submit()

        assert position == 2  # nothing of interest so far, but it need not look there again
        assert seqs(await soon(waiting)) == [3]


async def test_a_follower_hears_only_what_it_may(engine: Engine) -> None:
    await engine.submit(queue="mine")
    await engine.submit(queue="theirs")

    def sight(noted: LoggedEvent) -> bool:
        return noted.data.get("queue") == "mine"

    with engine.coordinator.subscribe(EventsAfter(EVERYTHING, 0, sight)) as follower:
        caught_up = await taken(follower)
        waiting = asyncio.ensure_future(follower.take(ALL))
        await settle()
        await engine.submit(queue="theirs")
        await engine.submit(queue="mine")

        assert caught_up == [1]
        assert seqs(await soon(waiting)) == [4]


async def test_a_follower_that_lets_too_much_wait_is_ended_and_may_come_again(
    engine: Engine,
) -> None:
    coordinator = engine.coordinator
    follower = EventSubscription(
        coordinator._events, coordinator.queries.events, EVERYTHING, after=0, most_behind=2
    )
    waiting = asyncio.ensure_future(follower.take(1))
    await settle()
    await engine.submit("a", "b")
    first = seqs(await soon(waiting))
    await engine.submit("c", "d")
    await settle()

    assert first == [1]
    assert await taken(follower) == []
    assert follower.end is End.TOO_SLOW
    assert coordinator.metrics().watchers == 0
    with coordinator.subscribe(EventsAfter(EVERYTHING, follower.position)) as again:
        assert await taken(again) == [2, 3, 4]


async def test_one_that_reads_the_log_is_never_too_slow(engine: Engine) -> None:
    coordinator = engine.coordinator
    await engine.submit(*["work"] * 10)
    follower = EventSubscription(
        coordinator._events, coordinator.queries.events, EVERYTHING, after=0, most_behind=2
    )
    heard = await taken(follower, 3)
    await engine.submit(*["work"] * 10)
    while len(heard) < 20:
        heard += await taken(follower, 3)
    follower.close()

    assert heard == list(range(1, 21))


async def test_a_stop_ends_those_who_follow(engine: Engine) -> None:
    follower = engine.coordinator.subscribe(EventsAfter(EVERYTHING, 0))
    waiting = asyncio.ensure_future(follower.take(ALL))
    await settle()
    await engine.coordinator.stop()

    assert await soon(waiting) == []
    assert follower.end is End.STOPPING


async def test_what_was_told_before_a_stop_is_still_taken(engine: Engine) -> None:
    with engine.coordinator.subscribe(EventsAfter(EVERYTHING, 0)) as follower:
        waiting = asyncio.ensure_future(follower.take(1))
        await settle()
        await engine.submit("a", "b")
        await soon(waiting)
        engine.coordinator.release_waiting()

        assert await taken(follower) == [2]
        assert await taken(follower) == []


# --- reading ------------------------------------------------------------------------------------


async def test_a_long_log_is_looked_through_in_steps(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_log, "EVENTS_PER_STEP", 3)
    await engine.submit(*["work"] * 8)
    await engine.register()
    await engine.submit(*["work"] * 8)
    log = engine.coordinator.queries.events
    wanted = EventFilter(types=types_of(["worker-*"]))

    up = await log.after(0, wanted, limit=5)
    newest = await log.newest(wanted, limit=5)

    assert (seqs(up.items), up.position) == ([9], 17)
    assert (seqs(newest.items), newest.position) == ([9], 17)
    assert seqs((await log.newest(EVERYTHING, limit=5)).items) == [13, 14, 15, 16, 17]
    assert seqs((await log.after(7, EVERYTHING, limit=5)).items) == [8, 9, 10, 11, 12]
    assert await told(engine, "worker-*") == up.items


async def test_reading_begins_with_what_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", max_events=2) as engine:
        await engine.submit(*["work"] * 6)
        await engine.turn(0)

        passage = await engine.coordinator.queries.events.after(1, EVERYTHING, limit=1)

        assert (seqs(passage.items), passage.position, passage.oldest_seq) == ([5], 5, 5)
