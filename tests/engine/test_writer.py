import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rota.core.events import Event, QueueDueTasks, SubmitTasks
from rota.core.replies import Done
from rota.core.tasks import NewTask
from rota.engine.counting import count_batch
from rota.engine.entries import Delivery, Entry
from rota.engine.writer import MOST_PER_BATCH, InlineWriter, ThreadWriter, Writer
from tests.engine.running import running, settle, soon

LIGHT = SubmitTasks([NewTask(name="work")])
HEAVY = QueueDueTasks()
KINDS = pytest.mark.parametrize("kind", [InlineWriter, ThreadWriter])


class Bench:
    """A writer whose batches are noted instead of carried out."""

    def __init__(self, kind: type[InlineWriter] | type[ThreadWriter]) -> None:
        self.batches: list[list[Entry]] = []
        self.threads: list[str] = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.has_begun = threading.Event()
        self.writer: Writer = kind(self._run, self._deliver)
        self.writer.start(asyncio.get_running_loop())

    def _run(self, entries: Sequence[Entry]) -> Delivery:
        self.has_begun.set()
        assert self.may_run.wait(30)
        self.batches.append(list(entries))
        self.threads.append(threading.current_thread().name)
        return Delivery([(entry, Done()) for entry in entries])

    def _deliver(self, delivery: Delivery) -> None:
        for entry, outcome in delivery.answers:
            entry.future.set_result(outcome)

    def put(self, event: Event) -> "asyncio.Future[Done]":
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self.writer.put(Entry(event, future, stays=False))
        return future


@KINDS
async def test_what_is_put_at_one_moment_is_one_batch_in_its_order(
    kind: type[InlineWriter],
) -> None:
    bench = Bench(kind)
    events: list[Event] = [LIGHT, HEAVY, LIGHT, HEAVY]

    await soon(asyncio.gather(*(bench.put(event) for event in events)))
    await bench.writer.stop()

    assert [[entry.event for entry in entries] for entries in bench.batches] == [events]
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

    events = [[entry.event for entry in entries] for entries in bench.batches]
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

        monkeypatch.setattr("rota.engine.pipeline.count_batch", failing)
        with pytest.raises(ZeroDivisionError):
            await soon(asyncio.ensure_future(engine.submit_all([NewTask(name="work")] * 50)))

        assert len(await engine.submit()) == 1
