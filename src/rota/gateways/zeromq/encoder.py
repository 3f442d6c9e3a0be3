"""Encodes assignments into the bytes of the wire.

Nearly every answer to a member equals the one before but for its sequence number. So the last
message of each member is cached, and only the number is replaced.
"""

import msgspec

from rota.core.shards.members import PROTOCOL, Assignment
from rota.messages.shards import AssignmentMessage, ErrorData, ErrorMessage, assignment_data

MAX_CACHED_BYTES = 16 * 1024 * 1024

_ENCODER = msgspec.json.Encoder()
_NO_NUMBER = b'"seq":null'


class EncodedAssignment:
    """The last assignment of a member, and its bytes."""

    __slots__ = ("_assignment", "_before", "_behind", "length", "whole")

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        bare = msgspec.structs.replace(assignment, seq=None)
        self.whole = _ENCODER.encode(AssignmentMessage(assignment_data(bare)))
        self.length = len(self.whole)
        self._before, found, self._behind = self.whole.partition(_NO_NUMBER)
        assert found or assignment.protocol < PROTOCOL

    def is_same(self, other: Assignment) -> bool:
        """Whether another assignment is the same but for its number."""
        one = self._assignment
        return (
            # The same lists are the same objects, as long as nothing about them has changed.
            one.shards is other.shards
            and one.epochs is other.epochs
            and one.generation == other.generation
            and one.revoking == other.revoking
            and one.status == other.status
            and one.reason == other.reason
            and one.protocol == other.protocol
            and one.lease_ms == other.lease_ms
            and one.heartbeat_interval_ms == other.heartbeat_interval_ms
        )

    def with_seq(self, seq: int | None) -> bytes:
        """The message with this sequence number; None: it answers no message."""
        if seq is None or not self._behind:
            return self.whole
        return b'%b"seq":%d%b' % (self._before, seq, self._behind)


class AssignmentEncoder:
    def __init__(self) -> None:
        self._last: dict[tuple[str, str], EncodedAssignment] = {}  # by service and worker
        self._cached_bytes = 0

    def __len__(self) -> int:
        return len(self._last)

    def encode(self, assignment: Assignment) -> bytes:
        key = assignment.service, assignment.worker_id
        encoded = self._last.get(key)
        if encoded is None or not encoded.is_same(assignment):
            if encoded is not None:
                self._cached_bytes -= encoded.length
            encoded = EncodedAssignment(assignment)
            self._cached_bytes += encoded.length
            if self._cached_bytes > MAX_CACHED_BYTES:
                self._last.clear()
                self._cached_bytes = encoded.length
            self._last[key] = encoded
        return encoded.with_seq(assignment.seq)


def error_message(code: str, detail: str) -> bytes:
    return _ENCODER.encode(ErrorMessage(ErrorData(code, detail)))
