"""Decodes a peer's message into a command.

Nearly all messages are heartbeats, and nearly all of a heartbeat is a list of shards that is the
same as in the one before. So the decoded lists are cached by their bytes.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.core.shards.commands import BeatMember, LeaveMember, MemberCommand, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL
from rota.errors import Invalid, Malformed
from rota.messages.shards import (
    HeartbeatData,
    Leave,
    MemberMessage,
    Register,
    Shards,
    heartbeat_command,
    leave_command,
    register_command,
)

MAX_CACHED_BYTES = 4 * 1024 * 1024  # of encoded lists

_DECODER: msgspec.json.Decoder[MemberMessage] = msgspec.json.Decoder(MemberMessage)
_SHARDS_DECODER: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(Shards)


class _QuickData(HeartbeatData, frozen=True, kw_only=True, rename="camel"):
    assigned_shards: Raw  # type: ignore[assignment]  # read later, or not at all


class _QuickHeartbeat(Struct, frozen=True, tag_field="type", tag="heartbeat"):
    data: _QuickData


_QUICK_DECODER = msgspec.json.Decoder(Register | _QuickHeartbeat | Leave)


class _ProtocolData(Struct):
    protocol: Any = None
    incarnation: Any = None


class _ProtocolProbe(Struct):
    data: _ProtocolData


_PROBE_DECODER = msgspec.json.Decoder(_ProtocolProbe)
_KINDS: dict[type[MemberCommand], str] = {
    BeatMember: "heartbeat",
    RegisterMember: "register",
    LeaveMember: "leave",
}


class MessageDecoder:
    def __init__(self) -> None:
        self._shard_lists: dict[bytes, tuple[int, ...]] = {}  # by their bytes
        self._cached_bytes = 0

    def decode(self, body: bytes) -> MemberCommand:
        """The command of a message; raises `Invalid` or `Malformed` when there is none."""
        try:
            message = _QUICK_DECODER.decode(body)
            if isinstance(message, _QuickHeartbeat):
                data = message.data
                return heartbeat_command(data, self._shards(data.assigned_shards))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            message = read(body)  # raises with the place of the error
        match message:
            case Register():
                return register_command(message.data)
            case Leave():
                return leave_command(message.data)
            case _:
                raise AssertionError(f"{type(message).__name__} could be read after all")

    def _shards(self, encoded: Raw) -> tuple[int, ...]:
        text = bytes(encoded)
        known = self._shard_lists.get(text)
        if known is None:
            known = tuple(_SHARDS_DECODER.decode(text))
            self._cached_bytes += len(text)
            if self._cached_bytes > MAX_CACHED_BYTES:
                self._shard_lists.clear()
                self._cached_bytes = len(text)
            self._shard_lists[text] = known
        return known


def read(body: bytes) -> MemberMessage:
    """Decode a whole message, or raise what is wrong with it."""
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


def kind_of(command: MemberCommand) -> str:
    """The type of a command's message on the wire."""
    return _KINDS[type(command)]


def is_newer_than_old(command: MemberCommand) -> bool:
    """Whether the sender of a command understands more than bare assignments."""
    if isinstance(command, LeaveMember):
        return command.incarnation is not None
    return command.protocol > OLD_PROTOCOL


def seems_newer(body: bytes) -> bool:
    """Whether the sender of an unreadable message understands more than bare assignments."""
    try:
        data = _PROBE_DECODER.decode(body).data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    is_number = isinstance(data.protocol, int | float)
    return data.incarnation is not None or (is_number and data.protocol > OLD_PROTOCOL)
