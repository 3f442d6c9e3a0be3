"""The operations of a function, ready to be awaited: what both kinds of contexts offer.

`FunctionContext` returns them as they are, `BlockingContext` waits for them in a thread.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypedDict, TypeVar

import msgspec
from msgspec import Raw

from rota.core.flows.model import Concurrency, Rate
from rota.core.tasks.model import Backoff, NewTask
from rota.core.workflow.functions.model import (
    ApprovalRequest,
    CallRequest,
    ChildRequest,
    EventRequest,
    MapRequest,
    Operation,
    OperationKind,
    Request,
    SleepRequest,
)
from rota.errors import Invalid
from rota.sdk.encoding import decoder_of, encode
from rota.sdk.functions import forms
from rota.sdk.functions.errors import OperationFailed, Restarted
from rota.sdk.functions.execution import concurrency
from rota.sdk.functions.execution.concurrency import OperationCall, close_unstarted
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.scopes import SCOPE, checked_name
from rota.sdk.functions.execution.steps import (
    SHORT_WAIT_MS,
    Checkpoint,
    StepCall,
    StepOptions,
    add_undo,
    decoded,
    hash_of,
    name_of_function,
    perform,
    value_of,
)
from rota.sdk.functions.immediate import ImmediateOperations, ReceivedMessage, calling_line
from rota.sdk.task import Task, template_of

P = ParamSpec("P")
R = TypeVar("R")

MS = 1_000
ANY = msgspec.json.Decoder()
REJECTED = "rejected"
CARRIED = (  # of a task's options, by a call
    "queue",
    "priority",
    "requires",
    "timeout_ms",
    "max_attempts",
    "backoff",
    "concurrency",
    "rate",
    "fair_key",
)


class OperationOptions(TypedDict, total=False):
    """The options of an operation, given with `ctx.using(…)`."""

    name: str  # by default that of the function, the task, the workflow or the signal
    key: str  # replaces the number in the operation's path
    max_attempts: int
    backoff: Backoff | Mapping[str, Any]
    timeout_ms: int  # of one attempt of a step or task; of a child run; of a wait
    undo: Callable[..., Any]  # a step that undoes this one; it gets the result of this one
    checkpoint: Checkpoint  # `with_next`: the result is committed with that of the next step
    queue: str  # this and the following: of tasks
    priority: int
    requires: Sequence[str]
    concurrency: Concurrency | Sequence[Concurrency]
    rate: Rate | Sequence[Rate]
    fair_key: str


class ApprovalRejected(OperationFailed):
    """A person has refused an approval; `answer` is what was sent."""

    code = "approval_rejected"
    title = "An approval was refused"

    @property
    def answer(self) -> Any:
        return self.error.get("details")


class CodeTarget(Generic[P, R]):
    """A workflow in code, as `ctx.run` and `ctx.restart` need it."""

    name: str

    def encode_input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Raw:
        raise NotImplementedError

    @property
    def result_decoder(self) -> "msgspec.json.Decoder[Any]":
        raise NotImplementedError


class Operations:
    """Makes the operations of one function."""

    def __init__(
        self,
        runtime: FunctionRuntime,
        target: "CodeTarget[..., Any]",
        *,
        options: OperationOptions | None = None,
        dice: random.Random | None = None,
    ) -> None:
        """`dice` shuffles the order in which branches start, for tests."""
        self.runtime = runtime
        self.target = target
        self._options: OperationOptions = options or {}
        self._dice = dice
        self.immediate = ImmediateOperations(runtime)

    def using(self, options: OperationOptions) -> "Operations":
        if "name" in options:
            checked_name(options["name"])
        changed = Operations(
            self.runtime, self.target, options={**self._options, **options}, dice=self._dice
        )
        changed.immediate = self.immediate
        return changed

    # --- steps ------------------------------------------------------------------------------------

    def step(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        kind: OperationKind = "step",
    ) -> OperationCall[Any]:
        call = StepCall(
            function=function,
            args=args,
            kwargs=kwargs,
            options=self._step_options(),
            line=calling_line(),
        )
        name = self._options.get("name") or name_of_function(function)

        def begin(_: OperationCall[Any]) -> Any:
            return perform(self.runtime, self._enter(name, call.line), call, kind=kind)

        return OperationCall(begin)

    def _step_options(self) -> StepOptions:
        options = self._options
        if not options:
            return _DEFAULT_STEP
        names = {"max_attempts", "timeout_ms", "checkpoint", "undo"}
        given: dict[str, Any] = {name: one for name, one in options.items() if name in names}
        backoff = options.get("backoff")
        if backoff is not None:
            given["backoff"] = msgspec.convert(msgspec.to_builtins(backoff), Backoff)
        if given.get("checkpoint", "now") not in {"now", "with_next"}:
            raise Invalid("checkpoint is 'now' or 'with_next'")
        return StepOptions(**given)

    # --- what the coordinator does ----------------------------------------------------------------

    def call(
        self, task: Task[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> OperationCall[Any]:
        if isinstance(task, Task):
            bound = task.bind_call(args, kwargs)
            request, decoder = self._call_request(bound.new_task), bound.decoder
        else:
            payload = Raw(encode(_single(args, kwargs)))
            template = msgspec.structs.replace(template_of(task, {}), payload=payload)
            request, decoder = self._call_request(template), ANY
        name = task.name if isinstance(task, Task) else task
        return self._ask("call", name, request, hash_of(args, kwargs), decoder)

    def map(
        self,
        task: Task[..., Any] | str,
        items: Iterable[Any],
        max_parallel: int | None,
        on_failure: Literal["fail", "collect"],
    ) -> OperationCall[Any]:
        listed = list(items)
        if isinstance(task, Task):
            template = task.template
            payloads: list[Any] = [task.arguments.encode((one,), {}) for one in listed]
            decoder, name = task.arguments.result_decoder, task.name
        else:
            template, decoder, name = template_of(task, {}), ANY, task
            payloads = [Raw(encode(one)) for one in listed]
        request = MapRequest(
            call=self._call_request(template),
            payloads=payloads,
            max_parallel=max_parallel,
            on_failure=on_failure,
        )

        def read(value: Any) -> list[Any]:
            if on_failure == "collect":
                return [_collected(one, decoder) for one in value]
            return [_converted(one, decoder) for one in value]

        return self._ask("map", name, request, hash_of(listed, {}), ANY, read)

    def _call_request(self, task: NewTask) -> CallRequest:
        options: dict[str, Any] = {name: getattr(task, name) for name in CARRIED}
        given = {name: value for name, value in self._options.items() if name in CARRIED}
        if given:
            checked = template_of(task.name, given)  # type: ignore[arg-type]  # a part of Options
            options |= {name: getattr(checked, name) for name in given}
        return CallRequest(
            task=task.name,
            payload=task.payload,
            **{**options, "requires": tuple(options["requires"])},
        )

    def run(
        self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> OperationCall[Any]:
        if isinstance(workflow, CodeTarget):
            run_input: Any = workflow.encode_input(args, kwargs)
            decoder = workflow.result_decoder
        else:
            run_input, decoder = Raw(encode(_single(args, kwargs))), ANY
        name = workflow if isinstance(workflow, str) else str(workflow.name)
        request = ChildRequest(
            workflow=name, input=run_input, timeout_ms=self._options.get("timeout_ms")
        )
        return self._ask("run", name, request, hash_of(args, kwargs), decoder)

    def sleep(self, wait_ms: int, until: datetime | None) -> OperationCall[None]:
        line = calling_line()
        name = self._options.get("name", "sleep")

        async def begin(_: OperationCall[None]) -> None:
            runtime = self.runtime
            path = self._enter(name, line)
            if await runtime.end_of(path, "sleep", line) is not None:
                return
            now_ms = runtime.clock()
            due_at_ms = now_ms + wait_ms
            if until is not None:
                due_at_ms = max(now_ms, round(until.timestamp() * MS))
            if due_at_ms - now_ms < SHORT_WAIT_MS:
                await self._sleep_here(path, (due_at_ms - now_ms) / MS, line)
            else:
                await runtime.ask(path, "sleep", SleepRequest(due_at_ms=due_at_ms), line=line)

        return OperationCall(begin)

    async def _sleep_here(self, path: str, wait_s: float, line: int) -> None:
        """Pass a short time in the worker; the log has it as done."""
        runtime = self.runtime
        await runtime.pause(wait_s)
        await runtime.turn()
        done = Operation(
            path=path,
            kind="sleep",
            state="done",
            ended_at_ms=runtime.clock(),
            line=line or None,
        )
        runtime.record(done, is_due=False)

    def event(self, name: str, kind: Any) -> OperationCall[Any]:
        request = EventRequest(name=name, timeout_ms=self._options.get("timeout_ms"))
        return self._ask("event", name, request, None, decoder_of(kind))

    def approval(self, title: str, form: Any) -> OperationCall[Any]:
        request = ApprovalRequest(
            title=title, form=forms.schema_of(form), timeout_ms=self._options.get("timeout_ms")
        )

        def read(payload: Any) -> Any:
            return forms.answer_of(form, payload)

        return self._ask("approval", "approval", request, None, ANY, read)

    def receive(self, name: str, kind: Any) -> OperationCall[Any]:
        timeout_ms = self._options.get("timeout_ms")
        request = EventRequest(name=name, timeout_ms=timeout_ms, is_answered=True)
        decoder = decoder_of(kind)
        line = calling_line()

        def read(value: Any) -> ReceivedMessage:
            payload = _converted(value["payload"], decoder)
            return ReceivedMessage(self.runtime, name, value["number"], payload, line)

        return self._ask("receive", name, request, None, ANY, read)

    def _ask(  # noqa: PLR0917 - own callers
        self,
        kind: OperationKind,
        default_name: str,
        request: Request,
        arguments: str | None,
        decoder: "msgspec.json.Decoder[Any]",
        read: Callable[[Any], Any] | None = None,
    ) -> OperationCall[Any]:
        line = calling_line()
        name = self._options.get("name") or default_name
        undo = self._options.get("undo")

        async def begin(call: OperationCall[Any]) -> Any:
            runtime = self.runtime
            path = self._enter(name, line)
            if call.group is not None:
                runtime.ends.wake_together(path, call.group)
            end = await runtime.end_of(path, kind, line, arguments)
            if end is None:
                end = await runtime.ask(
                    path,
                    kind,
                    request,
                    line=line,
                    arguments=arguments,
                    can_undo=undo is not None,
                )
            if end.state == "failed" and (end.error or {}).get("type") == REJECTED:
                raise ApprovalRejected(path, end.error or {})
            value = value_of(end, decoder)
            if read is not None:
                value = read(value)
            if undo is not None:
                add_undo(runtime, path, undo, value, line)
            return value

        return OperationCall(begin)

    # --- branches and scopes ----------------------------------------------------------------------

    def gather(self, awaitables: Sequence[Any]) -> OperationCall[tuple[Any, ...]]:
        line = calling_line()

        async def begin(_: OperationCall[tuple[Any, ...]]) -> tuple[Any, ...]:
            scope = self._enter_crowd("gather", line, awaitables)
            return await concurrency.gather(self.runtime, scope, awaitables, self._dice)

        return OperationCall(begin)

    def first(self, awaitables: Mapping[str, Any]) -> OperationCall[tuple[str, Any]]:
        line = calling_line()
        named = [(checked_name(name), one) for name, one in awaitables.items()]
        if not named:
            raise Invalid("first needs at least one awaitable: ctx.first(paid=ctx.event('paid'))")

        async def begin(_: OperationCall[tuple[str, Any]]) -> tuple[str, Any]:
            path = self._enter_crowd("first", line, awaitables.values())
            return await concurrency.first(self.runtime, path, named, self._dice, line)

        return OperationCall(begin)

    def _enter_crowd(self, name: str, line: int, awaitables: Iterable[Any]) -> str:
        try:
            return self._enter(name, line, is_keyed=False)
        except BaseException:
            close_unstarted(awaitables)
            raise

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Let the operations inside count for themselves."""
        parent = SCOPE.get()
        path = f"{parent.path}/{checked_name(name)}" if parent.path else checked_name(name)
        token = SCOPE.set(self.runtime.scopes.at(path))
        try:
            yield
        finally:
            SCOPE.reset(token)

    # --- the end, and paths -----------------------------------------------------------------------

    def restart(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
        raise Restarted(self.target.encode_input(args, kwargs))

    def _enter(self, name: str, line: int, *, is_keyed: bool = True) -> str:
        key = self._options.get("key") if is_keyed else None
        return self.runtime.enter(name, key, line)


_DEFAULT_STEP = StepOptions()


def _single(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The payload of something that is known by name only: one value, or fields."""
    if len(args) > 1 or (args and kwargs):
        raise Invalid("by name, a task or workflow takes one payload, or named fields")
    return args[0] if args else dict(kwargs)


def _converted(value: Any, decoder: "msgspec.json.Decoder[Any]") -> Any:
    return value if decoder is ANY else decoded(Raw(encode(value)), decoder)


def _collected(outcome: dict[str, Any], decoder: "msgspec.json.Decoder[Any]") -> dict[str, Any]:
    if "error" in outcome:
        return outcome
    return {**outcome, "result": _converted(outcome.get("result"), decoder)}
