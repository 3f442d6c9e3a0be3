"""What do the stores need of a database, and which named queries do they run?

A transaction body is a plain function of a `Transaction`, run on a database thread. It never
commits: whoever opened the transaction does, once, when the body has returned.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """An open transaction. A list as a parameter stands for a set of values."""

    def rows(self, query: str, /, *parameters: object) -> list[Row]: ...

    def run(self, query: str, /, *parameters: object) -> int:
        """Run one statement; the answer is how many rows it changed."""
        ...

    def many(self, query: str, rows: Iterable[Sequence[object]], /) -> int:
        """Run one statement for each row of parameters; the answer is as with `run`."""
        ...


class Database(Protocol):
    """A place where state is kept."""

    def write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a transaction; committed and durable when this returns."""
        ...

    def read(self, body: Callable[[Transaction], T]) -> T:
        """Run the body on one consistent view of what is committed. Any thread may."""
        ...

    def close(self) -> None: ...


def load_queries() -> dict[str, str]:
    """Read `sql/*.sql`: each query under the name of its file and its own."""
    queries: dict[str, str] = {}
    for file in (resources.files("rota.store") / "sql").iterdir():
        if file.name.endswith(".sql"):
            found = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)[1:]
            stem = file.name.removesuffix(".sql")
            pairs = zip(found[::2], found[1::2], strict=True)
            queries |= {f"{stem}.{name}": text.strip() for name, text in pairs}
    return queries
