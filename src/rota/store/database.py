"""What do the stores need of a database, and which named queries do they run?

A transaction body is a plain function of a `Transaction`, run on a database thread. It never
commits: whoever opened the transaction does, once, when the body has returned.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """An open transaction. A list as a parameter stands for a set of values."""

    @property
    def is_foreign(self) -> bool:
        """Has somebody else written since the last write that this handle has committed?

        True in every write until the handle's first commit: what was before it, is not known.
        """
        ...

    @property
    def now_ms(self) -> int | None:
        """The database's own clock at the start of a write; None: it has none."""
        ...

    def rows(self, query: str, /, *parameters: object) -> list[Row]: ...

    def run(self, query: str, /, *parameters: object) -> int:
        """Run one statement; the answer is how many rows it changed."""
        ...

    def many(self, query: str, rows: Iterable[Sequence[object]], /) -> int:
        """Run one statement for each row of parameters; the answer is as with `run`."""
        ...

    def put(self, query: str, /, *parameters: object) -> None:
        """As `run`, for what changes rows and nobody asks how many: it need not be waited for.

        It is done before whatever comes next; what is wrong with it may be heard of only then.
        """
        ...

    def put_many(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        """As `many`, in the same way."""
        ...


class Database(Protocol):
    """A place where state is kept. Writes are one after the other, whoever makes them."""

    @property
    def is_shared(self) -> bool:
        """May others write too?"""
        ...

    def write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a transaction; committed and durable when this returns.

        Raises `Unavailable` when the store is away. It says whether nothing was changed, or whether
        nobody knows, because the connection was lost while the commit was under way.
        """
        ...

    def read(self, body: Callable[[Transaction], T]) -> T:
        """Run the body on one consistent view of what is committed. Any thread may."""
        ...

    def turn(self) -> int:
        """A number that rises with every write that changed something, whoever made it.

        Cheap enough to be asked for many times a second. Any thread may.
        """
        ...

    def hint(self) -> None:
        """Tell the others soon that there is something new. May get lost; `turn` is the truth."""
        ...

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, on a thread of the store's, when others have hinted; the answer stops that."""
        ...

    def close(self) -> None: ...


def load_queries(dialect: str | None = None) -> dict[str, str]:
    """Read `sql/*.sql`: each query under the name of its file and its own.

    A dialect has a folder there: its queries stand in for those of the same names, or are its own.
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
            found = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)[1:]
            stem = file.name.removesuffix(".sql")
            pairs = zip(found[::2], found[1::2], strict=True)
            queries |= {f"{stem}.{name}": text.strip() for name, text in pairs}
    return queries
