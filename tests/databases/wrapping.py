"""A transaction around another one, for tests that watch or change what is done with it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rota.store.database import Row, Transaction

T = TypeVar("T")


class WrappedTransaction(Transaction):
    """Passes everything on. What is pipelined is executed, so that it can be counted."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.is_remote = tx.is_remote

    def rows(self, query: str, /, **parameters: object) -> list[Row]:
        return self._tx.rows(query, **parameters)

    def records(self, make: Callable[..., T], query: str, /, **parameters: object) -> list[T]:
        return self._tx.records(make, query, **parameters)

    def execute(self, query: str, /, **parameters: object) -> int:
        return self._tx.execute(query, **parameters)

    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        return self._tx.execute_many(query, names, rows)

    def pipeline(self, query: str, /, **parameters: object) -> None:
        self.execute(query, **parameters)

    def pipeline_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> None:
        self.execute_many(query, names, rows)
