"""What runs wait for, over HTTP: the list of what needs an answer, and one line for each run."""

from typing import Annotated, Literal

from msgspec import Meta

from rota.core import access, ids
from rota.core.access import Action
from rota.core.workflow.standings import Standing
from rota.core.workflow.waits import ANSWERED_KINDS, RunName, StoredWait, WaitKind, WaitPlace
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.gateways.http.routing.parameters import PageQuery, invalid_cursor, number_of, page_of
from rota.gateways.http.views.tasks import token_id
from rota.messages import Name, Request, RunActivity, RunActivityPage, WaitPage, WaitView
from rota.messages.dashboard import TasksAlike

MOST_ACTIVE = 100  # runs whose activity is shown at once
NOTHING_KNOWN = Standing(text="")

routes = Routes("Runs")


class WaitsQuery(PageQuery, frozen=True, kw_only=True):
    kind: Literal["approval", "signal"] | None = None


class ActivityQuery(Request, frozen=True, kw_only=True):
    run: Annotated[
        tuple[Name, ...], Meta(max_length=MOST_ACTIVE, description="These runs; repeated.")
    ] = ()


@routes.get("/api/waits", Action.READ)
async def list_waits(call: HttpCall[None, WaitsQuery]) -> WaitPage:
    """List the approvals and signals that open runs wait for.

    Approvals come first, then signals; of each kind, the one that has waited longest. Answer one
    with `POST /api/runs/{run_id}/signal`, with its `name` and its `token_id`.
    """
    access.check_unbound(call.caller)
    query, waits = call.query, call.coordinator.queries.waits
    found = await waits.page(
        ANSWERED_KINDS if query.kind is None else (query.kind,),
        after=_place(query.cursor),
        limit=query.limit + 1,
    )
    page, next_cursor = page_of(found.waits, query.limit, _cursor)
    return WaitPage(
        items=[_view(wait, found.names) for wait in page],
        counts=await waits.counts(),
        next_cursor=next_cursor,
    )


def _view(wait: StoredWait, names: dict[int, RunName]) -> WaitView:
    run = names[wait.run]
    parent = None if run.parent_run is None else names.get(run.parent_run)
    usual = f"Approve {wait.place}?" if wait.kind == "approval" else _signal_title(wait)
    return WaitView(
        kind=wait.kind,
        run_id=ids.to_text(wait.run),
        workflow=run.workflow,
        parent_run_id=None if parent is None else ids.to_text(parent.id),
        parent_workflow=None if parent is None else parent.workflow,
        token_id=token_id(wait.run, wait.number),
        name=wait.name,
        place=wait.place,
        title=wait.title or usual,
        since_ms=wait.since_ms,
        due_at_ms=wait.due_at_ms,
        has_form=wait.has_form,
    )


def _signal_title(wait: StoredWait) -> str:
    return f"Signal {wait.name!r} at {wait.place}"


def _cursor(wait: StoredWait) -> str:
    return f"{wait.kind}.{wait.since_ms}.{ids.to_text(wait.run)}.{wait.number}"


def _place(cursor: str | None) -> tuple[WaitKind, WaitPlace] | None:
    """The place that a cursor names."""
    if cursor is None:
        return None
    kind, *place = cursor.split(".")
    for one in ANSWERED_KINDS:
        if one == kind and len(place) == len(WaitPlace._fields):
            since, run_text, number = place
            run = ids.from_text(run_text)
            if run is not None:
                return one, WaitPlace(number_of(since), run, number_of(number))
    raise invalid_cursor()


@routes.get("/api/runs/activity", Action.READ, alias="/api/standings")
async def activity(call: HttpCall[None, ActivityQuery]) -> RunActivityPage:
    """Show what runs wait for, and their live tasks by name and state.

    A run without live tasks waits for an approval, a signal, a timer or a child run, or has ended.
    """
    access.check_unbound(call.caller)
    queries = call.coordinator.queries
    wanted = {number: text for text in call.query.run if (number := ids.from_text(text))}
    tasks: dict[int, list[TasksAlike]] = {number: [] for number in wanted}
    for work, lane in await queries.dashboard.work_of_runs(list(wanted)):
        tasks[work.run].append(
            TasksAlike(name=lane.name, queue=lane.queue, state=work.state, count=work.count)
        )
    standings = await queries.waits.standings(list(wanted))
    return RunActivityPage(
        items=[
            RunActivity(
                run_id=text,
                tasks=tasks[number],
                text=standings.get(number, NOTHING_KNOWN).text or None,
                until_ms=standings.get(number, NOTHING_KNOWN).until_ms,
            )
            for number, text in wanted.items()
        ]
    )
