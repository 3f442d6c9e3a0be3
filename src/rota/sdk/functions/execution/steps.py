"""Steps: functions that run inside the worker, each recorded once when it has ended.

Async functions run on the event loop, all others in threads. A failed step is tried again: in place
after a short wait; after a long one as an operation of its own, so that the function is suspended
meanwhile.
"""

import asyncio
import contextvars
import hashlib
import inspect
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from rota.core.tasks.model import Backoff, retry_delay_ms
from rota.core.workflow.functions.model import Operation, OperationKind, SleepRequest
from rota.errors import Invalid
from rota.sdk.arguments import Arguments
from rota.sdk.encoding import encode
from rota.sdk.functions.errors import TIMEOUT, UNKNOWN_OUTCOME, error_of, raised
from rota.sdk.functions.execution.large_results import whole_end
from rota.sdk.functions.execution.log import LogEntry
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.scopes import SCOPE, UNDO_SCOPE
from rota.sdk.functions.execution.step_threads import StepThreads
from rota.sdk.outcomes import Discard, RateLimited, Retry, Snooze
from rota.sdk.task import Task

SHORT_WAIT_MS = 1_000  # waits up to this long pass in place
STEP_THREADS = 64  # in which steps that are plain functions run at once, in one worker
HASH_BYTES = 8
NULL = Raw(b"null")
MOST_SIGNATURES = 2_048  # kept of steps
LARGE_RESULT_BYTES = 1024 * 1024  # beyond this a result becomes an artifact
DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF = Backoff()

Checkpoint = Literal["now", "with_next"]


class StepOptions(Struct, frozen=True, kw_only=True):
    """How a step is run and recorded."""

    max_attempts: int = DEFAULT_ATTEMPTS
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_ms: int | None = None
    checkpoint: Checkpoint = "now"
    undo: Callable[..., Any] | None = None


class StepCall(Struct, frozen=True, kw_only=True):
    """A function with the arguments of one call."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    options: StepOptions = StepOptions()
    line: int = 0


class StepSignature:
    """What a step's function returns, and where it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.is_async = inspect.iscoroutinefunction(function)
        self._function = function
        self._decoder: msgspec.json.Decoder[Any] | None = None

    @property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        if self._decoder is None:
            try:
                self._decoder = Arguments(self._function, task="step").result_decoder
            except ValueError:  # a builtin has no signature
                self._decoder = msgspec.json.Decoder()
        return self._decoder


def plain_function(function: Any) -> Callable[..., Any]:
    """The function that a step calls; of a task its own function."""
    if isinstance(function, Task):
        return function.function
    if not callable(function):
        raise Invalid(f"a step is a function, not a {type(function).__name__}")
    found: Callable[..., Any] = function
    return found


_signatures: dict[
    Any, StepSignature
] = {}  # by the code of the function: a lambda is another object each time


def signature_of(function: Callable[..., Any]) -> StepSignature:
    code = getattr(function, "__code__", None)
    found = _signatures.get(code)
    if found is None or code is None:
        found = StepSignature(function)
        if len(_signatures) >= MOST_SIGNATURES:
            _signatures.clear()
        if code is not None:
            _signatures[code] = found
    return found


def name_of_function(function: Any) -> str:
    """The name of a step: that of its task or function."""
    if isinstance(function, Task):
        return function.name
    function = getattr(function, "func", function)  # of a partial
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


def hash_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """A hash of arguments; None: they cannot be written as JSON, and need not be."""
    if not args and not kwargs:
        return None
    try:
        content = encode((args, kwargs)) if kwargs else encode(args)
    except Exception:  # noqa: BLE001 - users' types
        return None
    return hashlib.blake2b(content, digest_size=HASH_BYTES).hexdigest()


async def perform(
    runtime: FunctionRuntime, path: str, call: StepCall, *, kind: OperationKind = "step"
) -> Any:
    """Run a step, or return what it did when it ran."""
    function = plain_function(call.function)
    signature = signature_of(function)
    if runtime.fakes:
        function = _fake_of(runtime, call.function) or function
    arguments = hash_of(call.args, call.kwargs)
    end = await runtime.end_of(path, kind, call.line, arguments)
    if end is None:
        is_started = kind == "once" and path in runtime.log.recorded
        attempt = _Attempt(runtime, path, kind, call, function, signature, arguments)
        value = await (attempt.give_up() if is_started else attempt.run())
    else:
        value = value_of(await whole_end(end, runtime.load), signature.decoder)
    if call.options.undo is not None:
        add_undo(runtime, path, call.options.undo, value, call.line)
    return value


def _fake_of(runtime: FunctionRuntime, function: Any) -> Callable[..., Any] | None:
    """The function that a test has put in place of a step's, by function or name."""
    plain = plain_function(function)
    return runtime.fakes.get(plain) or runtime.fakes.get(name_of_function(function))


def value_of(end: LogEntry, decoder: msgspec.json.Decoder[Any]) -> Any:
    """What a function sees of an end: its result, decoded, or its error, raised."""
    if end.state == "failed":
        raise raised(end.path, end.error or {})
    result = end.result
    return decoded(result if isinstance(result, Raw) else Raw(encode(result)), decoder)


def decoded(content: Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(content)
    except msgspec.ValidationError:
        # Another version of the code wrote it; the plain value is still useful.
        return msgspec.json.decode(content)


class _Attempt:
    """The attempts of one step, until it has an outcome."""

    def __init__(  # noqa: PLR0917 - one caller
        self,
        runtime: FunctionRuntime,
        path: str,
        kind: OperationKind,
        call: StepCall,
        function: Callable[..., Any],
        signature: StepSignature,
        arguments: str | None,
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._kind = kind
        self._call = call
        self._function = function
        self._signature = signature
        self._is_async = (
            signature.is_async
            if function is call.function
            else inspect.iscoroutinefunction(function)  # of a task, or one that a test puts there
        )
        self._arguments = arguments
        self._number = 1
        self._long_waits = 0
        self._large: Raw | None = None  # the result that is an artifact
        self._started_at_ms = 0

    async def run(self) -> Any:
        runtime, options = self._runtime, self._call.options
        await self._pass_recorded_waits()
        while True:
            self._started_at_ms = runtime.clock()
            await self._begin()
            runtime.branches.in_steps += 1
            runtime.branches.note_change()
            try:
                content, error = await self._run_once(options.timeout_ms)
                wait_ms = None if error is None else self._wait_ms(error)
                if wait_ms is not None and wait_ms <= SHORT_WAIT_MS:
                    await runtime.sleep(wait_ms / 1000)
            finally:
                runtime.branches.in_steps -= 1
            if wait_ms is None:
                break
            if wait_ms > SHORT_WAIT_MS:
                await self._wait_long(runtime.clock() + wait_ms)
            self._number += 1
        await runtime.turn()
        return self._record(content, error)

    async def give_up(self) -> Any:
        """End a step that runs at most once, and that began in a worker which is gone."""
        message = "it began, and its worker ended before it recorded an outcome"
        error = {"type": UNKNOWN_OUTCOME, "message": message}
        self._note(Operation(path=self._path, kind=self._kind, state="failed", error=error))
        raise raised(self._path, error)

    async def _begin(self) -> None:
        runtime = self._runtime
        if self._kind == "once":
            runtime.record(
                Operation(
                    path=self._path,
                    kind="once",
                    state="started",
                    arguments=self._arguments,
                    started_at_ms=self._started_at_ms,
                    line=self._call.line or None,
                )
            )
        await runtime.begin_effect(self._path, self._kind, self._call.line)

    async def _run_once(self, timeout_ms: int | None) -> tuple[Raw, BaseException | None]:
        """Call the function; returns its result as JSON, or its error."""
        limit: asyncio.Timeout | None = None
        try:
            if timeout_ms is None:
                value = await self._called()
            else:
                limit = asyncio.timeout(timeout_ms / 1000)
                async with limit:
                    value = await self._called()
        except TimeoutError as error:
            if limit is not None and limit.expired():
                return NULL, StepTimeoutError(f"{self._path} ran past its {timeout_ms} ms")
            return NULL, error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - no step may end the worker, not by exit
            return NULL, error
        return (NULL, None) if value is None else await self._encoded(value)

    async def _encoded(self, value: Any) -> tuple[Raw, BaseException | None]:
        try:
            content = encode(value)
        except Exception as error:  # noqa: BLE001 - users' types
            text = f"the result of {self._path} cannot be written as JSON: {error}"
            return NULL, UnreadableResultError(text)
        if len(content) > LARGE_RESULT_BYTES and self._runtime.on_large is not None:
            self._large = Raw(content)
            return await self._runtime.on_large(self._path, content), None
        return Raw(content), None

    async def _called(self) -> Any:
        call, function = self._call, self._in_middleware()
        if self._is_async:
            token = SCOPE.set(_IN_STEP)
            try:
                return await function(*call.args, **call.kwargs)
            finally:
                SCOPE.reset(token)
        context = contextvars.copy_context()
        context.run(SCOPE.set, _IN_STEP)
        value = await _threads.run(partial(context.run, function, *call.args, **call.kwargs))
        if inspect.iscoroutine(value):  # a callable object or partial of an async function
            return await value
        return value

    def _in_middleware(self) -> Callable[..., Any]:
        """The function of the step, inside the middleware of its app."""
        runtime, function = self._runtime, self._function
        if runtime.middleware is None or runtime.execution is None:
            return function
        return runtime.middleware.around_step(
            function,
            runtime.execution,
            name=name_of_function(self._call.function),
            path=self._path,
            attempt=self._number,
        )

    def _wait_ms(self, error: BaseException) -> int | None:
        """How long to wait before the next attempt; None: there is none."""
        options = self._call.options
        if self._kind == "once" or isinstance(error, Discard | UnreadableResultError):
            return None
        if isinstance(error, Snooze):
            self._number -= 1
            return error.ms
        if isinstance(error, RateLimited):
            self._number -= 1
            return error.retry_after_ms
        if self._number >= options.max_attempts:
            return None
        if isinstance(error, Retry) and error.in_ms is not None:
            return error.in_ms
        dice = random.random()  # noqa: S311 - spreads retries
        return retry_delay_ms(options.backoff, failed_attempts=self._number, dice=dice)

    async def _pass_recorded_waits(self) -> None:
        """Go on after the long waits that earlier workers have passed, or have begun."""
        while (path := self._retry_path()) in self._runtime.log.recorded:
            self._long_waits += 1
            await self._runtime.end_of(path, "sleep", self._call.line)
            self._number += 1

    async def _wait_long(self, due_at_ms: int) -> None:
        path = self._retry_path()
        self._long_waits += 1
        request = SleepRequest(due_at_ms=due_at_ms)
        await self._runtime.ask(path, "sleep", request, line=self._call.line)

    def _retry_path(self) -> str:
        return f"{self._path}/retry#{self._long_waits + 1}"

    def _record(self, content: Raw, error: BaseException | None) -> Any:
        options, path = self._call.options, self._path
        operation = Operation(
            path=path,
            kind=self._kind,
            state="done" if error is None else "failed",
            result=content if error is None else None,
            error=None if error is None else self._error_of(error),
            arguments=self._arguments,
            attempts=self._number,
            started_at_ms=self._started_at_ms,
            ended_at_ms=self._runtime.clock(),
            line=self._call.line or None,
            can_undo=options.undo is not None and error is None,
        )
        self._note(operation)
        if error is None:
            return decoded(self._large or content, self._signature.decoder)
        seen = raised(path, operation.error or {})
        if type(seen) is type(error):
            raise error
        raise seen from error

    def _error_of(self, error: BaseException) -> dict[str, Any]:
        found = error_of(error)
        return {**found, "type": TIMEOUT} if isinstance(error, StepTimeoutError) else found

    def _note(self, operation: Operation) -> None:
        is_due = self._call.options.checkpoint == "now"
        self._runtime.record(operation, is_due=is_due)


class StepTimeoutError(TimeoutError):
    """A step ran longer than it may."""


class UnreadableResultError(TypeError):
    """The result of a step cannot be written as JSON."""


class _InStep:
    """The scope inside a step, which has no operations."""

    path = ""

    def path_of(self, name: str, *_: Any) -> str:
        raise Invalid(
            f"{name!r} is called inside a step: operations are called by the function itself"
        )


_IN_STEP: Any = _InStep()
_threads = StepThreads(limit=STEP_THREADS)


# --- undoing --------------------------------------------------------------------------------------


def add_undo(
    runtime: FunctionRuntime, path: str, undo: Callable[..., Any], value: Any, line: int
) -> None:
    """Have an operation undone if the function fails later; the undo gets its result."""
    args = (value,) if _takes_an_argument(plain_function(undo)) else ()
    call = StepCall(function=undo, args=args, line=line)

    def undone() -> Coroutine[Any, Any, None]:
        return perform(runtime, f"{UNDO_SCOPE}/{path}", call)

    runtime.add_undo(path, undone)


def _takes_an_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return True
    return any(
        one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL}
        for one in parameters
    )
