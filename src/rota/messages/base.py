"""The bases of all messages: requests refuse unknown fields, answers may get more fields."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Raw, Struct

from rota.core import limits

Fence = Annotated[int, Meta(ge=0, le=2**53)]
Incarnation = Annotated[int, Meta(ge=0, le=2**53)]
WaitMs = Annotated[int, Meta(ge=0, le=limits.MAX_WAIT_MS)]
IdText = Annotated[str, Meta(max_length=limits.MAX_NAME_LENGTH)]

# A JSON value in its original bytes; None when the field was left out, `null` when it was given.
if TYPE_CHECKING:
    Value = Raw | None
else:
    Value = Raw  # of `Raw | None` the decoder would take nothing but null


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of requests."""


class NoFields(Request, frozen=True, kw_only=True):
    """An empty body: an empty object, null, or no body."""


class Answer(Struct, frozen=True, kw_only=True):
    """Base of answers."""
