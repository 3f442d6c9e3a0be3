"""The contract of a database, and its named queries.

A transaction body is a plain function of a `Transaction` that runs on a database thread. The body
never commits: the database does, once, when the body has returned.

Queries live in `sql/*.sql`, each with a name and a description. Parameters are named (`:task_id`).
A row leaves the store as a record with named fields, made by `Transaction.records` or in the module
of its noun.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol, TypeVar

from rota.store.leadership import Elections

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Row = tuple[Any, ...]
Parameters = Mapping[str, object]

NEWEST = 2**63 - 1  # above every id: the start of a list that goes down
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")


class Transaction(ABC):
    """Named queries in an open transaction. A list as a parameter is a set of values."""

    is_remote: bool = False  # whether each read takes a round trip
    can_read_ahead: bool = False  # whether a read may travel with the commit

    @abstractmethod
    def rows(self, query: str, /, **parameters: object) -> list[Row]: ...

    @abstractmethod
    def records(self, make: Callable[..., T], query: str, /, **parameters: object) -> list[T]:
        """Call `make` for each row, with the columns as keyword arguments."""

    @abstractmethod
    def execute(self, query: str, /, **parameters: object) -> int:
        """Run one statement and return the number of rows that it changed."""

    @abstractmethod
    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        """Run one statement for each row and return the number of rows changed.

        `names` are the query's parameters in the order in which each row has their values. They
        are given once for all rows: a mapping for each row would slow bulk writes down.
        """

    @abstractmethod
    def pipeline(self, query: str, /, **parameters: object) -> None:
        """Run one statement without waiting for its outcome.

        The statement takes effect before the next one. An error of it may surface only then.
        """

    @abstractmethod
    def pipeline_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> None:
        """Run one statement for each row without waiting for the outcome."""

    def pipeline_exactly(self, expected: int, query: str, /, **parameters: object) -> None:
        """Run one statement that has to change so many rows, without waiting for its outcome.

        Another number is a defect: it breaks the transaction off at the latest in its commit.
        """
        check_count(query, self.execute(query, **parameters), expected)

    def pipeline_each(
        self, query: str, names: Sequence[str], rows: Sequence[Sequence[object]], /
    ) -> None:
        """Run one statement for each row, which has to change one row of the table each time."""
        check_count(query, self.execute_many(query, names, rows), len(rows))

    def read_ahead(
        self, take: Callable[[list[Row]], None], query: str, /, **parameters: object
    ) -> None:
        """Hand over the rows of a query, at the latest in the commit, without waiting for them.

        They are what the query finds now. The commit may still fail after they were taken. Where
        they come with the commit, an error of `take` is logged, and the commit counts.
        """
        take(self.rows(query, **parameters))

    def record(self, make: Callable[..., T], query: str, /, **parameters: object) -> T | None:
        """Return the first of the records, or None."""
        return next(iter(self.records(make, query, **parameters)), None)

    def column(self, query: str, /, **parameters: object) -> list[Any]:
        """Return the values of a query with one column."""
        return [value for (value,) in self.rows(query, **parameters)]

    def value(self, query: str, /, **parameters: object) -> Any:
        """Return the one value of a query; None: there is no row."""
        for row in self.rows(query, **parameters):
            return row[0]
        return None


def check_count(query: str, changed: int, expected: int) -> None:
    assert changed == expected, f"{query} changed {changed} rows, not {expected}"


class StoreIsSlow(Exception):  # noqa: N818
    """The database did not answer in the time that the caller would wait for it."""


class Commit(Protocol[T_co]):
    """A transaction whose body has run, and whose commit was sent."""

    def finish(self, *, wait_s: float | None = None) -> T_co:
        """Wait for the commit, as `Database.write` does; any thread may call this.

        Raises `StoreIsSlow` when it is not answered within `wait_s`: the commit is still under way,
        and this has to be called again.
        """
        ...


class Database(Protocol):
    """A store of durable state. Only one handle of it writes: that of the leader."""

    @property
    def elections(self) -> Elections | None:
        """The election of the leader; None: this process always leads."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether peers may write to this store as well."""
        ...

    def write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a transaction, which is committed and durable when this returns.

        Raises `StoreFull` when its disk is full: nothing was changed.
        Raises `Unavailable` when the database cannot be used. The message states whether nothing
        was changed, or the outcome is unknown because the connection was lost in the commit.
        Raises `NotLeader` when this handle does not lead, or not any more: nothing was changed.
        """
        ...

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> Commit[T] | None:
        """Run the body in a transaction and send its commit, as `write` does otherwise.

        None: the body was not run, since the database would have to be waited for first. Raises
        `StoreIsSlow` when a read of the body was not answered within `wait_s`: nothing was changed.
        """
        ...

    def administer(self, body: Callable[[Transaction], T]) -> T:
        """Write without being the leader, as `write` does otherwise.

        For tables that no coordinator holds in memory.
        """
        ...

    def read(self, body: Callable[[Transaction], T]) -> T:
        """Run the body on one consistent view of committed data. Any thread may call this."""
        ...

    def disk_free_bytes(self) -> int | None:
        """The free space of the disk that the store is on; None: it is not known here."""
        ...

    def close(self) -> None: ...


def decoding(make: Callable[..., T], /, **decoders: Callable[[Any], object]) -> Callable[..., T]:
    """Return `make` with a decoder for each column that is stored encoded; NULL stays None."""

    def make_decoded(**columns: Any) -> T:
        for name, decode in decoders.items():
            if columns[name] is not None:
                columns[name] = decode(columns[name])
        return make(**columns)

    return make_decoded


def load_queries(dialect: str | None = None) -> dict[str, str]:
    """Read `sql/*.sql`: each query by the name of its file and its own, without comments.

    The folder of a dialect has queries of its own, and overrides of those with the same name.
    """
    folder = resources.files("rota.store") / "sql"
    queries = _queries_in(folder)
    if dialect is not None:
        queries |= _queries_in(folder / dialect)
    return queries


def _queries_in(folder: Traversable) -> dict[str, str]:
    queries: dict[str, str] = {}
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            found = _NAME.split(file.read_text())[1:]
            stem = file.name.removesuffix(".sql")
            for name, text in zip(found[::2], found[1::2], strict=True):
                queries[f"{stem}.{name}"] = _COMMENT.sub("", text).strip()
    return queries


def parameter_names(text: str) -> tuple[str, ...]:
    """Return the named parameters of a query in the order of their first use."""
    return tuple(dict.fromkeys(_PARAMETER.findall(text)))
