"""How does one watch a run? A table of its nodes that lives until the run ends.

On a terminal it is drawn anew as the run goes on; elsewhere each change is a line. Either way it is
on stderr: what the run gives in the end is the only thing on stdout.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rota.cli.output import is_terminal, note
from rota.cli.pictures import Picture, failed, has_failed, picture_of, seconds, told
from rota.core import limits
from rota.core.workflow.definition import Definition
from rota.errors import Unavailable
from rota.messages import RunTokenView, RunView
from rota.sdk import run_calls
from rota.sdk.client import Client
from rota.sdk.runs import RUN_ENDED

WATCHED_POLL_MS = 250  # how old the picture may be
LOOKING_SHARE = 4  # a picture that took long to get is not asked for again at once
QUIET_POLL_MS = 30_000
PAUSE_S = 0.5  # before asking a coordinator again that did not answer
PAGES_LOOKED_THROUGH = 10  # of tokens, for those that failed


def wait_until_ended(client: Client, run: RunView, *, timeout_ms: int) -> RunView:
    """The run as it is once it has ended, or when the time is over."""
    ends_at = time.monotonic() + timeout_ms / 1000
    while run.state not in RUN_ENDED:
        left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
        if left_ms == 0:
            break
        run = _asked(client, run, min(left_ms, QUIET_POLL_MS))
    return run


def watch_until_ended(client: Client, run: RunView, *, timeout_ms: int) -> RunView:
    """As `wait_until_ended`, showing on the way how the run goes on."""
    looker = Looker(client, run)
    ends_at = time.monotonic() + timeout_ms / 1000
    with _display() as show:
        while True:
            began_at = time.monotonic()
            picture = looker.look(run)
            if picture is not None:
                show(picture)
            took_ms = int((time.monotonic() - began_at) * 1000)
            left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
            if run.state in RUN_ENDED or left_ms == 0:
                return run
            run = _asked(client, run, min(left_ms, max(WATCHED_POLL_MS, LOOKING_SHARE * took_ms)))


def _asked(client: Client, run: RunView, wait_ms: int) -> RunView:
    try:
        return client.run(run_calls.get_run(run.id, wait_ms=min(wait_ms, limits.MAX_WAIT_MS)))
    except Unavailable:
        # A coordinator that restarts has not forgotten the run.
        time.sleep(min(PAUSE_S, wait_ms / 1000))
        return run


class Looker:
    """Gets pictures of one run, and of its failures only what is new."""

    def __init__(self, client: Client, run: RunView) -> None:
        self._client = client
        detail = client.run(run_calls.get_workflow(run.workflow, run.version))
        self._definition: Definition = detail.definition
        self._undoes = any(node.compensate for node in self._definition.nodes.values())
        self._failed = 0
        self._tokens: list[RunTokenView] = []

    def look(self, run: RunView) -> Picture | None:
        """The run as it stands; None when the coordinator does not answer."""
        try:
            graph = self._client.run(run_calls.get_graph(run.id))
            count = failed(graph)
            if count != self._failed or (count and self._undoes):
                self._tokens, self._failed = self._found(run.id), count
        except Unavailable:
            return None
        return picture_of(run, graph, self._definition, self._tokens)

    def _found(self, run_id: str) -> list[RunTokenView]:
        """What failed and what undoes it, as far as the tokens are few enough to look through."""
        found: list[RunTokenView] = []
        cursor: str | None = None
        for _ in range(PAGES_LOOKED_THROUGH):
            call = run_calls.list_run_tokens(run_id, limit=limits.MAX_PAGE, cursor=cursor)
            page = self._client.run(call)
            found += [one for one in page.items if has_failed(one) or one.compensates_token_id]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found


@contextmanager
def _display() -> Iterator[Callable[[Picture], None]]:
    if not is_terminal(sys.stderr):
        yield Lines().show
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.drawing import drawn  # noqa: PLC0415

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def show(picture: Picture) -> None:
            live.update(drawn(picture, width=console.width, height=console.height), refresh=True)

        yield show


class Lines:
    """Says what changed, a line a node."""

    def __init__(self) -> None:
        self._before: Picture | None = None

    def show(self, picture: Picture) -> None:
        run, at = picture.run, f"{seconds(picture.elapsed_ms):>8}  "
        before = self._before
        if before is None:
            note(f"{at}run {run.id} of {run.workflow} version {run.version}")
        for node in picture.nodes:
            known = before and before.counts(node.id)
            if node.counts and node.counts != known:
                note(f"{at}{node.id}: {told(node.counts)}")
        for line in (*picture.failures, *picture.hints):
            if before is None or line not in (*before.failures, *before.hints):
                note(f"{at}{line}")
        if run.state != (before.run.state if before else "running"):
            note(f"{at}{run.state}")
        self._before = picture
