"""The tools that act. They are offered only where the operator and the token allow it.

Each has `dry_run`, which is on unless it is turned off: the answer then says what would happen, and
nothing changes.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from rota.contrib.mcp.reading import Document, document_of
from rota.core.tasks.model import TaskState
from rota.errors import Invalid
from rota.messages import TaskSelection
from rota.messages.dashboard import Redrive
from rota.messages.tasks import TaskCount
from rota.sdk.client import calls, run_calls, schedule_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, path_at, post

DryRun = Annotated[bool, Field(description="True: say what would happen, and change nothing.")]


class ActTools:
    """What an assistant may do, by the actions that its token has."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def allowed(self, actions: list[str]) -> list[Callable[..., Any]]:
        """The tools that a token with these actions may use."""
        by_action: dict[str, list[Callable[..., Any]]] = {
            "submit": [
                self.retry_failures,
                self.retry_tasks,
                self.cancel_tasks,
                self.retry_run,
                self.cancel_run,
                self.pause_run,
                self.resume_run,
                self.run_schedule_now,
            ],
            "operate": [self.pause_queue, self.resume_queue, self.drain_worker],
        }
        return [tool for action in actions for tool in by_action.get(action, [])]

    async def retry_failures(self, fingerprint: str, *, dry_run: DryRun = True) -> Document:
        """Queue all failed tasks with one cause again; `failures_by_cause` has the fingerprint."""
        path = path_at("failures", fingerprint, "retry")
        return await self._do(post(path, TaskCount, Redrive(dry_run=dry_run)))

    async def retry_tasks(
        self,
        ids: list[str] | None = None,
        queue: str | None = None,
        name: str | None = None,
        label: str | None = None,
        *,
        dry_run: DryRun = True,
    ) -> Document:
        """Queue failed tasks again: those that match all given filters."""
        selection = _selection(TaskState.FAILED, ids, queue, name, label, is_dry=dry_run)
        return await self._do(calls.retry_tasks(selection))

    async def cancel_tasks(
        self,
        ids: list[str] | None = None,
        queue: str | None = None,
        name: str | None = None,
        label: str | None = None,
        *,
        dry_run: DryRun = True,
    ) -> Document:
        """Cancel tasks that have not ended: those that match all given filters.

        Running handlers are stopped.
        """
        selection = _selection(None, ids, queue, name, label, is_dry=dry_run)
        return await self._do(calls.cancel_tasks(selection))

    async def retry_run(self, run_id: str, *, dry_run: DryRun = True) -> Document:
        """Continue a failed run at the point where it failed."""
        return await self._run(run_id, run_calls.retry_run(run_id), "retry", is_dry=dry_run)

    async def cancel_run(self, run_id: str, *, dry_run: DryRun = True) -> Document:
        """Cancel a run: its handlers stop, and its completed nodes are compensated."""
        return await self._run(run_id, run_calls.cancel_run(run_id), "cancel", is_dry=dry_run)

    async def pause_run(self, run_id: str, *, dry_run: DryRun = True) -> Document:
        """Start nothing new in a run; running tasks finish."""
        return await self._run(run_id, run_calls.pause_run(run_id), "pause", is_dry=dry_run)

    async def resume_run(self, run_id: str, *, dry_run: DryRun = True) -> Document:
        """Resume a paused run."""
        return await self._run(run_id, run_calls.resume_run(run_id), "resume", is_dry=dry_run)

    async def run_schedule_now(self, name: str, *, dry_run: DryRun = True) -> Document:
        """Fire a schedule once, now, in addition to its times."""
        if dry_run:
            view = await self._client.arun(schedule_calls.get_schedule(name))
            return {"dry_run": True, "would": f"fire the schedule {view.name!r} once"}
        return await self._do(schedule_calls.run_schedule(name))

    async def pause_queue(self, queue: str, *, dry_run: DryRun = True) -> Document:
        """Stop starting tasks of a queue; running tasks finish."""
        return await self._queue(queue, calls.pause_queue(queue), "pause", is_dry=dry_run)

    async def resume_queue(self, queue: str, *, dry_run: DryRun = True) -> Document:
        """Resume a paused queue."""
        return await self._queue(queue, calls.resume_queue(queue), "resume", is_dry=dry_run)

    async def drain_worker(self, worker_id: str, *, dry_run: DryRun = True) -> Document:
        """Give a worker no further tasks; it finishes those it has."""
        if not dry_run:
            return await self._do(calls.drain_worker(worker_id))
        worker = await self._client.arun(calls.get_worker(worker_id))
        would = f"drain worker {worker_id!r}, which runs {worker.current_tasks} tasks"
        return {"dry_run": True, "would": would}

    async def _run(self, run_id: str, call: ApiCall[Any], verb: str, *, is_dry: bool) -> Document:
        if not is_dry:
            return _without_context(await self._do(call))
        run = await self._client.arun(run_calls.get_run(run_id))
        would = f"{verb} run {run_id!r} of {run.workflow!r}, which is {run.state}"
        return {"dry_run": True, "would": would}

    async def _queue(self, queue: str, call: ApiCall[Any], verb: str, *, is_dry: bool) -> Document:
        if not is_dry:
            return await self._do(call)
        page = await self._client.arun(calls.list_queues())
        found = next((one for one in page.items if one.name == queue), None)
        if found is None:
            raise Invalid(f"there is no queue {queue!r}; list_queues names them")
        state = "paused" if found.paused else "not paused"
        return {"dry_run": True, "would": f"{verb} queue {queue!r}, which is {state}"}

    async def _do(self, call: ApiCall[Any]) -> Document:
        return document_of(await self._client.arun(call))


def _selection(
    state: TaskState | None,
    ids: list[str] | None,
    queue: str | None,
    name: str | None,
    label: str | None,
    *,
    is_dry: bool,
) -> TaskSelection:
    if not any((ids, queue, name, label)):
        raise Invalid("say which tasks: give ids, queue, name or label")
    return TaskSelection(state=state, ids=ids, queue=queue, name=name, label=label, dry_run=is_dry)


def _without_context(run: Document) -> Document:
    return {name: value for name, value in run.items() if name not in {"context", "output"}}
