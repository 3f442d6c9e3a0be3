"""How does a worker talk with its coordinator about shards? Over a line, one an incarnation.

A line may lose what it is given, and what it brings may come late or twice; whoever uses it says
things again. It never brings what was meant for an earlier incarnation, since it was not open then.
"""

from collections.abc import Callable
from typing import Protocol

from rota.core.shards.events import BeatMember, MemberEvent, RegisterMember
from rota.core.shards.members import PROTOCOL, Assignment
from rota.errors import RotaError, Unavailable
from rota.messages.shards import AssignmentData

LAST_WORDS_S = 1.0  # what the last message gets to be on its way


class Line(Protocol):
    def send(self, message: MemberEvent) -> None:
        """Bring a message on its way, without waiting."""

    async def close(self) -> None:
        """End it. A worker that has said that it leaves gets a moment for its last words."""


class Hearer(Protocol):
    """Who is at the worker's end of a line."""

    def hear(self, told: AssignmentData) -> None: ...

    def note_trouble(self, error: RotaError) -> None:
        """A message was refused, or got no answer."""

    def beat_again(self) -> BeatMember | None:
        """What we would say now, under the number of the message we said last; None: nothing.

        Whoever hears it takes it for that message come twice: it asks, and changes nothing.
        """


OpenLine = Callable[[Hearer], Line]


def assignment_of(told: AssignmentData, applicant: RegisterMember) -> Assignment:
    if len(told.shard_epochs) != len(told.assigned_shards):
        raise Unavailable("an assignment came without an epoch for each of its shards")
    return Assignment(
        service=applicant.service,
        worker_id=applicant.worker_id,
        incarnation=applicant.incarnation,
        protocol=PROTOCOL,
        shards=told.assigned_shards,
        epochs=told.shard_epochs,
        revoking=told.revoking,
        generation=told.generation,
        lease_ms=told.lease_ttl_ms,
        heartbeat_interval_ms=told.heartbeat_interval_ms,
        seq=told.seq,
        status=told.status,
        reason=told.reason,
    )
