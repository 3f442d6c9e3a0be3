"""The transport of the member protocol, one connection per incarnation.

A transport may lose messages, and may deliver assignments late or twice; the member repeats its
messages. It never delivers an assignment of an earlier incarnation, because it was not open then.
"""

from collections.abc import Callable
from typing import Protocol

from rota.core.shards.commands import BeatMember, MemberCommand, RegisterMember
from rota.core.shards.members import PROTOCOL, Assignment
from rota.errors import RotaError, Unavailable
from rota.messages.shards import AssignmentData

LEAVE_TIMEOUT_S = 1.0  # how long closing waits for the last message to be sent


class ShardTransport(Protocol):
    def send(self, message: MemberCommand) -> None:
        """Send a message, without waiting."""

    async def close(self) -> None:
        """Close; after a `LeaveMember`, wait briefly for it to be sent."""


class AssignmentListener(Protocol):
    """The member's end of a transport."""

    def receive(self, data: AssignmentData) -> None: ...

    def note_error(self, error: RotaError) -> None:
        """A message was refused, or got no answer."""

    def repeated_beat(self) -> BeatMember | None:
        """The current state under the number of the last message; None: there is none.

        The coordinator takes it for that message, arrived twice: it asks, and changes nothing.
        """


OpenTransport = Callable[[AssignmentListener], ShardTransport]


def assignment_of(data: AssignmentData, registration: RegisterMember) -> Assignment:
    if len(data.shard_epochs) != len(data.assigned_shards):
        raise Unavailable("an assignment came without an epoch for each of its shards")
    return Assignment(
        service=registration.service,
        worker_id=registration.worker_id,
        incarnation=registration.incarnation,
        protocol=PROTOCOL,
        shards=data.assigned_shards,
        epochs=data.shard_epochs,
        revoking=data.revoking,
        generation=data.generation,
        lease_ms=data.lease_ttl_ms,
        heartbeat_interval_ms=data.heartbeat_interval_ms,
        seq=data.seq,
        status=data.status,
        reason=data.reason,
    )
