"""What did a peer say? A body in, an event out, or the reason why not."""

from typing import Any, assert_never

import msgspec
from msgspec import Struct

from rota.core.shards.events import LeaveMember, MemberEvent
from rota.core.shards.members import OLD_PROTOCOL
from rota.errors import Invalid, Malformed
from rota.messages.shards import (
    Heartbeat,
    Leave,
    MemberMessage,
    Register,
    beat_event,
    leave_event,
    register_event,
)

_DECODER: msgspec.json.Decoder[MemberMessage] = msgspec.json.Decoder(MemberMessage)


class _HintData(Struct):
    protocol: Any = None
    incarnation: Any = None


class _Hint(Struct):
    data: _HintData


_HINT_DECODER = msgspec.json.Decoder(_Hint)


def read(body: bytes) -> MemberMessage:
    """Give what a body says; raises when it says nothing that we understand."""
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise Malformed(str(error)) from None
    except UnicodeError:
        raise Malformed("the message is not valid UTF-8") from None
    except RecursionError:
        raise Malformed("the message is nested too deeply") from None


def event_of(message: MemberMessage) -> MemberEvent:
    match message:
        case Heartbeat():
            return beat_event(message.data)
        case Register():
            return register_event(message.data)
        case Leave():
            return leave_event(message.data)
        case _:
            assert_never(message)


def kind_of(message: MemberMessage) -> str:
    """The type of a message, as it stands on the wire."""
    return str(type(message).__struct_config__.tag)


def is_newer_than_old(event: MemberEvent) -> bool:
    """Whether whoever says this understands more than bare assignments."""
    if isinstance(event, LeaveMember):
        return event.incarnation is not None
    return event.protocol > OLD_PROTOCOL


def hints_at_newer(body: bytes) -> bool:
    """The same of something that we could not read as a whole."""
    try:
        data = _HINT_DECODER.decode(body).data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    is_number = isinstance(data.protocol, int | float)
    return data.incarnation is not None or (is_number and data.protocol > OLD_PROTOCOL)
