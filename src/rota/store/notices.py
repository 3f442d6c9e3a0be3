"""The log of what the outside is told: rows added at one end, and forgotten at the other."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.notices import EVERYTHING, Noted, Notice, NoticeFilter, PruneNotices
from rota.store.database import Row, Transaction

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Bounds(NamedTuple):
    oldest_seq: int  # of the notices that are kept; one past the last when there are none
    last_seq: int  # that was given, kept or not


class Notices:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def bounds(self) -> Bounds:
        oldest, last = self._tx.rows("notices.bounds")[0]
        return Bounds(last + 1 if oldest is None else oldest, last)

    def after(self, wanted: NoticeFilter, *, after: int, until: int, limit: int) -> list[Noted]:
        """Those above one number and up to another, the oldest first."""
        if wanted == EVERYTHING:
            return _read(self._tx.rows("notices.every", after, until, limit))
        return _read(self._tx.rows("notices.matching", after, until, *_asked(wanted), limit))

    def newest(self, wanted: NoticeFilter, *, after: int, until: int, limit: int) -> list[Noted]:
        """The same, but the newest of them, and the newest first."""
        return _read(self._tx.rows("notices.newest_matching", after, until, *_asked(wanted), limit))

    def add(self, notices: Sequence[Notice], *, after: int, at_ms: int) -> None:
        """Write notices under the numbers that follow; nobody else has given them."""
        self._tx.put_many(
            "notices.add",
            [
                (seq, at_ms, one.type, one.subject, _encode(one.data))
                for seq, one in enumerate(notices, after + 1)
            ],
        )

    def prune(self, event: PruneNotices, *, step: int) -> int:
        """Forget what is due among the oldest; so many are looked at."""
        bounds = self.bounds()
        last_unkept = bounds.last_seq - event.most
        forgotten = self._tx.run(
            "notices.forget", bounds.oldest_seq + step, event.before_ms, last_unkept
        )
        if forgotten:
            self._tx.run("notices.keep_number", bounds.last_seq)
        return forgotten


def _asked(wanted: NoticeFilter) -> tuple[object, ...]:
    types = [] if wanted.types is None else sorted(wanted.types)
    return (
        wanted.types is None,
        types,
        wanted.subject is None,
        wanted.subject,
        wanted.prefix,
        wanted.prefix,
    )


def _read(rows: Iterable[Row]) -> list[Noted]:
    return [
        Noted(seq=seq, at_ms=at_ms, type=kind, subject=subject, data=_decode(data))
        for seq, at_ms, kind, subject, data in rows
    ]
