"""JSON Schemas of a definition: their problems, and the validation of values.

Nothing is ever fetched: a schema with a reference out of its document is refused, and the validator
has no means to retrieve one. Patterns are matched in linear time, so they have neither look-around
nor back-references.
"""

from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import jsonschema_rs
import msgspec

from rota.core import limits
from rota.core.workflow.definition import schema_references

MOST_PROBLEMS = 10
_NOT_FETCHED = "references out of a schema are not followed"
_NO_PATTERN = 'is not a "regex"'


class SchemaProblem(msgspec.Struct, frozen=True):
    code: str
    message: str


class Validator(NamedTuple):
    """A compiled schema."""

    validator: Any
    checks: int  # of one value, at the most


class _SchemaRefusedError(Exception):
    """A schema that may not be used."""

    def __init__(self, problem: SchemaProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _refuse(address: str) -> NoReturn:
    raise ValueError(f"{_NOT_FETCHED}: {address}")


@lru_cache(maxsize=1_024)
def _validator(encoded: bytes) -> Validator:
    """The validator of a schema, or the reason to refuse it."""
    schema = msgspec.json.decode(encoded)
    try:
        if leaving := schema_references.leaving(schema):
            raise _SchemaRefusedError(SchemaProblem("remote_reference", leaving))
        # This validates the schema by its meta-schema, too. `meta.validate` would fetch that.
        validator = jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=limits.MAX_PATTERN_BYTES),
        )
        checks = schema_references.checks(schema)
    except schema_references.ExpensiveSchemaError as error:
        raise _SchemaRefusedError(SchemaProblem("expensive_schema", str(error))) from None
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise _SchemaRefusedError(_explained(error)) from None
    except RecursionError:
        message = "its parts are nested too deeply"
        raise _SchemaRefusedError(SchemaProblem("bad_schema", message)) from None
    return Validator(validator, checks)


def schema_problem(schema: Any) -> SchemaProblem | None:
    """The reason to refuse a schema; None: it may be used."""
    try:
        _validator(msgspec.json.encode(schema))
    except _SchemaRefusedError as refused:
        return refused.problem
    return None


def _explained(error: Exception) -> SchemaProblem:
    text = str(error)
    message = text.split("\n", 1)[0]
    if _NOT_FETCHED in text:
        return SchemaProblem("remote_reference", message)
    if _NO_PATTERN in message:
        message += (
            "; patterns have no look-around and no back-references, and are at most "
            f"{limits.MAX_PATTERN_BYTES} bytes when compiled"
        )
    return SchemaProblem("bad_schema", message)


def _refuse_work(checks: int, value: Any) -> None:
    """Refuse a value so large that its validation would take too long."""
    if not isinstance(value, str | list | dict):
        return
    parts, size = 1, len(value)
    if not isinstance(value, str):
        try:
            encoded = msgspec.json.encode(value)
        except (RecursionError, UnicodeError, OverflowError) as error:
            message = f"this value cannot be held against it: {error}"
            raise _SchemaRefusedError(SchemaProblem("expensive_schema", message)) from None
        parts += encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
        size = len(encoded)
    if checks * (parts + size // 16) > limits.MAX_SCHEMA_STEPS:
        most = limits.MAX_SCHEMA_STEPS
        message = f"to hold this value against it takes more than {most} steps"
        raise _SchemaRefusedError(SchemaProblem("expensive_schema", message))


def value_problems(schema: Any, value: Any) -> list[str]:
    """The problems of a value, each with its place.

    A schema that was stored before the rules became stricter may be refused now. Then the problem
    is that of the schema, for any value.
    """
    if schema is None or schema is True:
        return []
    try:
        validator, checks = _validator(msgspec.json.encode(schema))
        _refuse_work(checks, value)
    except _SchemaRefusedError as refused:
        return [f"schema: {refused.problem.code}: {refused.problem.message}"]
    errors = validator.iter_errors(value)
    problems = []
    for error in errors:
        place = "".join(
            f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path
        )
        problems.append(f"{place.lstrip('.') or 'value'}: {error.message}")
        if len(problems) == MOST_PROBLEMS:
            break
    return problems
