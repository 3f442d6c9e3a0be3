"""How do Python values become JSON and come back?

By msgspec: builtin types, dataclasses, Structs, enums, dates, UUIDs, Decimals and their like.
Beside them paths, and models that validate and dump themselves in pydantic's manner.
"""

from pathlib import PurePath
from typing import Any

import msgspec


def _written(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"a value of type {type(value).__qualname__!r} cannot be written as JSON")


def _read(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    return value  # msgspec goes on to check that this is of the kind asked for


encode = msgspec.json.Encoder(enc_hook=_written).encode


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for an annotation, or for anything at all where msgspec cannot follow it."""
    try:
        return msgspec.json.Decoder(kind, dec_hook=_read)
    except TypeError:
        return msgspec.json.Decoder()


def can_decode(kind: Any) -> bool:
    try:
        msgspec.json.Decoder(kind, dec_hook=_read)
    except TypeError:
        return False
    return True
