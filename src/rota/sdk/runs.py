"""How does a program follow a run of a workflow? By its handle: wait, look, steer, signal."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec

from rota.errors import RotaError, Unavailable
from rota.messages import ArtifactView, JournalEntryView, RunGraph, RunTokenView, RunView
from rota.sdk import run_calls
from rota.sdk.client import Client
from rota.sdk.encoding import encode
from rota.sdk.requests import Call
from rota.sdk.waiting import Wait

T = TypeVar("T")

RUN_ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})


class RunFailed(RotaError):  # noqa: N818 - read where it is caught: `except RunFailed`
    """The run has failed, or run out of time; `error` is what it failed with, as it was said."""

    code = "run_failed"
    title = "The run has failed"

    def __init__(self, run_id: str, state: str, error: dict[str, Any]) -> None:
        super().__init__(_told(error, state), run_id=run_id, state=state, error=error)
        self.run_id = run_id
        self.state = state  # failed or timed_out
        self.error = error
        self.node: str | None = error.get("node")


class RunCancelled(RotaError):  # noqa: N818
    """The run was cancelled; it has no output."""

    code = "run_cancelled"
    title = "The run was cancelled"

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was cancelled: {reason or 'cancelled'}", run_id=run_id)
        self.run_id = run_id
        self.reason = reason


class RunHandle:
    """A run, as whoever started it holds it. Costs nothing to keep or to make anew."""

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

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the run's end and give its output.

        Raises `RunFailed` with the error that ended it, `RunCancelled`, or `TimeoutError` when
        `timeout` seconds have passed first; the run itself then goes on.
        """
        wait = Wait(f"run {self.id!r}", timeout)
        while True:
            try:
                view = self._ask(run_calls.get_run(self.id, wait_ms=wait.question_ms()))
            except Unavailable as error:
                time.sleep(wait.pause_s(error))
                continue
            if view.state in RUN_ENDED:
                return output_of(view)
            wait.go_on(view.state)

    async def aresult(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        wait = Wait(f"run {self.id!r}", timeout)
        while True:
            try:
                view = await self._aask(run_calls.get_run(self.id, wait_ms=wait.question_ms()))
            except Unavailable as error:
                await asyncio.sleep(wait.pause_s(error))
                continue
            if view.state in RUN_ENDED:
                return output_of(view)
            wait.go_on(view.state)

    # --- looking ------------------------------------------------------------------------------

    def view(self) -> RunView:
        """Everything the coordinator tells about the run, its context included."""
        return self._ask(run_calls.get_run(self.id))

    async def aview(self) -> RunView:
        return await self._aask(run_calls.get_run(self.id))

    def status(self) -> str:
        return self.view().state

    async def astatus(self) -> str:
        return (await self.aview()).state

    def tokens(self) -> list[RunTokenView]:
        """Where the run is and was, in the order the tokens were made."""
        return run_calls.every_item(
            self._ask, lambda cursor: run_calls.list_run_tokens(self.id, cursor=cursor)
        )

    def journal(self) -> list[JournalEntryView]:
        """What happened to the run and what was decided each time, from the beginning."""
        return run_calls.every_item(
            self._ask, lambda cursor: run_calls.list_journal(self.id, after=cursor)
        )

    def graph(self) -> RunGraph:
        """Nodes and transitions, with how many tokens are where."""
        return self._ask(run_calls.get_graph(self.id))

    def artifacts(self) -> list[ArtifactView]:
        return run_calls.every_item(
            self._ask, lambda cursor: run_calls.list_artifacts(self.id, cursor=cursor)
        )

    def artifact(self, name: str) -> bytes:
        """The content of an artifact."""
        return self._ask(run_calls.get_artifact(self.id, name))

    # --- steering -----------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> None:
        """End the run now; handlers at work for it are told. `Conflict` when it has ended."""
        self._ask(run_calls.cancel_run(self.id, reason=reason))

    async def acancel(self, reason: str = "") -> None:
        await self._aask(run_calls.cancel_run(self.id, reason=reason))

    def pause(self) -> None:
        """Begin nothing new; what is under way finishes."""
        self._ask(run_calls.pause_run(self.id))

    async def apause(self) -> None:
        await self._aask(run_calls.pause_run(self.id))

    def resume(self) -> None:
        self._ask(run_calls.resume_run(self.id))

    async def aresume(self) -> None:
        await self._aask(run_calls.resume_run(self.id))

    def retry(self) -> None:
        """Let a failed run go on from where it failed."""
        self._ask(run_calls.retry_run(self.id))

    async def aretry(self) -> None:
        await self._aask(run_calls.retry_run(self.id))

    def signal(self, name: str, payload: Any = None) -> None:
        """Tell the run something; kept until a node waits for it. Approvals are signals too."""
        self._ask(run_calls.signal_run(self.id, name, _raw(payload)))

    async def asignal(self, name: str, payload: Any = None) -> None:
        await self._aask(run_calls.signal_run(self.id, name, _raw(payload)))

    def fork(self, from_node: str, state: Any = None) -> "RunHandle":
        """A new run on the same input, from a node on; with this `state`, or as it is now."""
        view = self._ask(
            run_calls.fork_run(self.id, from_node, None if state is None else _raw(state))
        )
        return RunHandle.of(view, self._client)

    async def afork(self, from_node: str, state: Any = None) -> "RunHandle":
        view = await self._aask(
            run_calls.fork_run(self.id, from_node, None if state is None else _raw(state))
        )
        return RunHandle.of(view, self._client)

    def _ask(self, call: Call[T]) -> T:
        return self._client().run(call)

    async def _aask(self, call: Call[T]) -> T:
        return await self._client().arun(call)


def output_of(view: RunView) -> Any:
    """What an ended run gave; raises what it failed with."""
    error = view.error or {}
    match view.state:
        case "completed":
            return view.output
        case "cancelled":
            raise RunCancelled(view.id, error.get("message", ""))
        case _:
            raise RunFailed(view.id, view.state, error)


def _told(error: dict[str, Any], state: str) -> str:
    where = f" (node {error['node']!r})" if error.get("node") else ""
    return f"{error.get('type', state)}: {error.get('message', state)}{where}"


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
