"""The leadership of a store that several coordinators share.

One coordinator is the leader, and only its handle of the store writes. Each leader has an epoch,
which the database checks in every write: a transaction of an earlier epoch cannot commit. So a
takeover is safe at any moment, and the lease only decides when one is due. All times are those of
the database.
"""

from typing import Protocol

from msgspec import Struct

from rota.core.replicas import Leader


class LeadershipView(Struct, frozen=True, kw_only=True):
    leader: Leader | None  # None: there was none yet, the epoch is 0
    now_ms: int  # the time of the database


class Elections(Protocol):
    """The election of the leader, and the epoch under which this handle of the store writes.

    Every call raises `Unavailable` when the database cannot be used. Any thread may call.
    """

    @property
    def epoch(self) -> int | None:
        """The epoch under which this handle writes; None: it does not lead."""
        ...

    def look(self) -> LeadershipView: ...

    def take_over(self, name: str, address: str, *, seen_epoch: int, lease_ms: int) -> int | None:
        """Become the leader; returns the new epoch.

        None: the leader lives, another coordinator was first, or the writes of the old leader did
        not end in time. A write of the old leader that is under way is waited for, and ended when
        it takes too long.
        """
        ...

    def renew(self, *, lease_ms: int) -> int | None:
        """Extend the lease; returns the time of the database. None: this handle does not lead."""
        ...

    def resign(self) -> None:
        """End the lease now, so that another coordinator can take over at once."""
        ...

    def secret(self) -> bytes:
        """Return the secret by which the coordinators of this store know each other."""
        ...
