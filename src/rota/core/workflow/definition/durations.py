"""Durations in the text of a workflow: `timeout: 5m` is `timeout_ms: 300000`.

Each field that ends in `_ms` may be written without that ending, and then takes a text with its
unit. The definition itself has milliseconds only.
"""

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from rota.core.schedules.durations import FORM, MAX_TEXT_LENGTH, milliseconds_of
from rota.core.workflow.definition.model import DefinitionProblem, problem

ENDING = "_ms"


def with_milliseconds(value: Any, hint: Any, path: str, found: list[DefinitionProblem]) -> Any:
    """The value, which is to have this type, with each of its durations in milliseconds.

    A duration that cannot be read is left out and added to `found`.
    """
    for kind in _alternatives(hint):
        origin = get_origin(kind)
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct):
            return _in_struct(value, kind, path, found)
        if isinstance(value, dict) and origin is dict:
            of_values = get_args(kind)[1]
            return {
                name: with_milliseconds(one, of_values, f"{path}.{name}".lstrip("."), found)
                for name, one in value.items()
            }
        if isinstance(value, list) and origin in {list, tuple}:
            of_items = get_args(kind)[0]
            return [
                with_milliseconds(one, of_items, f"{path}[{number}]", found)
                for number, one in enumerate(value)
            ]
    return value


def _alternatives(hint: Any) -> list[Any]:
    """The types of a union, or the one type, without annotations."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _alternatives(get_args(hint)[0])
    if origin in {Union, UnionType}:
        return [one for part in get_args(hint) for one in _alternatives(part)]
    return [hint]


def _in_struct(
    value: dict[Any, Any], kind: type[Struct], path: str, found: list[DefinitionProblem]
) -> dict[Any, Any]:
    known = {field.encode_name: field.type for field in fields(kind)}
    plain: dict[Any, Any] = {}
    for name, one in value.items():
        place = f"{path}.{name}".lstrip(".")
        field = f"{name}{ENDING}"
        if name in known:
            plain[name] = with_milliseconds(one, known[name], place, found)
        elif field not in known:
            plain[name] = one
        elif field in value:
            found.append(problem(place, "bad_shape", f"give `{name}` or `{field}`, not both"))
        elif (duration_ms := milliseconds_of(one) if isinstance(one, str) else None) is not None:
            plain[field] = duration_ms
        else:
            found.append(problem(place, "bad_shape", _why_none(one, field)))
    return plain


def _why_none(value: Any, field: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"a duration has a unit: {FORM}; a number of milliseconds is given as `{field}`"
    shown = repr(value)[:MAX_TEXT_LENGTH]
    return f"{shown} is not a duration; write it as {FORM}"
