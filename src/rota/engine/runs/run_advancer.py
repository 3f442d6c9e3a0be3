"""Advances runs inside the batch's transaction: journal, new tasks and timers commit together.

Theory of operation. The cache keeps active runs in memory, each with the number of its last journal
entry. Each event goes through the pure reducer. Its journal entry is appended in the same
transaction as all its effects. When a batch is rolled back, the runs that it touched are dropped
from memory. The next batch that needs such a run replays its journal.

Where peers advance runs, too, the number of a cached run is compared with the length of its journal
before the run is used. Entries that peers have appended are then read.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from rota.core.decisions import FinishTask
from rota.core.events import Event
from rota.core.ids import TaskId, from_text, news_of, next_ids, to_text
from rota.core.limits import MAX_EVENT_TEXT, STEPS_PER_SLICE
from rota.core.workflow.commands import (
    Publishing,
    RunShown,
    SignalRun,
    StartRun,
    WorkflowKept,
    named_version,
)
from rota.core.workflow.decisions import (
    AskChild,
    AskTasks,
    CancelChild,
    CancelTask,
    DispatchTask,
    DropTimer,
    PauseChild,
    ResumeChild,
    ResumeFunction,
    RunDecision,
    SendSignal,
    SetRunState,
    SetTimer,
    StartChild,
    WarnOperations,
)
from rota.core.workflow.definition import schemas
from rota.core.workflow.events import (
    RULES,
    ChildEnded,
    RunCancelRequested,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
    Signalled,
    SignalSent,
)
from rota.core.workflow.functions.resumption import (
    asked_child,
    asked_tasks,
    resumption_task,
)
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.program import (
    AnyDefinition,
    Program,
    asked_approvals,
    check_signal,
    input_schema,
    max_depth,
    new_run,
    program_of,
    reduce,
)
from rota.core.workflow.records import RunRecord, Version
from rota.core.workflow.states import RUN_ENDED, RunState
from rota.engine.commit.batch import Batch
from rota.engine.runs.cache import LiveRun
from rota.engine.runs.run_tasks import RunTasks, ended_event, runs_function
from rota.errors import (
    IllegalState,
    Invalid,
    NothingToApprove,
    RotaError,
    RunNotFound,
    TooMany,
    WorkflowNotFound,
)
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.definitions import WorkflowStore
from rota.store.workflow.runs import RunStore

DECISIONS_PER_STEP = 1_000  # of runs in one transaction; what follows waits for the next ones
MOST_PROGRAMS = 1_000


class RunAdvancer:
    """Feeds events to runs, and turns the runs' decisions into task decisions and rows."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._runs = RunStore(batch.tx)
        self._workflows = WorkflowStore(batch.tx)
        self._tasks = RunTasks(TaskStore(batch.tx, batch.lanes), batch.snapshot, batch.context)
        self._snapshot = batch.snapshot
        self._now_ms = batch.context.now_ms
        self._cache = batch.runs
        self._made: list[tuple[int, int, int]] = []  # new tasks, each with its run and token
        self.next_moment_ms: int | None = None
        self.decided = 0  # decisions of runs in this batch
        self._todo: deque[tuple[int, RunEvent | SendSignal]] = deque()

    # --- finding -----------------------------------------------------------------------------

    def find(self, run_id: int) -> LiveRun | None:
        """Return a run, from memory or by replaying its journal."""
        live = self._cache.runs.get(run_id)
        if live is None:
            record = self._runs.by_ids([run_id]).get(run_id)
            if record is None:
                return None
            live = self._replayed(record)
            self._cache.keep(run_id, live)
        self._cache.runs.move_to_end(run_id)
        self._cache.touched.add(run_id)
        return live

    def _replayed(self, record: RunRecord) -> LiveRun:
        program = self.program(record.workflow, record.version)
        assert program is not None, "a run's definition is kept as long as the run"
        live = LiveRun(record, new_run(program, record.input), has_timers=True, has_waits=True)
        self._read_on(live)
        return live

    def _read_on(self, live: LiveRun) -> None:
        """Replay the journal entries after the last one that the run has applied."""
        for entry in self._runs.journal(live.record.id, after=live.number):
            reduce(live.run, entry.event)
            live.number = entry.number
            live.links |= {int(token): made for token, made in entry.links.items()}
        live.run.changed_waits.clear()  # they were stored with these entries

    def program(self, name: str, version: int) -> Program | None:
        program = self._cache.programs.get((name, version))
        if program is None:
            definition = self._workflows.definition(name, version)
            if definition is None:
                return None
            if len(self._cache.programs) >= MOST_PROGRAMS:
                self._cache.programs.clear()
            program = program_of(definition, version)
            self._cache.programs[name, version] = program
        return program

    def current(self, name: str) -> int | None:
        """The version that runs of this name have; None: none is published."""
        version = self._cache.current.get(name)
        if version is None:
            version = self._workflows.current(name)
            if version is not None and len(self._cache.current) < MOST_PROGRAMS:
                self._cache.current[name] = version
        return version

    def put(self, definition: AnyDefinition, *, publish: Publishing) -> WorkflowKept:
        """Store a definition; the same content is the same version."""
        kept = WorkflowKept(*self._workflows.put(definition, now_ms=self._now_ms, publish=publish))
        if kept.is_new:
            self._batch.events.append(workflow_event(kept.version))
        self._cache.current.pop(definition.name, None)
        return kept

    def cached(self, run_id: int) -> LiveRun | None:
        return self._cache.runs.get(run_id)

    def forget(self, run_ids: Sequence[int]) -> None:
        for run_id in run_ids:
            self._cache.runs.pop(run_id, None)

    # --- advancing ---------------------------------------------------------------------------

    def start(self, record: RunRecord, started: RunStarted) -> LiveRun:
        """Start a run; the caller has checked its definition and input."""
        program = self.program(record.workflow, record.version)
        assert program is not None
        live = LiveRun(record, new_run(program, record.input))
        self._cache.keep(record.id, live)
        self._runs.add(record)
        self._batch.events.append(run_event("run-started", record))
        self.feed(record.id, started)
        return live

    def begin(self, command: StartRun) -> LiveRun:
        """Start the run that a command asks for, whose key no run has."""
        version = command.version or self.current(command.workflow)
        program = None if version is None else self.program(command.workflow, version)
        if version is None or program is None:
            raise WorkflowNotFound(command.workflow, version)
        problems = schemas.value_problems(input_schema(program), command.input)
        if problems:
            raise Invalid(f"input: {'; '.join(problems)}", field="input", problems=problems)
        timeout_ms = command.timeout_ms or program.definition.timeout_ms
        record = RunRecord(
            id=self.new_id(),
            workflow=command.workflow,
            version=version,
            state=RunState.RUNNING,
            input=command.input,
            key=command.key,
            timeout_ms=timeout_ms,
            created_at_ms=self._now_ms,
        )
        started = RunStarted(
            self._now_ms,
            command.input,
            timeout_ms=timeout_ms,
            rules=RULES,
            slice_steps=STEPS_PER_SLICE,
            run_id=to_text(record.id),
            headers=command.headers or UNSET,
        )
        return self.start(record, started)

    def cancel_task(self, task_id: TaskId) -> None:
        """Cancel a task, if it has not ended."""
        self._tasks.cancel(task_id)

    def new_id(self) -> int:
        (number,) = next_ids(1, last=self._snapshot.last_task_id, now_ms=self._now_ms)
        self._snapshot.last_task_id = number
        return number

    def feed(self, run_id: int, event: RunEvent) -> None:
        """Apply an event to a run, and the events that follow in parent and child runs."""
        self._todo.append((run_id, event))
        while self._todo:
            target, one = self._todo.popleft()
            live = self.find(target)
            if isinstance(one, SendSignal):
                if live is not None:
                    self._send_signal(live, one)
                continue
            if live is None or (live.run.is_ended and not isinstance(one, RunRetried)):
                continue  # an ended run ignores late events, except a retry
            self._advance(live, one)

    @property
    def _has_enough(self) -> bool:
        """Whether runs that follow each other take their steps in later transactions."""
        return self.decided >= DECISIONS_PER_STEP

    def _send_signal(self, sender: LiveRun, sent: SendSignal) -> None:
        """Deliver the signal of a token, and tell the token's run; a refusal fails the token."""
        sender_id = to_text(sender.record.id)
        wanted = sender_id if sent.run is None else sent.run[:MAX_EVENT_TEXT]
        error = None
        try:
            target = self._addressee(wanted, sent)
        except (RunNotFound, IllegalState, NothingToApprove, TooMany) as refusal:
            error = _refusal(refusal, wanted)
        else:
            event = Signalled(
                self._now_ms,
                sent.name,
                sent.payload,
                sender=sender_id,
                later=self._has_enough,
            )
            self._advance(target, event)
        answer = SignalSent(self._now_ms, sent.number, error, later=self._has_enough)
        self._todo.appendleft((sender.record.id, answer))  # before what follows from the signal

    def _addressee(self, run_text: str, sent: SendSignal) -> LiveRun:
        """The run that a signal is for, which must be able to take it."""
        run_id = from_text(run_text)
        live = None if run_id is None else self.find(run_id)
        if run_id is None or live is None:
            raise RunNotFound(run_text)
        check_signal(live.run, SignalRun(run_id=run_id, name=sent.name))
        return live

    def tasks_finished(self, finished: Sequence[FinishTask]) -> None:
        """Feed the ends of tasks to the runs that they work for."""
        if not finished or not self._cache.has_tasks:
            return
        working = self._working([one.id for one in finished])
        for one in finished:
            if one.id in working:
                run_id, token = working[one.id]
                if runs_function(token):
                    self._note_worker(run_id, one.id)
                self.feed(run_id, ended_event(one, token, now_ms=self._now_ms))

    def _note_worker(self, run_id: int, task_id: TaskId) -> None:
        """Note the worker that ran a function, which may keep it in memory."""
        lease, live = self._batch.held.leases.by_task.get(task_id), self.find(run_id)
        if lease is not None and live is not None:
            live.ran_on = lease.incarnation

    def _working(self, ids: Sequence[TaskId]) -> dict[TaskId, tuple[int, int]]:
        """Return the run and the token of the tasks that work for one.

        The working set knows them for the tasks that workers run.
        """
        known, unknown = self._batch.held.leases.run_tokens_of(ids)
        if unknown:
            known |= {TaskId(task): whose for task, whose in self._runs.tasks(unknown).items()}
        return known

    def close(self) -> None:
        """Add the decisions about the runs' tasks to those of the batch."""
        self._made = self._tasks.close(self._batch.decisions)
        made = {TaskId(task): (run, token) for task, run, token in self._made}
        self._batch.run_tokens = (
            {**self._batch.run_tokens, **made} if made else (self._batch.run_tokens)
        )

    def write(self) -> None:
        """Write the collected rows."""
        self._runs.flush()
        if self._made:
            self._runs.add_tasks(self._made)
            self._cache.has_tasks = True
        self._cache.trim()

    def _advance(self, live: LiveRun, event: RunEvent) -> None:
        was_ended = live.run.is_ended
        decisions = reduce(live.run, event)
        if isinstance(live.run, CodeRun) and live.run.has_news:
            live.run.has_news = False
            self._batch.delivery.ended.append(news_of(live.record.id))
        self.decided += len(decisions)
        links: dict[str, int] = {}
        timers: list[tuple[int, int, str, int]] = []
        dropped: list[tuple[int, str, int]] = []
        for one in decisions:
            self._apply_decision(live, one, links, timers, dropped)
        for approval in asked_approvals(live.run, event, decisions):
            asked = run_event("run-approval-asked", live.record, approval=approval)
            self._batch.events.append(asked)
        live.number += 1
        run_id = live.record.id
        self._runs.append(run_id, live.number, event, decisions, links)
        self._runs.waits.change(run_id, live.changed_waits(was_ended=was_ended))
        if dropped:
            self._runs.drop_timers(dropped)
        standing = [one for one in timers if (one[2], one[3]) in live.run.timers]
        if standing and not live.run.is_ended:
            live.has_timers = True
            self._runs.set_timers(standing)
            self._hint(min(due for due, *_ in standing))

    def _hint(self, moment_ms: int) -> None:
        if self.next_moment_ms is None or moment_ms < self.next_moment_ms:
            self.next_moment_ms = moment_ms

    def _apply_decision(  # noqa: C901, PLR0912 - a table
        self,
        live: LiveRun,
        decision: RunDecision,
        links: dict[str, int],
        timers: list[tuple[int, int, str, int]],
        dropped: list[tuple[int, str, int]],
    ) -> None:
        match decision:
            case DispatchTask():
                task_id = TaskId(self.new_id())
                made = self._tasks.dispatch(live, decision, task_id, links)
                live.links[decision.number] = made
            case CancelTask():
                cancelled = live.links.pop(decision.number, None)
                if cancelled is not None:
                    self._tasks.cancel(TaskId(cancelled))
            case ResumeFunction() | AskTasks():
                self._dispatch_for_function(live, decision, links)
            case AskChild():
                assert isinstance(live.run, CodeRun)
                asked = asked_child(live.run, decision)
                if asked is not None:
                    made = self._start_child(live, asked)
                    links[str(decision.number)] = live.links[decision.number] = made
            case WarnOperations():
                long = run_event("run-long", live.record, operations=decision.count)
                self._batch.events.append(long)
            case StartChild():
                made = self._start_child(live, decision)
                links[str(decision.number)] = live.links[decision.number] = made
            case CancelChild() | PauseChild() | ResumeChild():
                self._tell_child(live, decision)
            case SendSignal():
                self._todo.append((live.record.id, decision))
            case SetTimer():
                timers.append((decision.due_at_ms, live.record.id, decision.kind, decision.number))
            case DropTimer():
                dropped.append((live.record.id, decision.kind, decision.number))
            case SetRunState():
                self._set_state(live, decision)
            case _:
                pass  # about the run's own state, which the journal has

    def _dispatch_for_function(
        self, live: LiveRun, decision: ResumeFunction | AskTasks, links: dict[str, int]
    ) -> None:
        """Make the task that runs a function, or tasks that it asks for."""
        run = live.run
        assert isinstance(run, CodeRun)
        if isinstance(decision, ResumeFunction):
            tasks = [resumption_task(run, live.record.id)]
        else:
            tasks = asked_tasks(run, decision)
        for task in tasks:
            task_id = TaskId(self.new_id())
            live.links[task.number] = self._tasks.dispatch(live, task, task_id, links)
            if runs_function(task.number) and live.ran_on:
                self._batch.preferred[task_id] = live.ran_on

    def _tell_child(self, live: LiveRun, decision: CancelChild | PauseChild | ResumeChild) -> None:
        """Feed an event to the child run of a token, if there is one."""
        child = live.links.get(decision.number)
        if not child:  # 0: it could not start
            return
        event: RunEvent
        match decision:
            case CancelChild():
                reason = f"run {to_text(live.record.id)} no longer needs it"
                event = RunCancelRequested(self._now_ms, reason, decision.mode)
            case PauseChild():
                event = RunPaused(self._now_ms, children=True)
            case ResumeChild():
                event = RunResumed(self._now_ms, children=True)
            case _:
                assert_never(decision)
        self._todo.append((child, event))

    def _start_child(self, live: LiveRun, decision: StartChild) -> int:
        """Start a child run for a token and return its id; 0: it cannot start, and has failed.

        The token of a retry takes over the child run of the token that it repeats, if it can go on.
        """
        if decision.resumes is not None:
            resumed = self._resume_child(live, decision.resumes, decision.number)
            if resumed is not None:
                return resumed
        parent, now_ms = live.record, self._now_ms
        child_id = self.new_id()
        name, wanted = named_version(decision.workflow)
        version = wanted or self.current(name)
        program = None if version is None else self.program(name, version)
        most = max_depth(live.run)
        problem: str | None = None
        if program is None:
            problem = f"there is no workflow {decision.workflow!r}"
        elif parent.depth + 1 >= most:
            problem = f"sub-workflows are nested more than {most} deep"
        elif found := schemas.value_problems(input_schema(program), decision.input):
            problem = "; ".join(found)
        if problem is not None or version is None or program is None:
            error = {"type": "sub_workflow", "message": problem or ""}
            ended = ChildEnded(
                now_ms, decision.number, ok=False, error=error, later=self._has_enough
            )
            self._todo.append((parent.id, ended))
            return 0
        limits = [one for one in (decision.timeout_ms, program.definition.timeout_ms) if one]
        record = RunRecord(
            id=child_id,
            workflow=name,
            version=version,
            state=RunState.RUNNING,
            input=decision.input,
            parent_run=parent.id,
            parent_token=decision.number,
            depth=parent.depth + 1,
            timeout_ms=min(limits, default=None),
            created_at_ms=now_ms,
        )
        self._cache.keep(child_id, LiveRun(record, new_run(program, record.input)))
        self._runs.add(record)
        self._batch.events.append(run_event("run-started", record))
        started = RunStarted(
            now_ms,
            record.input,
            timeout_ms=record.timeout_ms,
            rules=RULES,
            slice_steps=STEPS_PER_SLICE,
            run_id=to_text(child_id),
            parent_id=to_text(parent.id),
            headers=live.headers or UNSET,
        )
        self._todo.append((child_id, started))
        return child_id

    def _resume_child(self, live: LiveRun, before: int, token: int) -> int | None:
        """Let the child run of a token go on for another one; None: it is gone, or cannot."""
        child_id = live.links.get(before)
        child = self.find(child_id) if child_id else None
        if child is None or not child.run.can_go_on:
            return None
        child.record = msgspec.structs.replace(child.record, parent_token=token)
        self._runs.set_parent_token(child.record.id, token)
        if child.run.state is RunState.COMPLETED:  # an operator has retried it on its own
            self._tell_parent(child)
        elif child.run.is_ended:
            retried = RunRetried(self._now_ms, children=True, with_parent=True)
            self._todo.append((child.record.id, retried))
        return child.record.id

    def _tell_parent(self, live: LiveRun) -> None:
        """Feed the end of a run to the run inside which it runs, if there is one."""
        record = live.record
        if record.parent_run is None or record.parent_token is None:
            return
        is_ok = record.state is RunState.COMPLETED
        error = record.error or {"type": record.state, "message": record.state}
        event = ChildEnded(
            self._now_ms,
            record.parent_token,
            is_ok,
            record.output,
            None if is_ok else error,
            live.run.undoable(),
            later=self._has_enough,
        )
        self._todo.append((record.parent_run, event))

    def _set_state(self, live: LiveRun, decision: SetRunState) -> None:
        is_ended = decision.state in RUN_ENDED
        was = live.record.state
        documents = live.run.documents
        self._runs.set_state(
            live.record.id,
            decision.state,
            context={"state": documents["state"], "output": documents["output"]},
            output=decision.output,
            error=decision.error,
            finished_at_ms=self._now_ms if is_ended else None,
        )
        live.record = msgspec.structs.replace(
            live.record,
            state=decision.state,
            output=decision.output,
            error=decision.error,
            finished_at_ms=self._now_ms if is_ended else None,
        )
        self._batch.events.append(run_event(kind_of(live.record.state), live.record, was=was))
        ended_runs = self._batch.delivery.ended_runs
        if not is_ended:
            ended_runs.pop(live.record.id, None)  # the same batch has ended it, and retries it
            return
        self._batch.delivery.ended.append(live.record.id)
        ended_runs[live.record.id] = shown(live)
        if live.has_timers:
            self._runs.drop_all_timers(live.record.id)
        self._tell_parent(live)


def shown(live: LiveRun, *, is_duplicate: bool = False) -> RunShown:
    """Return a run with its context, as callers get it."""
    documents = live.run.documents
    context = {
        "input": live.record.input,
        "state": documents["state"],
        "output": documents["output"],
    }
    return RunShown(live.record, context, is_duplicate)


def _refusal(refusal: RotaError, run_text: str) -> dict[str, Any]:
    """The error of a node whose signal was refused."""
    return {
        "type": "signal_refused",
        "message": str(refusal),
        "code": refusal.code,
        "run_id": run_text,
    }


def kind_of(state: RunState) -> str:
    """Return the event type for a run's new state; a state of running means that it resumed."""
    return "run-resumed" if state is RunState.RUNNING else f"run-{state.replace('_', '-')}"


def run_event(kind: str, record: RunRecord, *, was: str | None = None, **more: Any) -> Event:
    data: dict[str, Any] = {"workflow": record.workflow, "version": record.version, **more}
    if record.parent_run is not None:
        data["parent_run_id"] = to_text(record.parent_run)
    if kind == "run-resumed":
        data["was"] = was
    if record.error is not None:
        data["error"] = {
            "type": str(record.error.get("type", ""))[:MAX_EVENT_TEXT],
            "message": str(record.error.get("message", ""))[:MAX_EVENT_TEXT],
        }
    return Event(type=kind, subject=to_text(record.id), data=data)


def workflow_event(version: Version) -> Event:
    return Event(type="workflow-put", subject=version.name, data={"version": version.version})
