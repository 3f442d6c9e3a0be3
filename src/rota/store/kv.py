"""Entries of the key-value store."""

from typing import NamedTuple

from msgspec.structs import asdict

from rota.core import limits
from rota.core.kv import ExpiredEntry, KvEntry
from rota.core.quotas import Amount, Usage
from rota.store.database import Transaction

LAST_CHARACTER = "\U0010ffff"
WILDCARDS = "*?["
ANYTHING = "*"


class KeyRange(NamedTuple):
    """A part of the index, and the pattern that keys in it match as a whole."""

    first: str
    end: str  # sorts after the last key
    pattern: str


class KvPage(NamedTuple):
    entries: list[KvEntry]
    has_more: bool


class KvStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def get(self, key: str) -> KvEntry | None:
        """The entry of a key, also one past its expiry."""
        return self._tx.record(KvEntry, "kv.get", key=key)

    def put(self, entry: KvEntry) -> None:
        self._tx.pipeline("kv.put", **asdict(entry))

    def delete(self, *keys: str) -> None:
        self._tx.pipeline_many("kv.delete", ("key",), [(key,) for key in keys])

    def expired(self, now_ms: int, limit: int) -> list[ExpiredEntry]:
        """Entries past their expiry, oldest first."""
        return self._tx.records(ExpiredEntry, "kv.expired", now_ms=now_ms, limit=limit)

    def usage(self, now_ms: int) -> Usage:
        """Count all entries. Reads every row: not for every call."""
        sums = {owner: Amount(count, size) for owner, count, size in self._tx.rows("kv.usage")}
        return Usage.counted(sums, now_ms=now_ms)

    def page(
        self, wanted: KeyRange, *, after: str, now_ms: int, limit: int, most_bytes: int
    ) -> KvPage:
        """The next entries in the order of their keys.

        Large values make the page shorter, but it has at least one entry if there is any.
        """
        first = max(wanted.first, after)
        found = self._tx.rows(
            "kv.keys",
            first=first,
            after=after,
            end=wanted.end,
            pattern=wanted.pattern,
            now_ms=now_ms,
            limit=limit + 1,
        )
        keys: list[str] = []
        size = 0
        for key, length in found[:limit]:
            size += length
            if keys and size > most_bytes:
                break
            keys.append(key)
        entries = {one.key: one for one in self._tx.records(KvEntry, "kv.by_keys", keys=keys)}
        return KvPage([entries[key] for key in keys], len(found) > len(keys))


def keys_with_prefix(prefix: str) -> KeyRange:
    """All keys that start with these characters."""
    return KeyRange(prefix, prefix + LAST_CHARACTER * (limits.MAX_KEY_LENGTH + 1), ANYTHING)


def keys_matching(pattern: str) -> KeyRange:
    """All keys that match a pattern as a whole."""
    places = [place for sign in WILDCARDS if (place := pattern.find(sign)) >= 0]
    literal = pattern[: min(places, default=len(pattern))]
    return keys_with_prefix(literal)._replace(pattern=pattern)
