"""What is a table, to somebody who only carries rows?"""

import hashlib
from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from rota.errors import StoreError
from rota.store.database import Row

Kind = Literal["number", "text", "bytes"]
Key = tuple[int | str, ...]

NOTES = "copy_progress"
# About coordinators that run, or about the store itself: of no use elsewhere.
LEFT_OUT = frozenset({NOTES, "replica", "watch", "schema_version", "history_stretch"})
PREPARED = frozenset({"counter"})  # a store that is new has rows in it: those are replaced
FILE, CONTENT = "file", "content"  # columns of artifacts: large ones may lie in files


class Table(Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    key: tuple[str, ...]  # the primary key, in its order

    def key_of(self, row: Row) -> Key:
        return tuple(row[self.columns.index(name)] for name in self.key)

    @property
    def has_files(self) -> bool:
        return FILE in self.columns and CONTENT in self.columns


class Notes(Struct, frozen=True, kw_only=True):
    """How far a table has come."""

    table: str
    source: str
    rows: int
    last_key: Key | None = None
    is_done: bool = False


class Sum(Struct, frozen=True):
    """How many rows, and a number that tells other rows; in whatever order they come."""

    rows: int = 0
    digest: int = 0

    def with_rows(self, rows: Iterable[Row]) -> "Sum":
        count, digest = self.rows, self.digest
        for row in rows:
            content = hashlib.blake2b(_encode(row), digest_size=16).digest()
            digest = (digest + int.from_bytes(content)) % 2**128
            count += 1
        return Sum(count, digest)


_encode = msgspec.msgpack.Encoder().encode


class Side(Protocol):
    """A store that is copied from, or to."""

    shown: str  # its address, as people may see it

    def tables(self) -> dict[str, Table]: ...

    def count(self, table: Table) -> int: ...

    def page(self, table: Table, after: Key | None, *, most: int, most_bytes: int) -> list[Row]:
        """Rows behind a key, in the order of their keys; at least one, if there is any."""
        ...

    def check_unused(self) -> None:
        """Refuse a store that a coordinator works on."""
        ...

    # --- of a store that is copied to -----------------------------------------------------------

    def notes(self) -> dict[str, Notes] | None:
        """How far a copy has come, by table; None: none is under way."""
        ...

    def begin(self, tables: Iterable[Table]) -> None:
        """From now on there are notes; rows that a new store has of its own are gone."""
        ...

    def write(self, table: Table, rows: list[Row], notes: Notes) -> None:
        """Write rows and notes in one transaction."""
        ...

    def finish(self, tables: Iterable[Table]) -> None:
        """The copy is whole: numbers that the store gives go on behind those it has."""
        ...

    def close(self) -> None: ...


def common_tables(source: Side, target: Side) -> list[Table]:
    """The tables of both, if they have the same; as the source has them."""
    ours, theirs = source.tables(), target.tables()
    differing = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if _shape(ours.get(name)) != _shape(theirs.get(name))
    ]
    if differing:
        raise StoreError(
            f"{source.shown} and {target.shown} differ in {', '.join(differing)}: "
            "bring both up to date with `rota migrate`"
        )
    return [ours[name] for name in sorted(ours)]


def _shape(table: Table | None) -> object:
    if table is None:
        return None
    return dict(zip(table.columns, table.kinds, strict=True)), table.key
