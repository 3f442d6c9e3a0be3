"""Errors between coordinators: they arrive as the class that was raised, with all they carry."""

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from rota import errors
from rota.errors import Internal, Overloaded, RotaError, Unavailable


class PackedError(Struct, frozen=True, array_like=True):
    """An error on its way; a newer coordinator may have codes that this one lacks."""

    code: str
    status: int
    detail: str
    facts: str = "{}"  # JSON, which has numbers that MessagePack lacks


def as_rota_error(error: BaseException) -> RotaError:
    """The error as another coordinator may see it: a failure of our own without its text."""
    if isinstance(error, RotaError):
        return error
    return Internal("an internal error; the leading coordinator's log has the reason")


def pack_error(error: BaseException) -> PackedError:
    shown = as_rota_error(error)
    facts = msgspec.json.encode(shown.facts, enc_hook=str).decode()
    return PackedError(shown.code, shown.status, shown.detail, facts)


def unpack_error(packed: PackedError) -> RotaError:
    """The error under its class; a code that is not known here becomes a plain `RotaError`."""
    kind = _by_code().get(packed.code) or _unknown_kind(packed.code, packed.status)
    # The classes build their texts from their facts; here the text is known already.
    error = kind.__new__(kind)
    RotaError.__init__(error, packed.detail)
    error.facts = msgspec.json.decode(packed.facts, type=dict[str, Any])
    if isinstance(error, Overloaded | Unavailable):
        error.retry_after_s = error.facts.get("retry_after_s", 1)
    return error


def _unknown_kind(code: str, status: int) -> type[RotaError]:
    return type("RotaError", (RotaError,), {"code": code, "status": status})


@cache
def _by_code() -> dict[str, type[RotaError]]:
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RotaError)
    }


# --- hooks of the encoders ----------------------------------------------------------------------


def encode_hook(value: object) -> PackedError:
    """Encode an error wherever a frame or a reply has one."""
    if isinstance(value, BaseException):
        return pack_error(value)
    raise NotImplementedError(f"{type(value).__name__} is not sent between coordinators")


def decode_hook(kind: type, value: object) -> RotaError:
    """Decode an error where the type of a frame or a reply has one."""
    if kind is RotaError:
        return unpack_error(msgspec.convert(value, PackedError))
    raise NotImplementedError(f"{kind.__name__} is not sent between coordinators")
