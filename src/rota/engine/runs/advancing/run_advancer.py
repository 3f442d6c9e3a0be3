"""Advances runs inside the batch's transaction: journal, new tasks and timers commit together.

Theory of operation. The cache keeps active runs in memory, each with the number of its last journal
entry. Each event goes through the pure reducer. Its journal entry is appended in the same
transaction as all its effects. When a batch is rolled back, the runs that it touched are dropped
from memory. The next batch that needs such a run replays its journal.
"""

from collections.abc import Sequence

import msgspec

from rota.core.decisions import FinishTask
from rota.core.ids import TaskId, news_of, to_text
from rota.core.workflow.commands import StartRun
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
from rota.core.workflow.events import RunEvent, RunRetried, RunStarted, Signalled, SignalSent
from rota.core.workflow.functions.resumption import asked_child, asked_tasks, resumption_task
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.program import asked_approvals, reduce
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RUN_ENDED
from rota.engine.commit.batch import Batch
from rota.engine.runs.advancing.asked_runs import asked_run
from rota.engine.runs.advancing.child_runs import ChildRuns
from rota.engine.runs.advancing.run_agenda import RunAgenda
from rota.engine.runs.advancing.run_events import approval_event, kind_of, run_event, shown
from rota.engine.runs.advancing.run_loader import RunLoader
from rota.engine.runs.advancing.run_tasks import RunTasks, ended_event, runs_function
from rota.engine.runs.advancing.sent_signals import addressee
from rota.engine.runs.cache import LiveRun
from rota.store.workflow.runs import RunStore


class RunAdvancer:
    """Feeds events to runs, and turns the runs' decisions into task decisions and rows."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._runs = RunStore(batch.tx)
        self._tasks = RunTasks(batch)
        self._now_ms = batch.context.now_ms
        self._cache = batch.runs
        self._made: list[tuple[int, int, int]] = []  # new tasks, each with its run and token
        self.next_moment_ms: int | None = None
        self.agenda = RunAgenda()
        self.loader = RunLoader(batch, self._runs)
        self._children = ChildRuns(
            self.agenda, self.loader, self._runs, self._tasks, now_ms=self._now_ms
        )

    # --- advancing ---------------------------------------------------------------------------

    def start(self, record: RunRecord, started: RunStarted) -> LiveRun:
        """Start a run; the caller has checked its definition and input."""
        live = self.loader.add(record)
        self.feed(record.id, started)
        return live

    def begin(self, command: StartRun) -> LiveRun:
        """Start the run that a command asks for, whose key no run has."""
        asked = asked_run(self.loader, self._tasks, command, now_ms=self._now_ms)
        return self.start(*asked)

    def cancel_task(self, task_id: TaskId) -> None:
        """Cancel a task, if it has not ended."""
        self._tasks.cancel(task_id)

    def new_id(self) -> int:
        """Return the id of a new run: ids of runs and of tasks are one sequence."""
        return self._tasks.new_id()

    def feed(self, run_id: int, event: RunEvent) -> None:
        """Apply an event to a run, and the events that follow in parent and child runs."""
        self.agenda.add(run_id, event)
        while (item := self.agenda.next()) is not None:
            target, one = item
            live = self.loader.find(target)
            if isinstance(one, SendSignal):
                if live is not None:
                    self._send_signal(live, one)
                continue
            if live is None or (live.run.is_ended and not isinstance(one, RunRetried)):
                continue  # an ended run ignores late events, except a retry
            self._advance(live, one)

    def _send_signal(self, sender: LiveRun, sent: SendSignal) -> None:
        """Deliver the signal of a token, and tell the token's run; a refusal fails the token."""
        target, error = addressee(self.loader, sender, sent), None
        if isinstance(target, LiveRun):
            event = Signalled(
                self._now_ms,
                sent.name,
                sent.payload,
                sender=to_text(sender.record.id),
                later=self.agenda.has_enough,
            )
            self._advance(target, event)
        else:
            error = target
        answer = SignalSent(self._now_ms, sent.number, error, later=self.agenda.has_enough)
        self.agenda.add_first(sender.record.id, answer)  # before what follows from the signal

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
        lease, live = self._batch.held.leases.by_task.get(task_id), self.loader.find(run_id)
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
            {**self._batch.run_tokens, **made} if made else self._batch.run_tokens
        )

    def write(self) -> None:
        """Write the collected rows."""
        self._runs.flush()
        if self._made:
            self._runs.add_tasks(self._made)
            self._cache.has_tasks = self._batch.held.windows.has_run_tasks = True
        self._cache.trim()

    def _advance(self, live: LiveRun, event: RunEvent) -> None:
        was_ended = live.run.is_ended
        decisions = reduce(live.run, event)
        if isinstance(live.run, CodeRun) and live.run.has_news:
            live.run.has_news = False
            self._batch.delivery.ended.append(news_of(live.record.id))
        self.agenda.decided += len(decisions)
        links: dict[str, int] = {}
        timers: list[tuple[int, int, str, int]] = []
        dropped: list[tuple[int, str, int]] = []
        for one in decisions:
            self._apply_decision(live, one, links, timers, dropped)
        for approval in asked_approvals(live.run, event, decisions):
            self._batch.events.append(approval_event(live.record, approval))
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
                task_id = TaskId(self._tasks.new_id())
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
                    made = self._children.start(live, asked)
                    links[str(decision.number)] = live.links[decision.number] = made
            case WarnOperations():
                long = run_event("run-long", live.record, operations=decision.count)
                self._batch.events.append(long)
            case StartChild():
                made = self._children.start(live, decision)
                links[str(decision.number)] = live.links[decision.number] = made
            case CancelChild() | PauseChild() | ResumeChild():
                self._children.tell_child(live, decision)
            case SendSignal():
                self.agenda.add(live.record.id, decision)
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
            tasks = [resumption_task(run, live.record.id, decision.links)]
        else:
            tasks = asked_tasks(run, decision)
        for task in tasks:
            task_id = TaskId(self._tasks.new_id())
            live.links[task.number] = self._tasks.dispatch(live, task, task_id, links)
            if runs_function(task.number) and live.ran_on:
                self._batch.preferred[task_id] = live.ran_on

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
        self._children.tell_parent(live)
