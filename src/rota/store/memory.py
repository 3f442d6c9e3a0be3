"""What programs keep with us, by key."""

from typing import NamedTuple

from rota.core import limits
from rota.core.memory import MemoryEntry
from rota.store.database import Row, Transaction

LAST_CHARACTER = "\U0010ffff"
WILD = "*?["
ANYTHING = "*"


class Wanted(NamedTuple):
    """Which keys are meant: those of a part of the index that match a pattern as a whole."""

    first: str
    end: str  # comes after the last one
    pattern: str


class Memories:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def one(self, key: str) -> MemoryEntry | None:
        """The value of a key, also one past its time."""
        for row in self._tx.rows("memory.one", key):
            return _entry(row)
        return None

    def put(self, entry: MemoryEntry) -> None:
        self._tx.run(
            "memory.put",
            entry.key,
            entry.value,
            entry.version,
            entry.updated_at_ms,
            entry.expires_at_ms,
        )

    def drop(self, *keys: str) -> None:
        self._tx.many("memory.drop", [(key,) for key in keys])

    def over(self, now_ms: int, most: int) -> list[tuple[str, int]]:
        """Keys whose values are past their time, with their versions."""
        return [(key, version) for key, version in self._tx.rows("memory.over", now_ms, most)]

    def page(
        self, wanted: Wanted, *, after: str, now_ms: int, limit: int, most_bytes: int
    ) -> tuple[list[MemoryEntry], bool]:
        """The next values in the order of their keys, and whether there are more.

        Of large values there are fewer, but at least one.
        """
        first = max(wanted.first, after)
        found = self._tx.rows(
            "memory.keys", first, after, wanted.end, wanted.pattern, now_ms, limit + 1
        )
        keys: list[str] = []
        size = 0
        for key, length in found[:limit]:
            size += length
            if keys and size > most_bytes:
                break
            keys.append(key)
        entries = {row[0]: _entry(row) for row in self._tx.rows("memory.by_keys", keys)}
        return [entries[key] for key in keys], len(found) > len(keys)


def starting_with(prefix: str) -> Wanted:
    """All keys that begin with these very characters."""
    return Wanted(prefix, prefix + LAST_CHARACTER * (limits.MAX_KEY_LENGTH + 1), ANYTHING)


def matching(pattern: str) -> Wanted:
    """All keys that match a pattern as a whole."""
    places = [place for sign in WILD if (place := pattern.find(sign)) >= 0]
    literal = pattern[: min(places, default=len(pattern))]
    return starting_with(literal)._replace(pattern=pattern)


def _entry(row: Row) -> MemoryEntry:
    key, value, version, updated_at_ms, expires_at_ms = row
    return MemoryEntry(
        key=key,
        value=value,
        version=version,
        updated_at_ms=updated_at_ms,
        expires_at_ms=expires_at_ms,
    )
