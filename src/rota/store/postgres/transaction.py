"""Named queries on one connection, in the transaction that the database has opened."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from rota.store.database import Row, Transaction
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.dialect import Query
from rota.store.postgres.parameters import Encoded, encoded, encoded_columns

T = TypeVar("T")


class PostgresTransaction(Transaction):
    is_remote = True

    def __init__(
        self,
        connection: PostgresConnection,
        queries: Mapping[str, Query],
    ) -> None:
        self._connection = connection
        self._queries = queries

    def rows(self, query: str, /, **parameters: object) -> list[Row]:
        return self._connection.rows(self._select(query, parameters))

    def records(self, make: Callable[..., T], query: str, /, **parameters: object) -> list[T]:
        result = self._select(query, parameters)
        names = [(result.fname(one) or b"").decode() for one in range(result.nfields)]
        rows = self._connection.rows(result)
        return [make(**dict(zip(names, row, strict=True))) for row in rows]

    @property
    def can_read_ahead(self) -> bool:  # type: ignore[override]
        return self._connection.is_direct

    def read_ahead(
        self, take: Callable[[list[Row]], None], query: str, /, **parameters: object
    ) -> None:
        connection, found = self._connection, self._queries[query]
        connection.send(
            found.text,
            *encoded(found, parameters),
            take=lambda result: take(connection.rows(result)),
        )

    def execute(self, query: str, /, **parameters: object) -> int:
        found = self._queries[query]
        return self._run(found, encoded(found, parameters))

    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        listed = rows if isinstance(rows, Sequence) else list(rows)
        if not listed:
            return 0
        found = self._queries[query]
        return self._run(found, encoded_columns(found, names, listed))

    def pipeline(self, query: str, /, **parameters: object) -> None:
        found = self._queries[query]
        self._send(found, encoded(found, parameters))

    def pipeline_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> None:
        listed = rows if isinstance(rows, Sequence) else list(rows)
        if listed:
            found = self._queries[query]
            self._send(found, encoded_columns(found, names, listed))

    def pipeline_exactly(self, expected: int, query: str, /, **parameters: object) -> None:
        found = self._queries[query]
        self._send_guarded(expected, found, encoded(found, parameters))

    def pipeline_each(
        self, query: str, names: Sequence[str], rows: Sequence[Sequence[object]], /
    ) -> None:
        if rows:
            found = self._queries[query]
            self._send_guarded(len(rows), found, encoded_columns(found, names, rows))

    def _send_guarded(self, expected: int, query: Query, parameters: Encoded) -> None:
        values, formats = parameters
        self._connection.send(
            query.guarded_text, [*values, str(expected).encode()], [*formats, Format.TEXT]
        )

    def _select(self, query: str, parameters: Mapping[str, object]) -> PGresult:
        found = self._queries[query]
        return self._connection.run(found.text, *encoded(found, parameters))

    def _send(self, query: Query, parameters: Encoded) -> None:
        self._connection.send(query.text, *parameters)

    def _run(self, query: Query, parameters: Encoded) -> int:
        return self._connection.run(query.text, *parameters).command_tuples or 0
