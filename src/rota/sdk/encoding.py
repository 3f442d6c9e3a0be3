"""Encodes Python values as JSON and decodes them.

msgspec handles builtin types, dataclasses, Structs, enums, dates, UUIDs and Decimals. The hooks
here add paths, and models with pydantic's `model_dump` and `model_validate`.
"""

from pathlib import PurePath
from typing import Any

import msgspec


def _encode_other(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"a value of type {type(value).__qualname__!r} cannot be written as JSON")


def _decode_other(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    return value  # msgspec checks its type


encode = msgspec.json.Encoder(enc_hook=_encode_other).encode


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for an annotation, or for any JSON where msgspec does not support it."""
    try:
        return msgspec.json.Decoder(kind, dec_hook=_decode_other)
    except TypeError:
        return msgspec.json.Decoder()


def can_decode(kind: Any) -> bool:
    try:
        msgspec.json.Decoder(kind, dec_hook=_decode_other)
    except TypeError:
        return False
    return True
