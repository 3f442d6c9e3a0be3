"""Watches a run: a live table of its nodes on a terminal, a line per change elsewhere.

Both are on stderr: only the run's output is on stdout.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rota.cli.render.output import is_terminal, note
from rota.cli.render.run_model import (
    RunModel,
    describe_counts,
    failed_count,
    has_failed,
    model_of,
    seconds,
)
from rota.core import limits
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.states import RUN_ENDED
from rota.errors import Unavailable
from rota.messages import RunGraph, RunTokenView, RunView
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client

WATCHED_POLL_MS = 250  # the largest age of what is shown
POLL_FACTOR = 4  # a poll that took long is repeated after this many times its duration
QUIET_POLL_MS = 30_000
PAUSE_S = 0.5  # before the next call to a coordinator that did not answer
TOKEN_PAGES = 10  # searched for failed tokens


def wait_until_ended(client: Client, run: RunView, *, timeout_ms: int) -> RunView:
    """Wait until the run has ended, or the time is over; returns the run as it is then."""
    ends_at = time.monotonic() + timeout_ms / 1000
    while run.state not in RUN_ENDED:
        left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
        if left_ms == 0:
            break
        run = _poll(client, run, min(left_ms, QUIET_POLL_MS))
    return run


def watch_until_ended(client: Client, run: RunView, *, timeout_ms: int) -> RunView:
    """As `wait_until_ended`, and show the progress of the run."""
    observer = RunObserver(client, run)
    ends_at = time.monotonic() + timeout_ms / 1000
    with _display() as show:
        while True:
            began_at = time.monotonic()
            model = observer.observe(run)
            if model is not None:
                show(model)
            took_ms = int((time.monotonic() - began_at) * 1000)
            left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
            if run.state in RUN_ENDED or left_ms == 0:
                return run
            run = _poll(client, run, min(left_ms, max(WATCHED_POLL_MS, POLL_FACTOR * took_ms)))


def _poll(client: Client, run: RunView, wait_ms: int) -> RunView:
    try:
        return client.run(run_calls.get_run(run.id, wait_ms=min(wait_ms, limits.MAX_WAIT_MS)))
    except Unavailable:
        # The coordinator may be restarting; the run is in its store.
        time.sleep(min(PAUSE_S, wait_ms / 1000))
        return run


class RunObserver:
    """Loads the model of one run; its tokens only when failures have been added."""

    def __init__(self, client: Client, run: RunView) -> None:
        self._client = client
        detail = client.run(run_calls.get_workflow(run.workflow, run.version))
        self._definition: Definition | None = detail.definition  # None: it is a function
        nodes = {} if detail.definition is None else detail.definition.nodes
        self._compensates = any(node.compensate for node in nodes.values())
        self._failed = 0
        self._tokens: list[RunTokenView] = []

    def observe(self, run: RunView) -> RunModel | None:
        """The run as it is now; None when the coordinator does not answer."""
        try:
            graph = self._client.run(run_calls.get_graph(run.id))
            count = failed_count(graph)
            if count != self._failed or (count and self._compensates):
                self._tokens, self._failed = self._special_tokens(run.id), count
            asking = self._asking_tokens(graph)
        except Unavailable:
            return None
        return model_of(run, graph, self._definition, self._tokens, asking)

    def _asking_tokens(self, graph: RunGraph) -> dict[str, str]:
        """The token that has waited longest at each approval, by node."""
        found: dict[str, str] = {}
        for node in graph.nodes:
            if node.kind == "approval" and node.tokens.get("waiting_for_event"):
                page = self._client.run(run_calls.list_asking_tokens(graph.run_id, node.id))
                found |= {one.node_id: one.id for one in page.items}
        return found

    def _special_tokens(self, run_id: str) -> list[RunTokenView]:
        """Failed and compensating tokens, among the first pages of tokens."""
        found: list[RunTokenView] = []
        cursor: str | None = None
        for _ in range(TOKEN_PAGES):
            call = run_calls.list_run_tokens(run_id, limit=limits.MAX_PAGE, cursor=cursor)
            page = self._client.run(call)
            found += [one for one in page.items if has_failed(one) or one.compensates_token_id]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found


@contextmanager
def _display() -> Iterator[Callable[[RunModel], None]]:
    if not is_terminal(sys.stderr):
        yield RunLines().show
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.render.run import draw_run  # noqa: PLC0415

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def show(model: RunModel) -> None:
            live.update(draw_run(model, width=console.width, height=console.height), refresh=True)

        yield show


class RunLines:
    """Prints what has changed, one line per node."""

    def __init__(self) -> None:
        self._before: RunModel | None = None

    def show(self, model: RunModel) -> None:
        run, at = model.run, f"{seconds(model.elapsed_ms):>8}  "
        before = self._before
        if before is None:
            note(f"{at}run {run.id} of {run.workflow} version {run.version}")
        for node in model.nodes:
            known = before and before.counts(node.id)
            if node.counts and node.counts != known:
                note(f"{at}{node.id}: {describe_counts(node.counts)}")
        for line in (*model.failures, *model.hints):
            if before is None or line not in (*before.failures, *before.hints):
                note(f"{at}{line}")
        if run.state != (before.run.state if before else "running"):
            note(f"{at}{run.state}")
        self._before = model
