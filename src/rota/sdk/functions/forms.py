"""Forms of approvals: the JSON Schema of a type, and its value from an answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.errors import Invalid
from rota.sdk.encoding import decoder_of, encode

APPROVED = "approved"  # the field of an answer that says yes or no


def schema_of(form: Any) -> dict[str, Any] | None:
    """The JSON Schema of a form: a struct, a dataclass, a model of pydantic, or a schema."""
    if form is None:
        return None
    if isinstance(form, Mapping):
        return dict(form)
    of_model = getattr(form, "model_json_schema", None)
    if of_model is not None:
        found: dict[str, Any] = of_model()
        return found
    try:
        return _inlined(msgspec.json.schema(form))
    except TypeError as error:
        raise Invalid(f"a form is a type with fields: {error}") from None


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type without the reference to itself, as a form shows it."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return schema
    others = {other: one for other, one in definitions.items() if other != name}
    return {**definitions[name], **({"$defs": others} if others else {})}


def answer_of(form: Any, payload: Any) -> Any:
    """The value of an answer: of the form's type, or as it was sent."""
    if form is None or isinstance(form, Mapping):
        return payload
    fields = payload if isinstance(payload, Mapping) else {}
    content = encode({name: value for name, value in fields.items() if name != APPROVED})
    return decoder_of(form).decode(content)
