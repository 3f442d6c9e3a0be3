import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.core.commands import QueueDueTasks, SubmitTasks, TaskCommand
from rota.core.replies import Done
from rota.core.tasks.model import NewTask
from rota.engine.commit.counters import count_batch
from rota.engine.commit.pacing import BatchPacing, Gathering
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.commit.writer import (
    ALONE_AFTER,
    MOST_PER_BATCH,
    REMOTE_QUICK_S,
    InlineWriter,
    ThreadWriter,
    Writer,
)
from tests.engine.running import running, settle, soon

LIGHT = SubmitTasks([NewTask(name="work")])
HEAVY = QueueDueTasks()
KINDS = pytest.mark.parametrize("kind", [InlineWriter, ThreadWriter])


class Bench:
    """A writer whose batches are noted instead of carried out."""

    def __init__(
        self, kind: type[InlineWriter] | type[ThreadWriter], *, is_remote: bool = False
    ) -> None:
        self.is_slow = False  # the store is not waited for on the loop
        self.batches: list[list[QueuedCommand]] = []
        self.threads: list[str] = []
        self.begun: list[int] = []  # the sizes of batches that were begun on the loop
        self.may_run = threading.Event()
        self.may_run.set()
        self.has_begun = threading.Event()
        self.mistake: Exception | None = None
        self.on_delivery: Callable[[], object] | None = None
        self.writer: Writer = (
            ThreadWriter(self._run, self._deliver, begin=self._begin)
            if is_remote
            else kind(self._run, self._deliver)
        )
        self.writer.start(asyncio.get_running_loop())

    def _run(self, entries: Sequence[QueuedCommand]) -> Delivery:
        self.has_begun.set()
        assert self.may_run.wait(30)
        if self.mistake is not None:
            raise self.mistake
        self.batches.append(list(entries))
        self.threads.append(threading.current_thread().name)
        return Delivery([(entry, Done()) for entry in entries])

    def _begin(
        self, entries: Sequence[QueuedCommand], *, wait_s: float
    ) -> Delivery | Callable[[], Delivery]:
        assert wait_s < 1
        self.begun.append(len(entries))
        return partial(self._run, entries) if self.is_slow else self._run(entries)

    def _deliver(self, delivery: Delivery) -> None:
        on_delivery, self.on_delivery = self.on_delivery, None
        for entry, outcome in delivery.answers:
            if isinstance(outcome, Exception):
                entry.future.set_exception(outcome)
            else:
                entry.future.set_result(outcome)
        if on_delivery is not None:
            on_delivery()

    def put(self, event: TaskCommand, *, is_alone: bool = False) -> "asyncio.Future[Done]":
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        entry = QueuedCommand(event, future, can_wait=False)
        (self.writer.put_alone if is_alone else self.writer.put)(entry)
        return future


@KINDS
async def test_what_is_put_at_one_moment_is_one_batch_in_its_order(
    kind: type[InlineWriter],
) -> None:
    bench = Bench(kind)
    events: list[TaskCommand] = [LIGHT, HEAVY, LIGHT, HEAVY]

    await soon(asyncio.gather(*(bench.put(event) for event in events)))
    await bench.writer.stop()

    assert [[entry.command for entry in entries] for entries in bench.batches] == [events]
    assert bench.writer.weight == 0


@KINDS
async def test_a_stop_works_off_what_was_put(kind: type[InlineWriter]) -> None:
    bench = Bench(kind)
    futures = [bench.put(event) for event in (HEAVY, LIGHT, HEAVY)]

    await bench.writer.stop()

    assert all(future.done() for future in futures)
    assert not bench.writer.is_running
    await settle()
    assert sum(len(entries) for entries in bench.batches) == 3


async def test_heavy_batches_run_on_the_thread_and_trifles_where_they_are() -> None:
    bench = Bench(ThreadWriter)

    await soon(bench.put(HEAVY))
    await soon(bench.put(LIGHT))
    await soon(bench.put(HEAVY))
    await bench.writer.stop()

    assert bench.threads[0] == bench.threads[2] == "rota-writer"
    assert bench.threads[1] == threading.current_thread().name


async def test_trifles_wait_their_turn_behind_what_the_thread_has() -> None:
    bench = Bench(ThreadWriter)
    bench.may_run.clear()
    futures = [bench.put(HEAVY)]
    await asyncio.to_thread(bench.has_begun.wait, 30)

    futures += [bench.put(LIGHT) for _ in range(3)]
    await settle()
    assert bench.writer.weight == 4
    bench.may_run.set()
    await soon(asyncio.gather(*futures))
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches] == [1, 3]
    assert bench.threads == ["rota-writer", threading.current_thread().name]


async def test_what_came_before_something_heavy_is_not_overtaken_by_it() -> None:
    bench = Bench(ThreadWriter)
    bench.may_run.clear()
    futures = [bench.put(HEAVY)]
    await asyncio.to_thread(bench.has_begun.wait, 30)

    futures += [bench.put(event) for event in (LIGHT, LIGHT, HEAVY, LIGHT)]
    bench.may_run.set()
    await soon(asyncio.gather(*futures))
    await bench.writer.stop()

    events = [[entry.command for entry in entries] for entries in bench.batches]
    assert events == [[HEAVY], [LIGHT, LIGHT, HEAVY], [LIGHT]]


async def test_a_batch_is_closed_when_it_is_heavy_enough() -> None:
    bench = Bench(ThreadWriter)
    bench.may_run.clear()
    futures = [bench.put(HEAVY)]
    await asyncio.to_thread(bench.has_begun.wait, 30)
    half = SubmitTasks([NewTask(name="work")] * (MOST_PER_BATCH // 2))

    futures += [bench.put(half) for _ in range(5)]
    bench.may_run.set()
    await soon(asyncio.gather(*futures))
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches] == [1, 2, 2, 1]


async def test_a_mistake_after_the_commit_is_answered_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "rota.db", inline=False) as engine:
        broken = [True]

        def failing(*arguments: Any, **options: Any) -> None:
            if broken:
                broken.clear()
                raise ZeroDivisionError
            count_batch(*arguments, **options)

        monkeypatch.setattr("rota.engine.commit.pipeline.count_batch", failing)
        with pytest.raises(ZeroDivisionError):
            await soon(asyncio.ensure_future(engine.submit_all([NewTask(name="work")] * 50)))

        assert len(await engine.submit()) == 1


# --- callers that are alone ---------------------------------------------------------------------


async def grown_lonely(bench: Bench) -> None:
    """So many came one by one that the next command is taken to be alone."""
    for _ in range(ALONE_AFTER):
        await soon(bench.put(LIGHT))


async def test_a_caller_that_is_alone_is_answered_before_it_could_wait() -> None:
    bench = Bench(ThreadWriter)
    await grown_lonely(bench)

    for _ in range(3):
        assert bench.put(LIGHT, is_alone=True).done()
        await settle()
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches[-3:]] == [1, 1, 1]
    assert bench.writer.weight == 0


async def test_nobody_is_taken_to_be_alone_at_first() -> None:
    bench = Bench(ThreadWriter)
    futures = [bench.put(LIGHT, is_alone=True) for _ in range(3)]

    assert not any(future.done() for future in futures)
    await soon(asyncio.gather(*futures))
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches] == [3]


async def test_those_who_come_together_share_commits_until_each_comes_alone_again() -> None:
    bench = Bench(ThreadWriter)
    await grown_lonely(bench)
    bench.batches.clear()

    together = [bench.put(LIGHT, is_alone=True) for _ in range(4)]
    await soon(asyncio.gather(*together))
    assert [len(entries) for entries in bench.batches] == [1, 3]
    for _ in range(ALONE_AFTER):
        one = bench.put(LIGHT, is_alone=True)
        assert not one.done()
        await soon(one)
    assert bench.put(LIGHT, is_alone=True).done()
    await bench.writer.stop()


async def test_who_is_alone_waits_all_the_same_for_what_came_before_and_for_what_is_heavy() -> None:
    bench = Bench(ThreadWriter)
    await grown_lonely(bench)
    bench.batches.clear()

    before, after = bench.put(LIGHT), bench.put(LIGHT, is_alone=True)
    assert not after.done()
    await soon(asyncio.gather(before, after))
    await grown_lonely(bench)
    heavy = bench.put(HEAVY, is_alone=True)
    assert not heavy.done()
    await soon(heavy)
    await bench.writer.stop()

    assert [entry.command for entry in bench.batches[0]] == [LIGHT, LIGHT]
    assert bench.threads[-1] == "rota-writer"


async def test_what_an_answer_leads_to_is_not_carried_out_in_the_middle_of_it() -> None:
    bench = Bench(ThreadWriter)
    await grown_lonely(bench)
    inner: list[asyncio.Future[Done]] = []
    bench.on_delivery = lambda: inner.append(bench.put(LIGHT, is_alone=True))

    outer = bench.put(LIGHT, is_alone=True)
    bench.on_delivery = None
    assert outer.done()
    assert [one.done() for one in inner] == [False]
    await soon(inner[0])
    await bench.writer.stop()


async def test_a_mistake_in_a_batch_of_the_loops_is_answered_too() -> None:
    bench = Bench(ThreadWriter)
    await grown_lonely(bench)
    bench.mistake = ZeroDivisionError()

    alone = bench.put(LIGHT, is_alone=True)
    assert isinstance(alone.exception(), ZeroDivisionError)
    gathered = bench.put(LIGHT)
    with pytest.raises(ZeroDivisionError):
        await soon(gathered)
    bench.mistake = None
    await soon(bench.put(LIGHT))
    await bench.writer.stop()


# --- a store that is reached over a network -------------------------------------------------------


async def test_over_a_network_only_a_lone_command_runs_on_the_loop() -> None:
    bench = Bench(ThreadWriter, is_remote=True)
    await grown_lonely(bench)
    assert set(bench.threads[:-1]) == {"rota-writer"}
    bench.begun.clear()

    assert bench.put(LIGHT, is_alone=True).done()
    await settle()
    await soon(asyncio.gather(*(bench.put(LIGHT) for _ in range(3))))
    await soon(bench.put(HEAVY))
    await bench.writer.stop()

    here = threading.current_thread().name
    assert bench.threads[-3:] == [here, "rota-writer", "rota-writer"]
    assert bench.begun == [1]


async def test_the_thread_finishes_what_the_loop_did_not_wait_for() -> None:
    bench = Bench(ThreadWriter, is_remote=True)
    await grown_lonely(bench)
    bench.batches.clear()
    bench.is_slow = True
    bench.may_run.clear()
    bench.has_begun.clear()

    futures = [bench.put(LIGHT, is_alone=True)]
    await asyncio.to_thread(bench.has_begun.wait, 30)
    futures += [bench.put(LIGHT) for _ in range(3)]
    await settle()
    assert not any(one.done() for one in futures)
    assert bench.writer.weight == 4
    bench.may_run.set()
    await soon(asyncio.gather(*futures))
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches] == [1, 3]
    assert bench.threads[-2:] == ["rota-writer", "rota-writer"]
    assert bench.writer.weight == 0


async def test_a_stop_waits_for_what_the_loop_has_begun() -> None:
    bench = Bench(ThreadWriter, is_remote=True)
    await grown_lonely(bench)
    bench.is_slow = True

    future = bench.put(LIGHT, is_alone=True)
    await bench.writer.stop()

    assert future.done()


async def test_over_a_slow_network_nothing_runs_on_the_loop() -> None:
    bench = Bench(ThreadWriter, is_remote=True)
    await grown_lonely(bench)
    bench.begun.clear()
    assert isinstance(bench.writer, ThreadWriter)
    bench.writer._usual_s = 2 * REMOTE_QUICK_S

    assert not bench.put(LIGHT, is_alone=True).done()
    await bench.writer.stop()

    assert bench.begun == []


# --- followers whose commands gather -------------------------------------------------------------


def gathering(monkeypatch: pytest.MonkeyPatch, wanted: Gathering) -> None:
    monkeypatch.setattr(BatchPacing, "gathering", lambda _self, *, now_s: wanted)  # noqa: ARG005


async def test_a_batch_begins_as_soon_as_the_commands_it_waits_for_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathering(monkeypatch, Gathering(3, within_s=60.0))
    bench = Bench(ThreadWriter, is_remote=True)

    futures = []
    for _ in range(3):
        futures.append(bench.put(LIGHT))
        await settle()
    await soon(asyncio.gather(*futures))

    assert [len(entries) for entries in bench.batches] == [3]
    monkeypatch.undo()
    await bench.writer.stop()


async def test_a_batch_waits_for_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    gathering(monkeypatch, Gathering(3, within_s=0.01))
    bench = Bench(ThreadWriter, is_remote=True)

    await soon(bench.put(LIGHT))
    await bench.writer.stop()

    assert [len(entries) for entries in bench.batches] == [1]
