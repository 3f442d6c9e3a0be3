"""Quotas: how much is stored, in all and by owner, and what is refused.

The owner of a row is the token that stored it. One owner has at most its share of a bound, so that
some is always left for the others; the last part of a bound is for operators. A row without an
owner is older than owners: it counts for the total alone.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from rota.core.access import Caller
from rota.core.limits import LEFT_PART, OPERATOR_PART
from rota.errors import TooMany

LOCAL_OWNER = "local"  # of what callers without a token store


class Amount(NamedTuple):
    """A number of rows, and of the bytes in them."""

    rows: int = 0
    size: int = 0


NOTHING = Amount()


class Usage(Struct, kw_only=True):
    """The stored amounts. A batch changes a copy, which replaces this when it is committed."""

    total: Amount = NOTHING
    owners: dict[str, Amount] = {}
    read_at_ms: int = 0  # when it was last counted in the store

    @classmethod
    def counted(cls, sums: Mapping[str | None, Amount], *, now_ms: int) -> "Usage":
        """The usage by the sums of each owner; None is the sum of rows without an owner."""
        total = Amount(
            sum(one.rows for one in sums.values()), sum(one.size for one in sums.values())
        )
        owners = {owner: amount for owner, amount in sums.items() if owner is not None}
        return cls(total=total, owners=owners, read_at_ms=now_ms)

    def copy(self) -> "Usage":
        return Usage(total=self.total, owners=dict(self.owners), read_at_ms=self.read_at_ms)

    def of(self, owner: str | None) -> Amount:
        return NOTHING if owner is None else self.owners.get(owner, NOTHING)

    def add(self, owner: str | None, count: int, size: int) -> None:
        """Count more of an owner, or less with negative numbers."""
        self.total = Amount(self.total.rows + count, self.total.size + size)
        if owner is None:
            return
        held = self.of(owner)
        if held.rows + count > 0:
            self.owners[owner] = Amount(held.rows + count, held.size + size)
        else:
            self.owners.pop(owner, None)


class Bound(NamedTuple):
    """A limit on what is stored, by the name of its setting."""

    setting: str
    whole: int

    @property
    def share(self) -> int:
        """The part of the bound that one owner may store."""
        return self.whole - self.whole // LEFT_PART

    def check(self, *, taken: int, more: int, by_operator: bool, advice: str) -> None:
        """Refuse what exceeds the bound of all owners together; what takes no more always fits.

        The error does not say how much the others have stored.
        """
        most = self.whole if by_operator else self.whole - self.whole // OPERATOR_PART
        if more > 0 and taken + more > most:
            raise TooMany(
                f"{self.setting} allows {most} in all, and this would exceed it; {advice}",
                limit=most,
                setting=self.setting,
            )

    def check_share(self, *, held: int, more: int, advice: str) -> None:
        """Refuse what exceeds the share of one owner; what takes no more always fits."""
        if more > 0 and held + more > self.share:
            raise TooMany(
                f"{self.setting} allows one token {self.share}, and this one has {held}; {advice}",
                limit=self.share,
                setting=self.setting,
            )


def owner_of_stored(caller: Caller) -> str:
    """The owner of what this caller stores."""
    return caller.token_id or LOCAL_OWNER


class ValuePolicy(Struct, frozen=True, kw_only=True):
    """How much is kept in all; one owner has a share of each bound."""

    max_values: int = 1_000_000
    max_values_bytes: int = 4 * 1024**3
