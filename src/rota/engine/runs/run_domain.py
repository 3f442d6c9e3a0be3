"""Executes the commands about workflows and runs, inside the batch's transaction."""

from collections import deque
from collections.abc import Sequence
from typing import Any, assert_never, get_args

from rota.core.decisions import FinishTask
from rota.core.ids import to_text
from rota.core.replies import Done
from rota.core.schedules.commands import BackfillSchedule, FireSchedules, RunSchedule
from rota.core.workflow.commands import (
    AddBranches,
    AddSiblings,
    AdvanceRuns,
    ArtifactStaged,
    CheckArtifact,
    FireRunTimers,
    ForkRun,
    LookAtOperations,
    LookAtReply,
    LookAtRun,
    LookAtStream,
    OperationsNoted,
    PruneRuns,
    PutCode,
    PutWorkflow,
    RecordWaits,
    ReportOperations,
    RunCommand,
    RunReply,
    RunShown,
    SignalRun,
    StageArtifact,
    StartRun,
    SteerRun,
    SteerScope,
)
from rota.core.workflow.events import (
    CancelMode,
    RunCancelRequested,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    TimerFired,
)
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RUN_ACTIONS, RUN_ENDED, RunState
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.request import earlier
from rota.engine.runs.advancing.run_advancer import RunAdvancer
from rota.engine.runs.advancing.run_events import shown
from rota.engine.runs.artifacts import ArtifactEngine
from rota.engine.runs.cache import LiveRun
from rota.engine.runs.forks import forked_start
from rota.engine.runs.functions import FunctionCommands
from rota.engine.runs.run_requests import RunRequests
from rota.errors import (
    IllegalState,
    RotaError,
    RunNotFound,
)
from rota.store.workers import WorkerStore
from rota.store.workflow.runs import RunStore

TIMERS_PER_STEP = 500
# Schedules start and cancel runs. What then becomes of artifacts is settled here.
STARTS_RUNS: frozenset[type[Any]] = frozenset({FireSchedules, RunSchedule, BackfillSchedule})
SLICES_PER_STEP = 100  # runs that go on in one transaction
WAITS_PER_STEP = 100  # runs that are replayed in one transaction for what they wait for
RUNS_PRUNED_PER_STEP = 100  # runs deleted in one transaction; their journals may be long


class RunDomain(Domain):
    """The runs of one batch: they follow the ends of their tasks, and the commands about them."""

    COMMANDS = frozenset(get_args(RunCommand))

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        return (
            super().is_concerned(batch)
            or batch.runs.is_concerned(batch.decisions)
            or not STARTS_RUNS.isdisjoint(batch.kinds)
        )

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._runs = RunStore(batch.tx)
        self._workers = WorkerStore(batch.tx)
        self._advancer = RunAdvancer(batch)
        self._artifacts = ArtifactEngine(batch)
        self._requests = RunRequests(batch, self._advancer)
        self._functions = FunctionCommands(batch, self._advancer)
        self._now_ms = batch.context.now_ms
        self._slices: Done | None = None  # the reply to `AdvanceRuns` in this batch
        self._noted: deque[OperationsNoted | RotaError] = deque()  # replies to `ReportOperations`

    def load(self, commands: Sequence[RunCommand]) -> None:
        """Take up the reports of functions, before the ends of their tasks in the same batch."""
        for command in commands:
            if type(command) is ReportOperations:
                try:
                    self._noted.append(self._functions.take_up(command))
                except RotaError as error:
                    self._noted.append(error)

    def react(self) -> None:
        self._advancer.tasks_finished(self.batch.decisions.get(FinishTask, ()))

    def close(self) -> None:
        self._advancer.close()

    def write(self) -> None:
        self._advancer.write()
        self._artifacts.settle(self.batch.decisions, self._functions.reported)
        delivery = self.batch.delivery
        delivery.next_moment_ms = earlier(delivery.next_moment_ms, self._advancer.next_moment_ms)

    def reduce(self, command: RunCommand) -> RunReply:  # noqa: C901, PLR0911, PLR0912 - a table
        match command:
            case PutWorkflow():
                return self._advancer.loader.put(command.definition, publish=command.publish)
            case PutCode():
                self._functions.check_put(command)
                return self._advancer.loader.put(command.definition, publish="new")
            case ReportOperations():
                noted = self._noted.popleft()
                if isinstance(noted, RotaError):
                    raise noted
                return noted
            case LookAtOperations():
                return self._functions.look(self._live(command.run_id), command)
            case LookAtStream():
                return self._functions.look_at_stream(self._live(command.run_id), command)
            case LookAtReply():
                return self._functions.look_at_reply(self._live(command.run_id), command)
            case StartRun():
                return self._start(command)
            case ForkRun():
                return self._fork(command)
            case SteerRun():
                return self._steer(command)
            case SteerScope():
                return shown(self._requests.end_scope(command))
            case AddBranches():
                return self._requests.add_branches(command)
            case AddSiblings():
                return self._requests.add_siblings(command)
            case SignalRun():
                live, is_known = self._requests.signal(command)
                return shown(live, is_duplicate=is_known)
            case LookAtRun():
                return self._look(command.run_id)
            case FireRunTimers():
                return self._fire_timers()
            case AdvanceRuns():
                return self._advance()
            case RecordWaits():
                return self._record_waits()
            case PruneRuns():
                return self._prune(command)
            case StageArtifact():
                return ArtifactStaged(self._artifacts.stage(command))
            case CheckArtifact():
                self._artifacts.check(command)
                return Done(0)
            case _:
                assert_never(command)

    def _live(self, run_id: int) -> LiveRun:
        live = self._advancer.loader.find(run_id)
        if live is None:
            raise RunNotFound(to_text(run_id))
        return live

    def _look(self, run_id: int, *, is_duplicate: bool = False) -> RunShown:
        """Return a run's current state; an ended run is read from its row, without a replay."""
        if self._advancer.loader.cached(run_id) is None:
            record = self._runs.by_ids([run_id]).get(run_id)
            if record is not None and record.state in RUN_ENDED:
                return RunShown(record, context_of(record), is_duplicate)
        return shown(self._live(run_id), is_duplicate=is_duplicate)

    def _start(self, command: StartRun) -> RunShown:
        if command.key is not None:
            known = self._runs.id_by_key(command.key)
            if known is not None:
                return self._look(known, is_duplicate=True)
        return shown(self._advancer.begin(command))

    def _fork(self, command: ForkRun) -> RunShown:
        other = self._live(command.run_id)
        state = other.run.documents["state"] if command.state is None else command.state
        record = RunRecord(
            id=self._advancer.new_id(),
            workflow=other.record.workflow,
            version=other.record.version,
            state=RunState.RUNNING,
            input=other.run.input,
            forked_from=other.record.id,
            timeout_ms=other.record.timeout_ms,
            created_at_ms=self._now_ms,
        )
        started = forked_start(other.run, command, record, now_ms=self._now_ms, state=state)
        return shown(self._advancer.start(record, started))

    def _steer(self, command: SteerRun) -> RunShown:
        live = self._live(command.run_id)
        if live.run.state not in RUN_ACTIONS[command.action]:
            raise IllegalState(
                f"run {to_text(command.run_id)!r} is {live.run.state}, so it cannot be "
                f"{_past(command.action)}",
                state=live.run.state,
            )
        self._advancer.feed(command.run_id, self._event(command))
        return shown(live)

    def _event(self, command: SteerRun) -> RunEvent:
        match command.action:
            case "cancel":
                mode: CancelMode = "force" if command.force else "undo"
                return RunCancelRequested(self._now_ms, command.reason, mode)
            case "pause":
                return RunPaused(self._now_ms, children=True)
            case "resume":
                return RunResumed(self._now_ms, children=True, accept=command.accept)
            case "retry":
                return RunRetried(self._now_ms, children=True)

    def _fire_timers(self) -> Done:
        due = self._runs.due_timers(self._now_ms, TIMERS_PER_STEP)
        self._runs.drop_timers([(run_id, kind, number) for run_id, kind, number, _ in due])
        for run_id, kind, number, _ in due:
            self._advancer.feed(run_id, TimerFired(self._now_ms, kind, number))  # type: ignore[arg-type]  # kinds are stored as they are
        return Done(len(due))

    def _advance(self) -> Done:
        """Take the next slices of runs, the longest waiting first, up to a number of decisions.

        The reply counts at least one while slices are due: another step has to follow. A batch
        takes slices once, and every command in it that asks for them gets the same reply.
        """
        if self._slices is not None:
            return self._slices
        due, taken = self._runs.due_slices(self._now_ms, SLICES_PER_STEP), 0
        for timer in due:
            if self._advancer.agenda.has_enough:
                break
            self._runs.drop_timers([(timer.run, timer.kind, timer.number)])
            self._advancer.feed(timer.run, TimerFired(self._now_ms, "slice", timer.number))
            taken += 1
        self._slices = Done(max(taken, min(1, len(due))))
        return self._slices

    def _record_waits(self) -> Done:
        waits = self._runs.waits
        run_ids = waits.unrecorded(WAITS_PER_STEP)
        for run_id in run_ids:
            waits.change(run_id, self._live(run_id).whole_waits())
        if run_ids:
            waits.mark_recorded(run_ids)
            waits.flush()
        return Done(len(run_ids))

    def _prune(self, command: PruneRuns) -> Done:
        gone = self._runs.prune(command.finished_before_ms, RUNS_PRUNED_PER_STEP)
        if gone:
            self._artifacts.forget(gone)
            self._advancer.loader.forget(gone)
            # These ids must not be used again, even if the clock is set back before the next start.
            self._workers.raise_counter("task", max(gone))
        return Done(len(gone))


def _past(action: str) -> str:
    return {"cancel": "cancelled", "pause": "paused", "resume": "resumed", "retry": "retried"}[
        action
    ]


def context_of(record: RunRecord) -> dict[str, Any]:
    """Return the context of a run that has ended."""
    return {"input": record.input, **(record.context or {})}
