"""Validation of what callers send, the same for every gateway."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rota.core import limits
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import TaskError, shortened
from rota.core.tasks.values import check_value
from rota.core.workflow.functions.model import Operation
from rota.errors import Invalid, TooLarge

_PLACE = re.compile(r"^(?P<text>.*) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)
_FIELD = re.compile(r"(?:unknown|required) field `(?P<field>.*?)`$", re.DOTALL)
_decode_operations = msgspec.json.Decoder(list[Operation]).decode
_INDEX = re.compile(r"\[(\d+)\]")


def invalid(message: str) -> Invalid:
    """Turn a validation message into an error that names the field, its path and index."""
    place = _PLACE.match(message)
    text, path = (place["text"], place["path"]) if place else (message, "")
    named = _FIELD.search(text)
    if named:
        path = f"{path}.{named['field']}"
    path = path.removeprefix(".")
    facts: dict[str, Any] = {}
    if path:
        fields = [part for part in _INDEX.sub("", path).replace("[...]", "").split(".") if part]
        facts = {"field": named["field"] if named else (fields[-1] if fields else path)}
        facts["path"] = path
        index = _INDEX.search(path)
        if index:
            facts["index"] = int(index[1])
    return Invalid(f"{path}: {text}" if path else text, **facts)


def invalid_field(field: str, text: str, *, index: int | None = None) -> Invalid:
    """An error in the same form as those of the decoder."""
    if index is None:
        return Invalid(f"{field}: {text}", field=field, path=field)
    path = f"[{index}].{field}"
    return Invalid(f"{path}: {text}", field=field, path=path, index=index)


def is_null(value: Raw | None) -> bool:
    """Whether a value was left out, or is there and says null."""
    return value is None or (len(value) == 4 and bytes(value) == b"null")


def checked_name(text: str, field: str) -> str:
    """The text, if it is short enough for a name."""
    if len(text) > limits.MAX_NAME_LENGTH:
        raise invalid_field(field, f"has at most {limits.MAX_NAME_LENGTH} characters")
    return text


# --- reports of workers --------------------------------------------------------------------------


def check_result(
    *,
    ok: bool | None,
    has_result: bool,
    error: object,
    snooze_ms: int | None,
    rate_limited: bool,
    index: int,
) -> None:
    """Refuse a report that contradicts itself."""
    if ok and (error is not None or snooze_ms is not None):
        field = "snooze_ms" if error is None else "error"
        raise invalid_field(field, "not with a success", index=index)
    if not ok and has_result:
        raise invalid_field("result", "only with a success", index=index)
    if rate_limited and snooze_ms is None:
        raise invalid_field("rate_limited", "only with snooze_ms", index=index)


def task_error(error: TaskError | str | None, *, most_bytes: int) -> TaskError:
    """The error of a worker, which sends it whole or as a text."""
    if not isinstance(error, TaskError):
        return shortened(TaskError(message=error or "failed"))
    if error.details is not None:
        details = Raw(msgspec.json.encode(error.details))
        check_value(details, "details", most_bytes=most_bytes)
    return shortened(error)


def check_lines(lines: Sequence[LogLine], index: int) -> None:
    """Refuse more log lines of an attempt than can be kept, and fields that are no object."""
    most = limits.MAX_LOG_LINES
    if len(lines) > most:
        raise invalid_field("lines", f"has at most {most} lines, not {len(lines)}", index=index)
    for line in lines:
        if line.fields is not None and line.fields.lstrip()[:1] != b"{":
            raise invalid_field("fields", "not an object", index=index)


def operations_of(value: bytes, index: int, *, most_bytes: int) -> list[Operation]:
    """The operations that a worker reports of one function."""
    check_value(Raw(value), "operations", most_bytes=most_bytes)
    try:
        operations = _decode_operations(value)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise invalid_field("operations", str(error), index=index) from None
    except RecursionError:
        raise invalid_field("operations", "nested too deep", index=index) from None
    most = limits.MAX_RESULT_BYTES
    if len(value) > most:
        for one in operations:
            if len(msgspec.json.encode(one.result)) > most:
                detail = f"the result of {one.path!r} has more than {most} bytes"
                raise TooLarge(detail, field="operations", index=index, limit=most)
    return operations
