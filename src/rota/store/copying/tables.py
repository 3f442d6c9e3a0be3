"""Tables as rows to copy, and the contract of a store that is copied."""

import hashlib
from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from rota.errors import StoreError
from rota.store.database import Row

Kind = Literal["number", "text", "bytes"]
Key = tuple[int | str, ...]

PROGRESS_TABLE = "copy_progress"
# About running coordinators, or about the store itself: not copied.
LEFT_OUT = frozenset(
    {PROGRESS_TABLE, "replica", "watch", "schema_version", "history_stretch"}
    | {"leadership", "leader_lease", "peer_secret"}
)
PREPARED = frozenset({"counter"})  # a new store has rows in it, which are replaced
FILE, CONTENT = "file", "content"  # columns of artifacts: large contents may be in files


class StoreTable(Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    key: tuple[str, ...]  # the primary key, in its order

    def key_of(self, row: Row) -> Key:
        return tuple(row[self.columns.index(name)] for name in self.key)

    @property
    def has_files(self) -> bool:
        return FILE in self.columns and CONTENT in self.columns


class CopyProgress(Struct, frozen=True, kw_only=True):
    """The progress of one table."""

    table: str
    source: str
    rows: int
    last_key: Key | None = None
    is_done: bool = False


class TableDigest(Struct, frozen=True):
    """The number of rows, and a hash of them that does not depend on their order."""

    rows: int = 0
    digest: int = 0

    def with_rows(self, rows: Iterable[Row]) -> "TableDigest":
        count, digest = self.rows, self.digest
        for row in rows:
            content = hashlib.blake2b(_encode(row), digest_size=16).digest()
            digest = (digest + int.from_bytes(content)) % 2**128
            count += 1
        return TableDigest(count, digest)


_encode = msgspec.msgpack.Encoder().encode


class Side(Protocol):
    """The source or the target of a copy."""

    shown: str  # its address, as people may see it

    def tables(self) -> dict[str, StoreTable]: ...

    def count(self, table: StoreTable) -> int: ...

    def page(
        self, table: StoreTable, after: Key | None, *, most: int, most_bytes: int
    ) -> list[Row]:
        """Rows after a key, in the order of their keys; at least one, if there is any."""
        ...

    def check_unused(self) -> None:
        """Refuse a store that a coordinator uses."""
        ...

    # --- of a store that is copied to -----------------------------------------------------------

    def notes(self) -> dict[str, CopyProgress] | None:
        """The progress of a copy by table; None: no copy is under way."""
        ...

    def begin(self, tables: Iterable[StoreTable]) -> None:
        """Create the progress table and delete the rows that a new store has."""
        ...

    def write(self, table: StoreTable, rows: list[Row], notes: CopyProgress) -> None:
        """Write rows and progress in one transaction."""
        ...

    def finish(self, tables: Iterable[StoreTable]) -> None:
        """Drop the progress, and continue generated numbers after the highest ones."""
        ...

    def close(self) -> None: ...


def common_tables(source: Side, target: Side) -> list[StoreTable]:
    """The tables of the source; raises `StoreError` if those of the target differ."""
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


def _shape(table: StoreTable | None) -> object:
    if table is None:
        return None
    return dict(zip(table.columns, table.kinds, strict=True)), table.key
