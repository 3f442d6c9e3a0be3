"""How is a member told what it has, in the bytes of the wire?

Nearly every answer says what the one before it said to the same member, under another number. So
what was written for a member last is kept, and only the number is put in anew.
"""

import msgspec

from rota.core.shards.members import PROTOCOL, Assignment
from rota.messages.shards import AssignmentMessage, ErrorData, ErrorMessage, assignment_data

MOST_REMEMBERED_BYTES = 16 * 1024 * 1024

_ENCODER = msgspec.json.Encoder()
_NO_NUMBER = b'"seq":null'


class Wording:
    """What a member was last told, and how it was written."""

    __slots__ = ("_assignment", "_before", "_behind", "length", "whole")

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        bare = msgspec.structs.replace(assignment, seq=None)
        self.whole = _ENCODER.encode(AssignmentMessage(assignment_data(bare)))
        self.length = len(self.whole)
        self._before, found, self._behind = self.whole.partition(_NO_NUMBER)
        assert found or assignment.protocol < PROTOCOL

    def says(self, other: Assignment) -> bool:
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

    def under(self, seq: int | None) -> bytes:
        """The message that answers this number; None: it answers none."""
        if seq is None or not self._behind:
            return self.whole
        return b'%b"seq":%d%b' % (self._before, seq, self._behind)


class Words:
    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Wording] = {}  # by service and worker
        self._length = 0

    def __len__(self) -> int:
        return len(self._last)

    def telling(self, assignment: Assignment) -> bytes:
        key = assignment.service, assignment.worker_id
        wording = self._last.get(key)
        if wording is None or not wording.says(assignment):
            if wording is not None:
                self._length -= wording.length
            wording = Wording(assignment)
            self._length += wording.length
            if self._length > MOST_REMEMBERED_BYTES:
                self._last.clear()
                self._length = wording.length
            self._last[key] = wording
        return wording.under(assignment.seq)


def complaint(code: str, detail: str) -> bytes:
    return _ENCODER.encode(ErrorMessage(ErrorData(code, detail)))
