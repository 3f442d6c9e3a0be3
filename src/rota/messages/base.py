"""What all messages have in common: requests refuse what they do not know, answers may grow."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Raw, Struct

from rota.core import limits

Fence = Annotated[int, Meta(ge=0, le=2**53)]
Incarnation = Annotated[int, Meta(ge=0, le=2**53)]
WaitMs = Annotated[int, Meta(ge=0, le=limits.MAX_WAIT_MS)]
IdText = Annotated[str, Meta(max_length=limits.MAX_NAME_LENGTH)]

# A JSON value kept as it came; None when the field was left out, and `null` when it said so.
if TYPE_CHECKING:
    Value = Raw | None
else:
    Value = Raw  # of `Raw | None` the decoder would take nothing but null


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what clients send."""


class NoFields(Request, frozen=True, kw_only=True):
    """A body that says nothing: an empty object, null, or no body at all."""


class Answer(Struct, frozen=True, kw_only=True):
    """Base of what the coordinator answers."""
