"""The tools that only read. Each is one or two calls of the coordinator, with a bounded answer.

Payloads, results and states of runs are the users' data and may be secret: a tool leaves them out
unless it is asked for them.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from pydantic import Field

from rota.core.workflow.replay import replay
from rota.messages import EventPage
from rota.messages.dashboard import FailurePage
from rota.sdk.client import calls, run_calls, schedule_calls, service_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, Exchange, get
from rota.sdk.replay import entries_of

MAX_ITEMS = 100
MAX_JOURNAL_ENTRIES = 500
REPLAY_PAGES = 100  # of the journal; a longer one is replayed by `rota replay`
USERS_DATA = ("payload", "result", "partial", "context", "output", "input", "state_data")

Limit = Annotated[int, Field(ge=1, le=MAX_ITEMS, description="How many at the most.")]
Document = dict[str, Any]


class ReadTools:
    """What an assistant may ask. The docstring of a method is its description there."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[Callable[..., Any]]:
        """The tools, in the order in which they are listed."""
        return [
            self.overview,
            self.what_is_stuck,
            self.failures_by_cause,
            self.list_tasks,
            self.show_task,
            self.list_queues,
            self.list_workers,
            self.list_runs,
            self.show_run,
            self.run_journal,
            self.replay_run,
            self.list_schedules,
            self.list_services,
            self.recent_events,
        ]

    async def overview(self) -> Document:
        """Show the whole system in numbers.

        Tasks and runs by state, workers by health, paused queues, shards, and the health of the
        coordinator.
        """
        counts = await self._ask(calls.get_overview())
        health = await self._ask(calls.health())
        return {**counts, "health": {"status": health["status"], "checks": health["checks"]}}

    async def what_is_stuck(self) -> Document:
        """Show what waits and why.

        Waiting tasks by queue, name and requirements, each group with its reason. Groups that
        cannot start by themselves come first (`is_stuck`).
        """
        return _bounded(await self._ask(calls.get_backlog()))

    async def failures_by_cause(self, limit: Limit = 20) -> Document:
        """Failed tasks grouped by their error.

        Name, error, count, queues, first and last time, and the ids of some of them. The
        fingerprint names the group.
        """
        return _bounded(await self._ask(get("/api/failures", FailurePage)), limit)

    async def list_tasks(
        self,
        state: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        label: str | None = None,
        limit: Limit = 20,
    ) -> Document:
        """Tasks, newest first.

        `state` is scheduled, queued, running, succeeded, failed or cancelled.
        """
        call = calls.list_tasks(state=state, queue=queue, name=name, label=label, limit=limit)
        return _without_data(await self._ask(call))

    async def show_task(self, task_id: str, *, with_data: bool = False) -> Document:
        """One task with its attempts, its errors and tracebacks, its history, and why it waits.

        Payload and result are left out, unless `with_data` is true.
        """
        task = await self._ask(calls.get_task(task_id))
        timeline = await self._ask(calls.get_timeline(task_id))
        return {"task": task if with_data else _without_data(task), "timeline": timeline}

    async def list_queues(self) -> Document:
        """The queues: how many tasks wait and run, how old the oldest is, rates, limits, paused."""
        return _bounded(await self._ask(calls.list_queues()))

    async def list_workers(self, health: str | None = None, limit: Limit = 50) -> Document:
        """The workers: what they can run, what they run now, their health and statistics.

        `health` is healthy, degraded or unhealthy.
        """
        wanted = () if health is None else (health,)
        return _bounded(await self._ask(calls.list_workers(health=wanted)), limit)

    async def list_runs(
        self, workflow: str | None = None, state: str | None = None, limit: Limit = 20
    ) -> Document:
        """Runs of workflows, newest first.

        `state` is running, paused, completed, failed, cancelled or timed_out.
        """
        call = run_calls.list_runs(workflow=workflow, state=state, limit=limit)
        return _without_data(await self._ask(call))

    async def show_run(self, run_id: str, *, with_data: bool = False) -> Document:
        """One run: its state, its error, and its graph with the number of tokens at each node.

        Input, state and output are left out, unless `with_data` is true.
        """
        run = await self._ask(run_calls.get_run(run_id))
        graph = await self._ask(run_calls.get_graph(run_id))
        return {"run": run if with_data else _without_data(run), "graph": graph}

    async def run_journal(
        self,
        run_id: str,
        after: Annotated[int, Field(ge=0, description="The number of the last one seen.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_JOURNAL_ENTRIES)] = 50,
    ) -> Document:
        """What happened to a run and what was decided, oldest first.

        The entries have users' data. Pass `after` for the next page.
        """
        cursor = str(after) if after else None
        return await self._ask(run_calls.list_journal(run_id, after=cursor, limit=limit))

    async def replay_run(self, run_id: str) -> Document:
        """Apply the rules to the journal of a run again, and compare the decisions.

        It changes nothing. No difference is the normal case. `is_whole` is false when the journal
        is so long that only its beginning was compared.
        """
        run = await self._client.arun(run_calls.get_run(run_id))
        view = await self._client.arun(run_calls.get_workflow(run.workflow, run.version))
        definition = view.definition or view.code
        assert definition is not None, "a stored version has one of them"
        items, is_whole = await self._client.arun(read_journal(run_id))
        entries = entries_of(items)
        differences = replay(definition, entries)
        return {
            "entries": len(entries),
            "is_whole": is_whole,
            "differences": [
                {"entry": one.number, "event": type(one.event).__name__, "what": one.words}
                for one in differences[:MAX_ITEMS]
            ],
        }

    async def list_schedules(self, limit: Limit = 50) -> Document:
        """The schedules: their times, what they start, the next and the last firing, paused."""
        return _without_data(await self._ask(schedule_calls.list_schedules(limit=limit)))

    async def list_services(self) -> Document:
        """The sharded services: members, shards, unowned and moving ones."""
        return _bounded(await self._ask(service_calls.list_services()))

    async def recent_events(
        self, event_type: str | None = None, subject: str | None = None, limit: Limit = 50
    ) -> Document:
        """The newest events.

        `event_type` may end with a star, such as `worker-*`; `subject` is the id of a task, a
        worker or a run.
        """
        types = () if event_type is None else (event_type,)
        call: ApiCall[EventPage] = calls.list_events(last=limit, types=types, subject=subject)
        return await self._ask(call)

    async def _ask(self, call: ApiCall[Any]) -> Document:
        return document_of(await self._client.arun(call))


def document_of(answer: Any) -> Document:
    """An answer of the coordinator as plain values."""
    document: Document = msgspec.json.decode(msgspec.json.encode(answer))
    return document


def read_journal(run_id: str) -> Exchange[tuple[list[Any], bool]]:
    """The entries of a journal, up to a bound; True: these are all."""
    items: list[Any] = []
    cursor: str | None = None
    for _page in range(REPLAY_PAGES):
        page = yield run_calls.list_journal(run_id, after=cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items, True
    return items, False


def _bounded(page: Document, limit: int = MAX_ITEMS) -> Document:
    """A page with a limited number of items, which says how many it leaves out."""
    items = page.get("items", [])
    if len(items) <= limit:
        return page
    return {**page, "items": items[:limit], "left_out": len(items) - limit}


def _without_data(document: Document) -> Document:
    """The document without what users have put into tasks and runs."""
    kept = {name: value for name, value in document.items() if name not in USERS_DATA}
    return {name: _cleaned(value) for name, value in kept.items()}


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return _without_data(value) if isinstance(value, dict) else value
