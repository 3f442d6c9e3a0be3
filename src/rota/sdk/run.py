"""Run handles: wait for the output of a run, read its state, control and signal it."""

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import msgspec

from rota.core.workflow.states import RUN_ENDED
from rota.errors import RotaError
from rota.messages import (
    ArtifactView,
    BranchesView,
    JournalEntryView,
    RunGraph,
    RunTokenView,
    RunView,
    ScopeView,
)
from rota.messages.dashboard import RunActivityPage
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, Exchange, every_item, wait_for_end
from rota.sdk.encoding import encode
from rota.sdk.handles import RemoteTraceback, traceback_in
from rota.sdk.options.durations import Seconds

T = TypeVar("T")


class RunFailed(RotaError):  # noqa: N818 - read where it is caught: `except RunFailed`
    """The run has failed or timed out; `error` is the error that ended it.

    Its cause is the traceback of the handler that failed, if that was the reason.
    """

    code = "run_failed"
    title = "The run has failed"

    def __init__(self, run_id: str, state: str, error: dict[str, Any]) -> None:
        where = f" (node {error['node']!r})" if error.get("node") else ""
        text = f"{error.get('type', state)}: {error.get('message', state)}{where}"
        super().__init__(text, run_id=run_id, state=state, error=error)
        self.run_id = run_id
        self.state = state  # failed or timed_out
        self.error = error
        self.node: str | None = error.get("node")
        trace = traceback_in(error.get("details"))
        if trace is not None:
            self.__cause__ = RemoteTraceback(trace)


class RunCancelled(RotaError):  # noqa: N818
    """The run was cancelled; it has no output."""

    code = "run_cancelled"
    title = "The run was cancelled"

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was cancelled: {reason or 'cancelled'}", run_id=run_id)
        self.run_id = run_id
        self.reason = reason


class RunHandle:
    """A started run. A handle holds no resources; `app.run_handle(id)` makes another one."""

    __slots__ = ("_client", "id", "is_duplicate")

    def __init__(
        self, run_id: str, client: Callable[[], Client], *, is_duplicate: bool = False
    ) -> None:
        self.id = run_id
        self.is_duplicate = is_duplicate  # its key was known: this is the earlier run
        self._client = client

    @classmethod
    def of(cls, view: RunView, client: Callable[[], Client]) -> Self:
        return cls(view.id, client, is_duplicate=view.duplicate)

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    # --- its end ------------------------------------------------------------------------------

    def result(self, timeout: Seconds | None = None) -> Any:
        """Wait for the run to end and return its output.

        Raises `RunFailed` with the error that ended it, `RunCancelled`, or `TimeoutError` when
        `timeout` seconds have passed first; the run itself then goes on.
        """
        return self._run(self._wait(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> Any:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return await self._arun(self._wait(timeout))

    def _wait(self, timeout: Seconds | None) -> Exchange[Any]:
        return output_of((yield from ended_run(self.id, f"run {self.id!r}", timeout)))

    # --- reading ------------------------------------------------------------------------------

    def view(self) -> RunView:
        """Everything the coordinator knows about the run, its context included."""
        return self._run(run_calls.get_run(self.id))

    async def aview(self) -> RunView:
        return await self._arun(run_calls.get_run(self.id))

    def status(self) -> str:
        return self.view().state

    async def astatus(self) -> str:
        return (await self.aview()).state

    def tokens(self) -> list[RunTokenView]:
        """The tokens of the run, in the order of their creation."""
        return self._every_item(lambda cursor: run_calls.list_run_tokens(self.id, cursor=cursor))

    def journal(self) -> list[JournalEntryView]:
        """Everything that happened to the run, with the decisions taken, oldest first."""
        return self._every_item(lambda cursor: run_calls.list_journal(self.id, after=cursor))

    def graph(self) -> RunGraph:
        """The nodes and transitions, with the number of tokens at each."""
        return self._run(run_calls.get_graph(self.id))

    def scopes(self, *, closed: bool = False) -> list[ScopeView]:
        """The open scopes of the run; with `closed`, all that it has opened."""
        return self._every_item(
            lambda cursor: run_calls.list_scopes(self.id, closed=closed, cursor=cursor)
        )

    def artifacts(self) -> list[ArtifactView]:
        return self._every_item(lambda cursor: run_calls.list_artifacts(self.id, cursor=cursor))

    def artifact(self, name: str) -> bytes:
        """The content of an artifact."""
        return self._run(run_calls.get_artifact(self.id, name))

    # --- control ------------------------------------------------------------------------------

    def cancel(self, reason: str = "", *, force: bool = False) -> None:
        """Cancel the run and stop its handlers; `Conflict` when it has ended.

        Compensating tasks run first; with `force` they do not, and the error lists what was not
        undone.
        """
        self._run(run_calls.cancel_run(self.id, reason=reason, force=force))

    async def acancel(self, reason: str = "", *, force: bool = False) -> None:
        await self._arun(run_calls.cancel_run(self.id, reason=reason, force=force))

    def pause(self) -> None:
        """Start nothing new in the run; what runs already finishes."""
        self._run(run_calls.pause_run(self.id))

    async def apause(self) -> None:
        await self._arun(run_calls.pause_run(self.id))

    def resume(self) -> None:
        self._run(run_calls.resume_run(self.id))

    async def aresume(self) -> None:
        await self._arun(run_calls.resume_run(self.id))

    def retry(self) -> None:
        """Continue a failed run at the point where it failed."""
        self._run(run_calls.retry_run(self.id))

    async def aretry(self) -> None:
        await self._arun(run_calls.retry_run(self.id))

    def signal(
        self, name: str, payload: Any = None, *, key: str | None = None, token_id: str | None = None
    ) -> None:
        """Send the run a signal, which it keeps until a node waits for it.

        An approval is not kept: without a token that waits for it, `NothingToApprove` is raised.
        `token_id` names the token that it is for. With a `key`, a repeated signal counts once.
        """
        self._run(run_calls.signal_run(self.id, name, _raw(payload), key=key, token_id=token_id))

    async def asignal(
        self, name: str, payload: Any = None, *, key: str | None = None, token_id: str | None = None
    ) -> None:
        call = run_calls.signal_run(self.id, name, _raw(payload), key=key, token_id=token_id)
        await self._arun(call)

    def complete_scope(self, scope: int, reason: str = "") -> None:
        """Let the join of an open scope fire with the branches that have arrived."""
        self._run(run_calls.complete_scope(self.id, scope, reason=reason))

    async def acomplete_scope(self, scope: int, reason: str = "") -> None:
        await self._arun(run_calls.complete_scope(self.id, scope, reason=reason))

    def cancel_scope(self, scope: int, reason: str = "") -> None:
        """End the branches of an open scope; its join never fires."""
        self._run(run_calls.cancel_scope(self.id, scope, reason=reason))

    async def acancel_scope(self, scope: int, reason: str = "") -> None:
        await self._arun(run_calls.cancel_scope(self.id, scope, reason=reason))

    def add_branches(
        self, scope: int, items: Iterable[Any], *, key: str | None = None, last: bool = False
    ) -> BranchesView:
        """Add a branch for each item to an open scope; `last` closes it to further ones.

        With a `key`, a repeated addition counts once.
        """
        return self._run(self._addition(scope, items, key, last))

    async def aadd_branches(
        self, scope: int, items: Iterable[Any], *, key: str | None = None, last: bool = False
    ) -> BranchesView:
        return await self._arun(self._addition(scope, items, key, last))

    def _addition(
        self,
        scope: int,
        items: Iterable[Any],
        key: str | None,
        last: bool,  # noqa: FBT001 - as its callers have it
    ) -> ApiCall[BranchesView]:
        plain: list[Any] = msgspec.json.decode(encode(list(items)))
        return run_calls.add_branches(self.id, scope, plain, key=key, last=last)

    def fork(self, from_node: str, state: Any = None) -> "RunHandle":
        """Start a new run on the same input at a node, with this `state` or the current one."""
        return RunHandle.of(self._run(self._fork(from_node, state)), self._client)

    async def afork(self, from_node: str, state: Any = None) -> "RunHandle":
        return RunHandle.of(await self._arun(self._fork(from_node, state)), self._client)

    def _fork(self, from_node: str, state: Any) -> ApiCall[RunView]:
        return run_calls.fork_run(self.id, from_node, None if state is None else _raw(state))

    def _every_item(self, page: Callable[[str | None], ApiCall[Any]]) -> list[Any]:
        return self._run(every_item(page))

    def _run(self, call: ApiCall[T] | Exchange[T]) -> T:
        return self._client().run(call)

    async def _arun(self, call: ApiCall[T] | Exchange[T]) -> T:
        return await self._client().arun(call)


def ended_run(run_id: str, subject: str, timeout: Seconds | None) -> Exchange[RunView]:
    """Wait for the end of a run; a `TimeoutError` says what the run waits for."""
    try:
        view: RunView = yield from wait_for_end(
            subject,
            lambda wait_ms: run_calls.get_run(run_id, wait_ms=wait_ms),
            RUN_ENDED,
            timeout,
        )
    except TimeoutError as error:
        what = yield from _what_it_waits_for(run_id)
        raise TimeoutError(f"{error}: {what}" if what else str(error)) from None
    return view


def _what_it_waits_for(run_id: str) -> Exchange[str | None]:
    try:
        page: RunActivityPage = yield run_calls.get_activity([run_id])
    except RotaError:
        return None  # the wait is over, and this is only its explanation
    return page.items[0].text if page.items else None


def output_of(view: RunView) -> Any:
    """The output of an ended run; raises the error of one that failed."""
    error = view.error or {}
    match view.state:
        case "completed":
            return view.output
        case "cancelled":
            raise RunCancelled(view.id, error.get("message", ""))
        case _:
            raise RunFailed(view.id, view.state, error)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
