"""The frames between a follower and the leader, and the connection that carries them.

A follower numbers its commands from one counter, for each connection. Every `Forward` is answered
by one `Replied` or `Refused` of the same number. Every commit of the leader is followed by one
`Committed`.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from rota.core.commands import Command
from rota.core.decisions import TellCancelled
from rota.core.locks import LockAnswer
from rota.core.shards.members import Assignment
from rota.engine.replicas.link.replies import CommandReply
from rota.errors import RotaError

# --- from a follower to the leader --------------------------------------------------------------


class Forward(Struct, frozen=True):
    """Execute a command."""

    number: int
    command: Command
    can_wait: bool = False  # a lease call that may wait for work
    is_subscription: bool = False  # of a streaming worker: reply with the rows of its messages


# The frames below travel as arrays of their fields, behind their tags: add new fields at the end.
class Abandon(Struct, frozen=True, array_like=True, tag="a"):
    """The caller of a command has stopped waiting for its reply."""

    number: int


class Resigned(Struct, frozen=True, array_like=True, tag="k"):
    """The follower knows that the leader resigns, and forwards nothing more."""


FollowerFrame = Forward | Abandon | Resigned

# --- from the leader to a follower --------------------------------------------------------------


class Replied(Struct, frozen=True):
    number: int
    reply: CommandReply


class Refused(Struct, frozen=True, array_like=True, tag="x"):
    """The error that a command was answered with."""

    number: int
    error: RotaError


NO_IDS = Raw(msgspec.msgpack.encode([]))
encode_ids = msgspec.msgpack.Encoder().encode
_decode_ids = msgspec.msgpack.Decoder(list[int]).decode


def decode_ids(encoded: Raw) -> list[int]:
    return _decode_ids(encoded)


class Committed(Struct, frozen=True, kw_only=True, array_like=True, tag="c"):
    """The notifications of one commit.

    A commit may end thousands of tasks, and most followers have no caller that waits for one of
    them. So the list is encoded once for all followers, and decoded where it is needed.
    """

    now_ms: int
    last_seq: int  # of the event log
    ended: Raw = NO_IDS  # a list of the tasks and runs
    pushes: list[Assignment] = []
    sessions: list[str] = []  # sessions with new notifications
    cancelled: list[TellCancelled] = []
    granted_locks: list[LockAnswer] = []  # to waiting callers
    submitted: dict[str, int] = {}  # tasks by queue
    finished: list[tuple[str, str, int]] = []  # queue, state, and how many tasks
    logged: list[int] = []  # tasks with new log lines


class Resigning(Struct, frozen=True, array_like=True, tag="z"):
    """The leader takes no more commands: another coordinator is to take over."""


LeaderFrame = Replied | Refused | Committed | Resigning

# --- the connection -----------------------------------------------------------------------------

Sent_contra = TypeVar("Sent_contra", contravariant=True)
OnFollowerFrame = Callable[[FollowerFrame], None]
OnLeaderFrame = Callable[[LeaderFrame], None]
# Called once, after the last frame; None: one of the ends has closed the connection in good order.
OnLost = Callable[[Exception | None], None]


class PeerConnection(Protocol[Sent_contra]):
    """One end of a connection between two coordinators. Belongs to the event loop."""

    @property
    def backlog(self) -> int:
        """The bytes that have not left this process yet."""
        ...

    def send(self, frame: Sent_contra) -> None:
        """Send a frame, in order; a lost connection drops it.

        Raises `TooLarge` for a frame over the limit of a message, and then nothing is sent.
        """
        ...

    def close(self) -> None:
        """Send what waits, then close the connection."""
        ...
