"""Executes what callers ask of runs under way: signals, ends of scopes, further branches."""

from rota.core.ids import TaskId, to_text
from rota.core.workflow.commands import (
    AddBranches,
    AddSiblings,
    ScopeExtended,
    SignalRun,
    SteerScope,
)
from rota.core.workflow.events import BranchesAdded, ScopeEndRequested, Signalled
from rota.core.workflow.program import check_signal, run_with_scopes
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import requests
from rota.core.workflow.runtime.tokens import BranchScope
from rota.engine.commit.batch import Batch
from rota.engine.runs.advancing.run_advancer import RunAdvancer
from rota.engine.runs.advancing.run_tasks import check_lease
from rota.engine.runs.cache import LiveRun
from rota.errors import IllegalState, Invalid, Overloaded, RunNotFound
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore


class RunRequests:
    def __init__(self, batch: Batch, advancer: RunAdvancer) -> None:
        self._advancer = advancer
        self._runs = RunStore(batch.tx)
        self._tasks = TaskStore(batch.tx, batch.lanes)
        self._snapshot = batch.snapshot
        self._now_ms = batch.context.now_ms

    def signal(self, command: SignalRun) -> tuple[LiveRun, bool]:
        """Signal a run; return it, and whether the key of the signal was known."""
        live = self._live(command.run_id)
        is_known = command.key is not None and command.key in live.run.signal_keys
        if not is_known:
            check_signal(live.run, command)
            name, payload = command.name, command.payload
            event = Signalled(self._now_ms, name, payload, command.key, command.token)
            self._advancer.feed(command.run_id, event)
        return live, is_known

    def _live(self, run_id: int) -> LiveRun:
        live = self._advancer.loader.find(run_id)
        if live is None:
            raise RunNotFound(to_text(run_id))
        return live

    def end_scope(self, command: SteerScope) -> LiveRun:
        live = self._live(command.run_id)
        requests.check(run_with_scopes(live.run, command.run_id, command.scope), command)
        event = ScopeEndRequested(self._now_ms, command.scope, command.action, command.reason)
        self._advancer.feed(command.run_id, event)
        return live

    def add_branches(self, command: AddBranches) -> ScopeExtended:
        live = self._live(command.run_id)
        run = run_with_scopes(live.run, command.run_id, command.scope)
        scope = requests.find_open(run, command.run_id, command.scope)
        return self._extend(live, run, scope, command, None)

    def add_siblings(self, command: AddSiblings) -> ScopeExtended:
        """Add branches for a task of a run, under its lease."""
        task_id, text = TaskId(command.task_id), to_text(command.task_id)
        check_lease(self._snapshot, self._tasks, task_id, fence=command.fence, by=command.by)
        whose = self._runs.tasks([task_id]).get(task_id)
        if whose is None:
            raise Invalid(f"task {text!r} does not belong to a run", field="task_id")
        live = self._live(whose.run)
        run, scope = live.run, None
        if isinstance(run, Run) and run.failure is None:
            token = run.tokens.get(whose.token)
            if token is not None:
                scope = requests.scope_around(run, token, command.fan_out)
        if scope is None or not isinstance(run, Run):
            name = "" if command.fan_out is None else f" {command.fan_out!r}"
            detail = f"task {text!r} is in no open scope{name} that takes branches"
            raise IllegalState(detail, state=live.run.state)
        return self._extend(live, run, scope, command, whose.token)

    def _extend(
        self,
        live: LiveRun,
        run: Run,
        scope: BranchScope,
        command: AddBranches | AddSiblings,
        token: int | None,
    ) -> ScopeExtended:
        run_id, items, key = live.record.id, command.items, command.key
        known = None if key is None else scope.additions.get(key)
        if known is not None:
            return ScopeExtended(run_id, scope.number, *known, scope.total, is_duplicate=True)
        if run.procedures or run.deferred:
            detail = f"run {to_text(run_id)!r} is in the middle of a join or an end; try again"
            raise Overloaded(detail)
        count, is_last = len(items), command.is_last
        requests.check_addition(run, run_id, scope, count, is_last=is_last)
        first = scope.total
        event = BranchesAdded(self._now_ms, scope.number, items, key, is_last, token)
        self._advancer.feed(run_id, event)
        return ScopeExtended(run_id, scope.number, first, count, first + count)
