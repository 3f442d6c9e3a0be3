"""Handles of groups and chains: their results, typed, and the run behind them."""

from collections.abc import Sequence
from typing import Any, Generic, NotRequired, TypedDict, TypeVar

import msgspec

from rota.errors import WorkflowNotFound
from rota.messages import RunRequest, RunView
from rota.sdk.client import run_calls
from rota.sdk.client.requests import Exchange
from rota.sdk.encoding import encode
from rota.sdk.groups.generated import GeneratedRun
from rota.sdk.middleware.chain import starting
from rota.sdk.options.durations import Duration, Seconds, optional_milliseconds
from rota.sdk.run import RunFailed, RunHandle, ended_run, output_of
from rota.sdk.task import App
from rota.sdk.workflow import Workflow

R = TypeVar("R")
Decoders = Sequence[msgspec.json.Decoder[Any]]


class MemberOutcome(TypedDict):
    """The outcome of one member of a group, as callbacks get it."""

    index: int  # in the group, from 0
    ok: bool
    result: NotRequired[Any]  # of a member that succeeded
    error: NotRequired[dict[str, Any]]  # of one that failed: `type`, `message` and more


class GroupFailed(RunFailed):
    """Members of the group have failed; `outcomes` has those of all members, in their order."""

    code = "group_failed"
    title = "Members of the group have failed"

    def __init__(self, run_id: str, outcomes: list[MemberOutcome]) -> None:
        failed = [one for one in outcomes if not one["ok"]]
        first = failed[0].get("error", {})
        text = f"{len(failed)} of {len(outcomes)} members have failed; the first: "
        error = {**first, "message": text + str(first.get("message", ""))}
        super().__init__(run_id, "failed", error)
        self.outcomes = outcomes


class GroupHandle(Generic[R]):
    """A started group. `run` is the handle of its run, by which the group is cancelled."""

    def __init__(self, app: App, run: RunHandle, decoders: Decoders) -> None:
        self.run = run
        self.id = run.id
        self._app = app
        self._decoders = decoders

    def __repr__(self) -> str:
        return f"<GroupHandle {self.id}>"

    def result(self, timeout: Seconds | None = None) -> list[R]:
        """Wait for the end of the group and its callbacks; the results of all members, in order.

        Raises `GroupFailed` if a member has failed, and `RunFailed` if a callback has.
        """
        return self._results(self.outcomes(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> list[R]:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return self._results(await self.aoutcomes(timeout))

    def outcomes(self, timeout: Seconds | None = None) -> list[MemberOutcome]:
        """Wait as `result` does; the outcomes of all members, failed ones included."""
        return self._app.client.run(self._wait(timeout))

    async def aoutcomes(self, timeout: Seconds | None = None) -> list[MemberOutcome]:  # noqa: ASYNC109 - as above
        """As `outcomes`, for async code."""
        return await self._app.client.arun(self._wait(timeout))

    def callback_result(self, timeout: Seconds | None = None) -> Any:
        """Wait for the result of `on_success` or `on_failure`, whichever has run."""
        return self.run.result(timeout)["callback"]

    async def acallback_result(self, timeout: Seconds | None = None) -> Any:  # noqa: ASYNC109 - as above
        """As `callback_result`, for async code."""
        return (await self.run.aresult(timeout))["callback"]

    def _wait(self, timeout: Seconds | None) -> Exchange[list[MemberOutcome]]:
        view = yield from ended_run(self.id, f"group {self.id!r}", timeout)
        state = view.context.state if view.context is not None else None
        found = state.get("outcomes") if isinstance(state, dict) else None
        if found is None or all(one["ok"] for one in found):
            output_of(view)  # raises what has ended the run, if its members have not
        outcomes: list[MemberOutcome] = found or []
        return outcomes

    def _results(self, outcomes: list[MemberOutcome]) -> list[R]:
        if not all(one["ok"] for one in outcomes):
            raise GroupFailed(self.id, outcomes)
        pairs = zip(self._decoders, outcomes, strict=True)
        return [decoder.decode(encode(one.get("result"))) for decoder, one in pairs]


class ChainHandle(Generic[R]):
    """A started chain. `run` is the handle of its run, which can be cancelled or retried."""

    def __init__(self, run: RunHandle, decoder: msgspec.json.Decoder[Any]) -> None:
        self.run = run
        self.id = run.id
        self._decoder = decoder

    def __repr__(self) -> str:
        return f"<ChainHandle {self.id}>"

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the result of the last task; raises `RunFailed` if one of them has failed."""
        return self._decoded(self.run.result(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return self._decoded(await self.run.aresult(timeout))

    def _decoded(self, output: dict[str, Any]) -> R:
        result: R = self._decoder.decode(encode(output["result"]))
        return result


def start(
    app: App, generated: GeneratedRun, *, key: str | None, timeout_ms: int | Duration | None
) -> Exchange[RunHandle]:
    """Start a run. The definition is stored by the first run that needs it.

    So a token that may submit, and not administer, can start groups that have been stored before.
    """
    workflow = Workflow(app, generated.document)
    request = RunRequest(
        workflow=workflow.name,
        input=msgspec.Raw(encode(generated.input)),
        key=key,
        timeout_ms=optional_milliseconds(timeout_ms, "timeout_ms"),
    )

    def send(request: RunRequest) -> Exchange[RunView]:
        try:
            view: RunView = yield run_calls.start_run(request)
        except WorkflowNotFound:
            yield run_calls.put_workflow(workflow.definition)
            view = yield run_calls.start_run(request)
        return view

    view = yield from starting(app.middleware, request, send)
    return RunHandle.of(view, lambda: app.client)
