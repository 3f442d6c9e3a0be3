"""The errors of durable functions, and how errors of operations are recorded and raised again.

A function must see the same error when it runs and when it is replayed. So the error of a step is
recorded by the name of its class and its arguments. If a class cannot be rebuilt from these, the
function sees `OperationFailed` in both cases.
"""

import sys
from typing import Any

import msgspec

from rota.core import limits
from rota.errors import Invalid, RotaError
from rota.sdk.encoding import encode
from rota.sdk.outcomes import details_of, message_of, type_name

TIMEOUT = "timeout"
UNKNOWN_OUTCOME = "unknown_outcome"
MAX_ARGUMENTS_BYTES = 16_384  # of an error; longer ones are raised again as OperationFailed


class Suspended(BaseException):
    """Unwinds a function that goes on elsewhere.

    Not an `Exception`, so that a function's own `except Exception` does not catch it.
    """


class Restarted(BaseException):
    """Ends a function that begins again with another input, by `ctx.restart`."""

    def __init__(self, run_input: Any) -> None:
        super().__init__("the function begins again")
        self.run_input = run_input


class AmbiguousStep(Invalid):
    """Two asyncio tasks use one name in one scope, so their order would decide which is which."""

    code = "ambiguous_step"
    title = "Two tasks use one name in one scope"


class OperationFailed(RotaError):  # noqa: N818 - read where it is caught: `except OperationFailed`
    """An operation of a function has failed; `error` is what the log has of it."""

    code = "operation_failed"
    title = "An operation of a function has failed"

    def __init__(self, path: str, error: dict[str, Any]) -> None:
        text = f"{error.get('type', 'Error')}: {error.get('message', 'failed')}"
        super().__init__(f"{path}: {text}", path=path, error=error)
        self.path = path
        self.error = error

    @property
    def type(self) -> str:
        """The class of the original error, or a code of Rota's own."""
        return str(self.error.get("type", "Error"))


class StepOutcomeUnknown(OperationFailed):
    """A step that runs at most once began, and its worker died before it recorded an outcome."""

    code = "step_outcome_unknown"
    title = "The outcome of a step that runs at most once is unknown"


class LeaseLost(Exception):  # noqa: N818 - not a user's error
    """The coordinator has given the function to another worker, or ended its run."""


def error_of(error: BaseException) -> dict[str, Any]:
    """An error as the log has it."""
    found: dict[str, Any] = {
        "type": type_name(error)[: limits.MAX_ERROR_LENGTH],
        "message": message_of(error)[: limits.MAX_ERROR_LENGTH],
    }
    if isinstance(error, OperationFailed):
        return {**error.error, "path": error.path}
    arguments = _plain_arguments(error)
    if arguments is not None:
        found["arguments"] = arguments
    details = details_of(error)
    if details is not None:
        found["details"] = details
    return found


def raised(path: str, error: dict[str, Any]) -> BaseException:
    """The error that a function sees for a failed operation."""
    kind = error.get("type")
    if kind == UNKNOWN_OUTCOME:
        return StepOutcomeUnknown(path, error)
    if kind == TIMEOUT:
        return TimeoutError(error.get("message") or f"{path} took too long")
    rebuilt = _rebuilt(str(kind), error.get("arguments"))
    return OperationFailed(path, error) if rebuilt is None else rebuilt


def _plain_arguments(error: BaseException) -> list[Any] | None:
    """The arguments of an error, if they come back from JSON as they are."""
    try:
        content = encode(list(error.args))
        plain: list[Any] = msgspec.json.decode(content)
    except Exception:  # noqa: BLE001 - users' types
        return None
    is_same = plain == list(error.args) and len(content) <= MAX_ARGUMENTS_BYTES
    return plain if is_same else None


def _rebuilt(kind: str, arguments: Any) -> BaseException | None:
    if not isinstance(arguments, list):
        return None
    found = _class_named(kind)
    if found is None:
        return None
    try:
        rebuilt = found(*arguments)
    except Exception:  # noqa: BLE001 - users' code
        return None
    return rebuilt if isinstance(rebuilt, Exception) else None


def _class_named(kind: str) -> Any:
    """The class of an error by its name, if the program has loaded it."""
    parts = kind.split(".")
    for end in range(len(parts) - 1, -1, -1):
        modules = [".".join(parts[:end])] if end else ["builtins", "__main__"]
        for module in modules:
            found: Any = sys.modules.get(module)
            for name in parts[end:] if found is not None else ():
                found = getattr(found, name, None)
            if isinstance(found, type) and issubclass(found, Exception):
                return found
    return None
