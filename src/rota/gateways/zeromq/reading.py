"""What did a peer say? A body in, an event out, or the reason why not.

Nearly all that is said are beats, and nearly all of a beat is a list of shards that is the same as
in the beat before. So a list is looked for among those that were read lately, as it is written.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.core.shards.events import BeatMember, LeaveMember, MemberEvent, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL
from rota.errors import Invalid, Malformed
from rota.messages.shards import (
    HeartbeatData,
    Leave,
    MemberMessage,
    Register,
    Shards,
    beat_event,
    leave_event,
    register_event,
)

MOST_REMEMBERED_BYTES = 4 * 1024 * 1024  # of lists as they are written

_DECODER: msgspec.json.Decoder[MemberMessage] = msgspec.json.Decoder(MemberMessage)
_SHARDS_DECODER: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(Shards)


class _QuickData(HeartbeatData, frozen=True, kw_only=True, rename="camel"):
    assigned_shards: Raw  # type: ignore[assignment]  # read later, or not at all


class _QuickHeartbeat(Struct, frozen=True, tag_field="type", tag="heartbeat"):
    data: _QuickData


_QUICK_DECODER = msgspec.json.Decoder(Register | _QuickHeartbeat | Leave)


class _HintData(Struct):
    protocol: Any = None
    incarnation: Any = None


class _Hint(Struct):
    data: _HintData


_HINT_DECODER = msgspec.json.Decoder(_Hint)
_KINDS: dict[type[MemberEvent], str] = {
    BeatMember: "heartbeat",
    RegisterMember: "register",
    LeaveMember: "leave",
}


class Reader:
    def __init__(self) -> None:
        self._lists: dict[bytes, tuple[int, ...]] = {}  # by how they are written
        self._length = 0

    def event_of(self, body: bytes) -> MemberEvent:
        """Give what a body says; raises when it says nothing that we understand."""
        try:
            message = _QUICK_DECODER.decode(body)
            if isinstance(message, _QuickHeartbeat):
                data = message.data
                return beat_event(data, self._shards(data.assigned_shards))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            message = read(body)  # which says what is wrong, and where
        match message:
            case Register():
                return register_event(message.data)
            case Leave():
                return leave_event(message.data)
            case _:
                raise AssertionError(f"{type(message).__name__} could be read after all")

    def _shards(self, written: Raw) -> tuple[int, ...]:
        text = bytes(written)
        known = self._lists.get(text)
        if known is None:
            known = tuple(_SHARDS_DECODER.decode(text))
            self._length += len(text)
            if self._length > MOST_REMEMBERED_BYTES:
                self._lists.clear()
                self._length = len(text)
            self._lists[text] = known
        return known


def read(body: bytes) -> MemberMessage:
    """Read a message as a whole, with all that may be wrong with it."""
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


def kind_of(event: MemberEvent) -> str:
    """The type of the message that an event was, as it stands on the wire."""
    return _KINDS[type(event)]


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
