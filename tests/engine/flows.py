"""Workflows on a running engine: start them, work for them, restart what they run on, compare."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rota.core.tasks.model import TaskError, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.commands import (
    AdvanceRuns,
    ForkRun,
    LookAtRun,
    PutWorkflow,
    RunShown,
    SignalRun,
    StartRun,
    SteerRun,
    WorkflowKept,
)
from rota.core.workflow.definition.parser import read
from rota.core.workflow.events import TaskEnded
from rota.core.workflow.replay import ReplayedEntry, encoded, replay
from rota.core.workflow.states import RUN_ENDED
from rota.engine.runs.cache import RunCache
from rota.store.workflow.runs import JournalEntry, RunRecord
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running

MOST_STEPS = 500  # of a run that is let go on to its end; only a broken one takes more

Handler = Callable[[Any], Any]
Happening = Callable[["Flows", int], Any]  # what befalls a run, given its id


class Failure(Exception):  # noqa: N818 - what a handler raises
    """The attempt fails."""


class Flows:
    """The calls about runs that tests make over and over."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.command = engine.execute

    @property
    def cache(self) -> RunCache:
        return self.engine.coordinator.leading.pipeline._runs

    # --- asking ---------------------------------------------------------------------------------

    async def put(self, text: str) -> WorkflowKept:
        definition, problems = read(text)
        assert definition is not None, problems
        assert not problems
        kept = await self.command(PutWorkflow(definition))
        assert isinstance(kept, WorkflowKept)
        return kept

    async def begin(self, workflow: str, run_input: Any = None, **options: Any) -> RunShown:
        return await self._shown(
            StartRun(workflow=workflow, input={} if run_input is None else run_input, **options)
        )

    async def start(self, text: str, run_input: Any = None, **options: Any) -> int:
        """Keep a definition and start a run of it; its id."""
        kept = await self.put(text)
        return (await self.begin(kept.version.name, run_input, **options)).record.id

    async def look(self, run_id: int) -> RunShown:
        return await self._shown(LookAtRun(run_id))

    async def steer(
        self, run_id: int, action: Literal["cancel", "pause", "resume", "retry"]
    ) -> RunRecord:
        return (await self._shown(SteerRun(run_id=run_id, action=action))).record

    async def signal(self, run_id: int, name: str, payload: Any = None) -> RunRecord:
        return (await self._shown(SignalRun(run_id=run_id, name=name, payload=payload))).record

    async def fork(self, run_id: int, from_node: str, state: Any = None) -> RunRecord:
        return (await self._shown(ForkRun(run_id=run_id, from_node=from_node, state=state))).record

    async def _shown(self, command: Any) -> RunShown:
        reply = await self.command(command)
        assert isinstance(reply, RunShown)
        return reply

    # --- looking --------------------------------------------------------------------------------

    async def record(self, run_id: int) -> RunRecord:
        found = await self.engine.coordinator.queries.runs.by_id(run_id)
        assert found is not None
        return found

    async def state(self, run_id: int) -> str:
        return (await self.record(run_id)).state

    async def output(self, run_id: int) -> Any:
        record = await self.record(run_id)
        assert record.state == "completed", record
        return record.output

    async def journal(self, run_id: int) -> list[JournalEntry]:
        return await self.engine.coordinator.queries.runs.journal(run_id, after=0, limit=1_000_000)

    async def runs(self) -> list[RunRecord]:
        """All runs, the oldest first."""
        found = await self.engine.coordinator.queries.runs.page(
            workflow=None, state=None, limit=1_000, before=None
        )
        return found[::-1]

    async def replays(self, run_id: int) -> bool:
        """Whether the journal leads where it led."""
        record = await self.record(run_id)
        definition = await self.engine.coordinator.queries.workflows.definition(
            record.workflow, record.version
        )
        assert definition is not None
        entries = [
            ReplayedEntry(number=one.number, event=one.event, decisions=encoded(one.decisions))
            for one in await self.journal(run_id)
        ]
        return not replay(definition, entries)

    # --- working --------------------------------------------------------------------------------

    async def work(
        self, worker: WorkerRecord, handlers: Mapping[str, Handler], most: int = 1
    ) -> list[TaskRecord]:
        """Lease tasks, perform them, report them all at once."""
        leases = await self.engine.lease(worker, most)
        if leases:
            outcomes = await self.engine.report(worker, *(perform(one, handlers) for one in leases))
            assert set(outcomes) == {"accepted"}
        return leases

    async def take_slices(self) -> int:
        """Let runs take the steps that were too many for one event; the number of transactions."""
        count = 0
        while (await self.command(AdvanceRuns())).count:
            count += 1
        return count

    async def work_off(self, worker: WorkerRecord, handlers: Mapping[str, Handler]) -> int:
        """Work until there is nothing to do; how many tasks that were."""
        total = 0
        while leases := await self.work(worker, handlers, most=100):
            total += len(leases)
        return total


def perform(task: TaskRecord, handlers: Mapping[str, Handler]) -> Any:
    try:
        result = handlers[task.lane.name](payload_of(task))
    except Failure as failure:
        error = TaskError(type="Failure", message=str(failure))
        return done(task, ok=False, error=error)
    return done(task, result=msgspec.json.encode(result))


def ended_tokens(journal: list[JournalEntry]) -> list[int]:
    """The tokens whose tasks ended, in the order in which their run heard of it."""
    return [one.event.token for one in journal if isinstance(one.event, TaskEnded)]


def payload_of(task: TaskRecord) -> Any:
    return msgspec.json.decode(task.payload)


@asynccontextmanager
async def flowing(path: Path, clock: TurnedClock, **settings: Any) -> AsyncIterator[Flows]:
    async with running(path, clock, **settings) as engine:
        yield Flows(engine)


# --- whole histories ------------------------------------------------------------------------------


class Story(Struct, kw_only=True):
    """A run from its start to its end, with what befalls it on the way."""

    workflows: tuple[str, ...]  # the last is started
    input: Any = None
    handlers: Mapping[str, Handler]
    happenings: Mapping[int, Happening] = {}  # after so many steps


class Told(Struct, frozen=True):
    """What is left of a story: each run's row, and its journal as it was written."""

    records: list[RunRecord]
    journals: list[list[bytes]]
    steps: int


async def tell(story: Story, path: Path, *, restarts: Callable[[int], bool]) -> Told:
    """Live through a story on a file; the coordinator is a new one after some of its steps."""
    clock = TurnedClock()
    async with flowing(path, clock) as flows:
        worker = await flows.engine.register(max_concurrent_tasks=1)
        *others, started = story.workflows
        for text in others:
            await flows.put(text)
        run_id = await flows.start(started, story.input)
    step = 0
    while True:
        async with flowing(path, clock) as flows:
            while True:
                if await flows.state(run_id) in RUN_ENDED:
                    return await _told(flows, step)
                assert step < MOST_STEPS, "the run does not end"
                await _step(story, flows, worker, run_id, step)
                step += 1
                if restarts(step):
                    break


async def tell_at(story: Story, places: Sequence[Flows], pick: Callable[[int], int]) -> Told:
    """Live through a story with several coordinators: `pick` says who takes which step."""
    worker = await places[0].engine.register(max_concurrent_tasks=1)
    *others, started = story.workflows
    for text in others:
        await places[0].put(text)
    run_id = await places[0].start(started, story.input)
    for step in range(MOST_STEPS):
        flows = places[pick(step)]
        if await flows.state(run_id) in RUN_ENDED:
            return await _told(flows, step)
        await _step(story, flows, worker, run_id, step)
    raise AssertionError("the run does not end")


async def _step(story: Story, flows: Flows, worker: WorkerRecord, run_id: int, step: int) -> None:
    """One thing happens: something befalls the run, a task is done, or else time passes."""
    engine = flows.engine
    engine.clock.turn(1)
    await engine.beat(worker)
    happening = story.happenings.get(step)
    if happening is not None:
        await happening(flows, run_id)
    elif not await flows.work(worker, story.handlers):
        moment_ms = await engine.coordinator.queries.tasks.next_moment_ms()
        if moment_ms is not None:
            await engine.turn(max(0, moment_ms - engine.clock.now_ms()))
            await engine.beat(worker)


async def _told(flows: Flows, steps: int) -> Told:
    records = await flows.runs()
    journals = [await flows.journal(one.id) for one in records]
    written = [[msgspec.json.encode(entry) for entry in journal] for journal in journals]
    return Told(records, written, steps)
