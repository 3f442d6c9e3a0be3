"""Arguments and results as plain JSON. An error names the argument.

A task is stored, and runs in another process, so that only what JSON can hold arrives there.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rota.contrib.django.task_api import DjangoTask
from rota.sdk.arguments import InvalidArguments

MAX_DEPTH = 100  # of lists and objects inside each other


def plain_arguments(
    task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as JSON values; they must fit the task's function."""
    context = ("context",) if task.takes_context else ()
    try:
        inspect.signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        name = task.module_path
        raise InvalidArguments(f"task {name!r}: {error}", task=name) from None
    names = _positional_names(task, len(args))
    return (
        [_plain_argument(task, name, value) for name, value in zip(names, args, strict=True)],
        {name: _plain_argument(task, name, value) for name, value in kwargs.items()},
    )


def _positional_names(task: DjangoTask, count: int) -> list[str]:
    """The names of the first parameters; `*names` has its own name as often as needed."""
    names: list[str] = []
    parameters = list(inspect.signature(task.func).parameters.values())
    for parameter in parameters[1 if task.takes_context else 0 :]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [parameter.name] * (count - len(names))
        elif len(names) < count:
            names.append(parameter.name)
    return names[:count]


def _plain_argument(task: DjangoTask, name: str, value: Any) -> Any:
    try:
        return plain(value)
    except (TypeError, ValueError) as error:
        raise InvalidArguments(
            f"task {task.module_path!r}, argument {name!r}: {error}; pass what JSON can hold, such "
            "as the id of a model instead of the model",
            task=task.module_path,
            argument=name,
        ) from None


def plain(value: Any, depth: int = 0) -> Any:
    """The value in types that JSON has; raises TypeError or ValueError if it has others."""
    if depth > MAX_DEPTH:
        raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} deep")
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return _plain_scalar(value)
        case Mapping():
            return {_plain_key(name): plain(one, depth + 1) for name, one in value.items()}
        case Sequence():
            return [plain(one, depth + 1) for one in value]
        case _:
            kind = type(value)
            name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
            raise TypeError(f"a value of type {name!r} cannot be written as JSON")


def _plain_scalar(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case bytes():
            return value.decode()  # as Django has it; raises a ValueError for other bytes
        case str():
            value.encode()  # raises a ValueError for a half of a surrogate pair
            return str.__str__(value)  # not the subclass, such as SafeString
        case float():
            if not math.isfinite(value):
                raise ValueError(f"JSON has no number {value}")
            return float(value)
        case _:
            if not -(2**63) <= value < 2**64:
                raise ValueError("a whole number must fit into 64 bits")
            return int(value)


def _plain_key(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the keys of a JSON object must be strings, not {name!r}")
    return name
