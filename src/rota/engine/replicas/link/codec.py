"""The encoding of frames: one codec for each end of a connection, of the follower and the leader.

A message is a MessagePack array of frames. A frame is an array that begins with its tag. Commands
and replies lie in their frames as byte strings of their own, so one that cannot be decoded is
refused by its number and leaves the rest of the message intact.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeVar, assert_never

import msgspec
from msgspec import Meta, Struct

from rota.core import limits
from rota.core.commands import SubmitTasks, decode_command, encode_command
from rota.core.replies import Submitted
from rota.core.tasks.model import NewTask
from rota.engine.replicas.link.errors import decode_hook, encode_hook
from rota.engine.replicas.link.frames import (
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    LeaderFrame,
    Refused,
    Replied,
    Resigned,
    Resigning,
)
from rota.engine.replicas.link.replies import (
    REPLY_TAGS,
    CompactSubmitted,
    compact,
    decode_reply,
    encode_reply,
    expand,
)
from rota.errors import Internal, RotaError, TooLarge

MAX_FRAMES = 65_535  # in one message: what the header of a short array can count
ARRAY_16 = b"\xdc"  # begins an array of MessagePack with up to that many items
HEADER_BYTES = 3  # of that array
MAX_MESSAGE_BYTES = 2 * limits.MAX_ARTIFACT_ROW_BYTES  # so that the largest artifact fits

UNREADABLE = (ValueError, RecursionError)  # of bytes: not MessagePack, not UTF-8, or too deep

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Sent_contra = TypeVar("Sent_contra", contravariant=True)
Received_co = TypeVar("Received_co", covariant=True)


class FrameCodec(Protocol[Sent_contra, Received_co]):
    """One end of a connection: encodes what it sends, decodes what it receives."""

    def encode(self, frame: Sent_contra) -> bytes | None:
        """Encode a frame; None: its receiver does not want it any more.

        Raises `TooLarge` for a frame that no message can carry.
        """
        ...

    def decode(self, message: bytes) -> tuple[Sequence[Received_co], Sequence[bytes]]:
        """Decode a message into its frames, and the encoded frames that answer it at once.

        Raises `GarbledMessage` for a message that is not one.
        """
        ...


class GarbledMessage(Exception):  # noqa: N818
    """Bytes that are not a message of frames."""


class _Decoder(Protocol[T_co]):
    def decode(self, message: bytes, /) -> T_co: ...


def join_frames(frames: Sequence[bytes]) -> bytes:
    """Make a message of up to `MAX_FRAMES` encoded frames."""
    return b"".join((ARRAY_16, len(frames).to_bytes(2), *frames))


def _checked(encoded: bytes, most_bytes: int) -> bytes:
    if len(encoded) > most_bytes - HEADER_BYTES:
        text = f"{len(encoded)} bytes for another coordinator, over the limit of {most_bytes}"
        raise TooLarge(text, limit=most_bytes)
    return encoded


# --- frames that carry a command or a reply -----------------------------------------------------


class PackedForward(Struct, frozen=True, array_like=True, tag="f"):
    number: int
    command: bytes
    can_wait: bool = False
    is_subscription: bool = False


class PackedReply(Struct, frozen=True, array_like=True, tag="r"):
    number: int
    tag: str
    body: bytes


_FromFollower = PackedForward | Abandon | Resigned
_FromLeader = PackedReply | Refused | Committed | Resigning
_follower_frames: "msgspec.msgpack.Decoder[list[_FromFollower]]" = msgspec.msgpack.Decoder(
    Annotated[list[_FromFollower], Meta(max_length=MAX_FRAMES)]
)
_leader_frames: "msgspec.msgpack.Decoder[list[_FromLeader]]" = msgspec.msgpack.Decoder(
    Annotated[list[_FromLeader], Meta(max_length=MAX_FRAMES)], dec_hook=decode_hook
)
_encode = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode


def _decoded(message: bytes, decoder: _Decoder[T]) -> T:
    try:
        return decoder.decode(message)
    except UNREADABLE as error:
        raise GarbledMessage(str(error)) from error


class FollowerCodec:
    """The end of a follower."""

    def __init__(self, most_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._submissions: dict[int, list[NewTask]] = {}  # without a reply yet, by number

    def encode(self, frame: FollowerFrame) -> bytes:
        if isinstance(frame, Forward):  # nearly always
            command, number = frame.command, frame.number
            packed = PackedForward(
                number, encode_command(command), frame.can_wait, frame.is_subscription
            )
            encoded = _checked(_encode(packed), self._most_bytes)
            if type(command) is SubmitTasks:
                self._submissions[number] = command.tasks
            return encoded
        match frame:
            case Abandon():
                self._submissions.pop(frame.number, None)
            case Resigned():
                pass
            case _:
                assert_never(frame)
        return _checked(_encode(frame), self._most_bytes)

    def decode(self, message: bytes) -> tuple[list[LeaderFrame], list[bytes]]:
        frames: list[LeaderFrame] = []
        for packed in _decoded(message, _leader_frames):
            if isinstance(packed, PackedReply):  # nearly always
                frame = self._reply(packed)
                if frame is not None:
                    frames.append(frame)
                continue
            match packed:
                case Refused():
                    self._submissions.pop(packed.number, None)
                    frames.append(packed)
                case Committed() | Resigning():
                    frames.append(packed)
                case _:
                    assert_never(packed)
        return frames, []

    def _reply(self, packed: PackedReply) -> Replied | Refused | None:
        """The reply, or the reason why it has none; None: its command was abandoned meanwhile."""
        number = packed.number
        tasks = self._submissions.pop(number, None)
        try:
            reply = decode_reply(packed.tag, packed.body)
            if isinstance(reply, CompactSubmitted):
                return None if tasks is None else Replied(number, expand(reply, tasks))
        except (KeyError, *UNREADABLE):
            # The command has been executed.
            text = f"the leading coordinator sent a reply that cannot be read ({packed.tag!r})"
            return Refused(number, Internal(text))
        return Replied(number, reply)


class LeaderCodec:
    """The end of the leader, for one follower."""

    def __init__(self, most_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._submissions: dict[int, list[NewTask]] = {}  # without a reply yet, by number

    def encode(self, frame: LeaderFrame) -> bytes | None:
        if isinstance(frame, Replied):  # nearly always
            return self._encode_reply(frame)
        match frame:
            case Refused():
                self._submissions.pop(frame.number, None)
            case Committed() | Resigning():
                pass
            case _:
                assert_never(frame)
        return _checked(_encode(frame), self._most_bytes)

    def _encode_reply(self, frame: Replied) -> bytes | None:
        reply: Any = frame.reply
        if type(reply) is Submitted:
            tasks = self._submissions.pop(frame.number, None)
            if tasks is None:
                return None  # the command was abandoned
            reply = compact(reply, tasks)
        elif self._submissions:
            self._submissions.pop(frame.number, None)
        packed = PackedReply(frame.number, REPLY_TAGS[type(reply)], encode_reply(reply))
        return _checked(_encode(packed), self._most_bytes)

    def decode(self, message: bytes) -> tuple[list[FollowerFrame], list[bytes]]:
        frames: list[FollowerFrame] = []
        refusals: list[bytes] = []
        for packed in _decoded(message, _follower_frames):
            if isinstance(packed, PackedForward):  # nearly always
                try:
                    frames.append(self._forward(packed))
                except RotaError as error:
                    refusals.append(_encode(Refused(packed.number, error)))
                continue
            match packed:
                case Abandon():
                    self._submissions.pop(packed.number, None)
                    frames.append(packed)
                case Resigned():
                    frames.append(packed)
                case _:
                    assert_never(packed)
        return frames, refusals

    def _forward(self, packed: PackedForward) -> Forward:
        command = decode_command(packed.command)
        if type(command) is SubmitTasks:
            self._submissions[packed.number] = command.tasks
        return Forward(packed.number, command, packed.can_wait, packed.is_subscription)
