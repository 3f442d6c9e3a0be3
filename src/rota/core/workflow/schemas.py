"""Does a value fit its JSON Schema? And is the schema one at all?"""

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

MOST_PROBLEMS = 10


@lru_cache(maxsize=1_024)
def _validator(schema: bytes) -> Any:
    return jsonschema_rs.validator_for(msgspec.json.decode(schema))


def schema_problem(schema: Any) -> str | None:
    """Why this is no schema; None when it is one."""
    try:
        jsonschema_rs.meta.validate(schema)
        _validator(msgspec.json.encode(schema))
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return str(error).split("\n", 1)[0]
    return None


def value_problems(schema: Any, value: Any) -> list[str]:
    """What is wrong with a value, each with the place; empty when nothing is."""
    if schema is None or schema is True:
        return []
    errors = _validator(msgspec.json.encode(schema)).iter_errors(value)
    found = []
    for error in errors:
        place = "".join(
            f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path
        )
        found.append(f"{place.lstrip('.') or 'value'}: {error.message}")
        if len(found) == MOST_PROBLEMS:
            break
    return found
