"""Workflows in code: a function, its definition, and the task by which workers run it.

@app.workflow(version=2)
async def order(ctx: Run, cart: Cart) -> Receipt:
total = await ctx.step(price, cart)
...

handle = order.start(cart, key="order-17")
"""

import inspect
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

import msgspec
import structlog
from msgspec import Raw

from rota.core.workflow.functions.model import (
    CodeDefinition,
    FunctionReport,
    capability_of,
    task_of,
)
from rota.errors import Conflict, Forbidden, Invalid, WorkflowNotFound
from rota.messages import RunRequest, RunView, WorkflowView
from rota.sdk.client import function_calls, run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange
from rota.sdk.context import EXECUTION
from rota.sdk.encoding import encode
from rota.sdk.functions.context import CURRENT_RUN, BlockingContext, FunctionContext
from rota.sdk.functions.definitions import FunctionArguments, FunctionSource
from rota.sdk.functions.execution.host import FUNCTION_HOST
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.threads import run_in_thread
from rota.sdk.functions.handles import FunctionHandle
from rota.sdk.functions.operations import CodeTarget, Operations
from rota.sdk.middleware.chain import starting
from rota.sdk.options.durations import Seconds, optional_seconds
from rota.sdk.task import App, Task

log = structlog.get_logger("rota.worker")

EXECUTE_WAIT_MS = 1_000  # of the call that starts a run; a longer wait is a call of its own

P = ParamSpec("P")
R = TypeVar("R")


class CodeOptions(TypedDict, total=False):
    """The options of a workflow in code."""

    name: str  # by default that of the function
    version: int | str  # a label of the author; the code makes versions by itself
    description: str
    queue: str
    priority: int
    requires: Sequence[str]  # capabilities that the worker must have
    max_attempts: int  # of the function without progress, when its workers die
    timeout_ms: int  # of a run
    # `pinned`: only workers with the code that a run started with go on with it.
    upgrade: Literal["replay", "pinned"]
    strict: bool  # other arguments of a finished step are a divergence


class CodeDecorator(Protocol):
    """The decorator that `@app.workflow(...)` returns; it keeps the signature of the function."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[FunctionContext, P], Coroutine[Any, Any, R]], /
    ) -> "CodeWorkflow[P, R]": ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[BlockingContext, P], R], /
    ) -> "CodeWorkflow[P, R]": ...


class CodeWorkflow(CodeTarget[P, R]):
    """A durable function with the name that its runs are started by."""

    def __init__(self, app: App, function: Callable[..., Any], options: CodeOptions) -> None:
        self.app = app
        self.function = function
        self.name = options.get("name") or function.__name__
        self.is_async = inspect.iscoroutinefunction(function)
        self.is_strict = options.get("strict", False)
        self.arguments = FunctionArguments(function, task=self.name)
        self.task = ResumptionTask(self)
        self._source = FunctionSource(function)
        self._options = options
        self._definition: CodeDefinition | None = None
        self._deployed: tuple[Client, WorkflowView] | None = None
        self._refused_by: Client | None = None  # whose token may not store definitions
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __repr__(self) -> str:
        return f"<CodeWorkflow {self.name}>"

    def __call__(self, ctx: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function itself, as a part of another one."""
        return self.function(ctx, *args, **kwargs)

    # --- the definition -----------------------------------------------------------------------

    @property
    def definition(self) -> CodeDefinition:
        """What the coordinator stores: the source, its fingerprint, and the options."""
        if self._definition is None:
            self._definition = self._make_definition()
        return self._definition

    def _make_definition(self) -> CodeDefinition:
        options = self._options
        kept = {"queue", "priority", "max_attempts", "timeout_ms", "upgrade", "description"}
        given: dict[str, Any] = {name: one for name, one in options.items() if name in kept}
        label = options.get("version")
        document = {
            "name": self.name,
            "fingerprint": self._source.fingerprint,
            "source": self._source.text,
            "first_line": self._source.first_line,
            "module": self.function.__module__,
            "label": None if label is None else str(label),
            "requires": list(options.get("requires", ())),
            "approvals": list(self._source.approvals),
            **given,
        }
        document.setdefault("description", inspect.getdoc(self.function) or "")
        try:
            return msgspec.convert(document, CodeDefinition)
        except msgspec.ValidationError as error:
            raise Invalid(f"workflow {self.name!r}: {error}", workflow=self.name) from None

    @property
    def result_decoder(self) -> "msgspec.json.Decoder[Any]":
        return self.arguments.result_decoder

    def encode_input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Raw:
        return self.arguments.encode(tuple(args), dict(kwargs))

    # --- running ------------------------------------------------------------------------------

    def deploy(self) -> WorkflowView:
        """Store the definition at the coordinator; equal code is the same version."""
        return self.app.client.run(self.deploying())

    async def adeploy(self) -> WorkflowView:
        """As `deploy`, for async code."""
        return await self.app.client.arun(self.deploying())

    def deploying(self) -> Exchange[WorkflowView]:
        """The calls that deploy the definition."""
        client = self.app.client
        view: WorkflowView = yield function_calls.put_code(self.definition)
        self._deployed = client, view
        return view

    @property
    def deployed_version(self) -> int | None:
        """The version that the app's current coordinator has of this code; None: not known."""
        if self._deployed is None or self._deployed[0] is not self.app.client:
            return None
        return self._deployed[1].version

    @overload
    def start(self, *args: P.args, **kwargs: P.kwargs) -> FunctionHandle[R]: ...
    # With options the arguments are not checked: a signature has no place for both. Each option is
    # required in its overload, so that wrong arguments without one are errors.
    @overload
    def start(
        self, *args: Any, key: str | None, timeout_ms: int | None = None, **kwargs: Any
    ) -> FunctionHandle[R]: ...
    @overload
    def start(self, *args: Any, timeout_ms: int | None, **kwargs: Any) -> FunctionHandle[R]: ...

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Start a run; returns when the coordinator has stored it.

        The run has the code of this program, which is stored at the coordinator first if it is not
        known there. A second start with the same `key` returns the first run. `timeout_ms` is the
        time that the run may take.
        """
        self.app.start()
        return self.app.client.run(self._start(args, kwargs))

    @overload
    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> FunctionHandle[R]: ...
    @overload
    async def astart(
        self, *args: Any, key: str | None, timeout_ms: int | None = None, **kwargs: Any
    ) -> FunctionHandle[R]: ...
    @overload
    async def astart(
        self, *args: Any, timeout_ms: int | None, **kwargs: Any
    ) -> FunctionHandle[R]: ...

    async def astart(self, *args: Any, **kwargs: Any) -> Any:
        """As `start`, for async code."""
        self.app.start()
        return await self.app.client.arun(self._start(args, kwargs))

    def _start(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Exchange[FunctionHandle[Any]]:
        view = yield from self._starting(args, kwargs)
        return FunctionHandle.of_view(view, lambda: self.app.client, self.result_decoder)

    def _starting(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, wait_ms: int = 0
    ) -> Exchange[RunView]:
        given = {
            name: kwargs.pop(name, None)
            for name in ("key", "timeout_ms")
            if name not in self.arguments.names
        }
        run_input = self.encode_input(args, kwargs)
        request = RunRequest(workflow=self.name, input=run_input, **given)
        return (
            yield from starting(
                self.app.middleware, request, lambda request: self._sent(request, wait_ms=wait_ms)
            )
        )

    def _sent(self, request: RunRequest, *, wait_ms: int) -> Exchange[RunView]:
        """The calls that start a run, and store the definition if need be."""
        version = self.deployed_version
        if version is None:
            version = yield from self._deploying_if_allowed()
        try:
            request = msgspec.structs.replace(request, version=version)
            view: RunView = yield run_calls.start_run(request, wait_ms=wait_ms)
        except WorkflowNotFound:
            if version is None:
                raise Forbidden(
                    f"workflow {self.name!r} is not stored at the coordinator, and this token may "
                    "not store it: start a worker that has it first, or use a token of scope "
                    "worker or admin",
                    workflow=self.name,
                ) from None
            stored = yield from self.deploying()  # the coordinator has another store by now
            request = msgspec.structs.replace(request, version=stored.version)
            view = yield run_calls.start_run(request, wait_ms=wait_ms)
        return view

    @overload
    def execute(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def execute(
        self,
        *args: Any,
        key: str | None = None,
        timeout_ms: int | None = None,
        timeout: Seconds | None = None,
        **kwargs: Any,
    ) -> R: ...

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Start a run, wait for its end and return its result: `start` and `result` in one.

        A function that ends within a second takes one call to the coordinator instead of two.
        `timeout` is that of `result`: the run itself goes on. If the answer to the first call is
        lost, the run may have started; with a `key` the call is safe to repeat.
        """
        self.app.start()
        return self.app.client.run(self._execute(args, kwargs))

    @overload
    async def aexecute(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def aexecute(
        self,
        *args: Any,
        key: str | None = None,
        timeout_ms: int | None = None,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - as `execute`
        **kwargs: Any,
    ) -> R: ...

    async def aexecute(self, *args: Any, **kwargs: Any) -> Any:
        """As `execute`, for async code."""
        self.app.start()
        return await self.app.client.arun(self._execute(args, kwargs))

    def _execute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchange[Any]:
        timeout = None if "timeout" in self.arguments.names else kwargs.pop("timeout", None)
        timeout = optional_seconds(timeout, "timeout")
        wait_ms = EXECUTE_WAIT_MS if timeout is None else min(EXECUTE_WAIT_MS, timeout * 1000)
        begun_s = time.monotonic()
        view = yield from self._starting(args, kwargs, wait_ms=int(wait_ms))
        handle = FunctionHandle.of_view(view, lambda: self.app.client, self.result_decoder)
        left_s = None if timeout is None else max(0.0, begun_s + timeout - time.monotonic())
        return (yield from handle.ended(view, left_s))

    def _deploying_if_allowed(self) -> Exchange[int | None]:
        """The version of this code; None: the token may not store it, and the current one starts.

        That may be other code than that of this program, so it is logged, once.
        """
        client = self.app.client
        if self._refused_by is client:
            return None
        try:
            view = yield from self.deploying()
        except Forbidden as error:
            self._refused_by = client
            log.warning(
                "workflow_not_deployed",
                workflow=self.name,
                reason=error.detail,
                hint="its runs start with the version that a worker or an operator has stored",
            )
            return None
        return view.version

    def handle(self, run_id: str) -> FunctionHandle[R]:
        """The handle of a run with a known id."""
        return FunctionHandle(run_id, lambda: self.app.client, self.result_decoder)

    # --- in a worker --------------------------------------------------------------------------

    def body(
        self, runtime: FunctionRuntime, run_input: Raw, dice: random.Random | None = None
    ) -> Callable[[], Awaitable[Raw]]:
        """What a runtime runs: the function with its context and its arguments."""

        async def run() -> Raw:
            args, kwargs = self.arguments.decode(run_input)
            operations = Operations(runtime, self, dice=dice)
            if self.is_async:
                ctx = FunctionContext(operations)
                CURRENT_RUN.set(ctx)  # of this run's own copy of the context variables
                value = await self.function(ctx, *args, **kwargs)
            else:
                context = BlockingContext(operations)
                value = await run_in_thread(lambda: self.function(context, *args, **kwargs))
            return Raw(encode(value))

        return run


class ResumptionTask(Task[[Raw], FunctionReport]):
    """The task by which workers run a function; its payload is a resumption."""

    def __init__(self, workflow: CodeWorkflow[..., Any]) -> None:
        async def resume(_: Raw) -> FunctionReport:
            host, middleware = FUNCTION_HOST.get(), workflow.app.middleware
            return await host.run(workflow, EXECUTION.get(), middleware=middleware)

        name = task_of(workflow.name)
        super().__init__(workflow.app, resume, name=name, run_in="loop", options={})
        self.workflow = workflow
        self.arguments = _ResumptionArguments(resume, task=name)

    @property
    def requires(self) -> tuple[str, ...]:
        return self.workflow.definition.requires


class _ResumptionArguments(FunctionArguments):
    """Hands the payload over as it is: the host reads it."""

    def decode(self, payload: Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (payload,), {}


# --- deployment ----------------------------------------------------------------------------------


def deploying_all(functions: Sequence[CodeWorkflow[..., Any]]) -> Exchange[list[str]]:
    """The calls that deploy functions; returns the capabilities of a worker that has them.

    A worker serves a pinned run only if it has the code that the run started with: each version is
    a capability of the worker, so the coordinator must know its code before it registers.
    A definition that is refused is logged, and its worker serves on: another program may have
    deployed it, and pinned runs are left to other workers.
    """
    capabilities: list[str] = []
    for one in functions:
        try:
            view = yield from one.deploying()
        except (Forbidden, Conflict, Invalid) as error:
            log.warning("workflow_not_deployed", workflow=one.name, reason=error.detail)
        else:
            capabilities.append(capability_of(one.name, view.version))
    return capabilities
