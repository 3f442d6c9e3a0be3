"""Named queries on one connection, inside the transaction its owner has opened."""

from collections.abc import Iterable, Mapping, Sequence

from rota.store.database import Row
from rota.store.postgres.dialect import Query
from rota.store.postgres.link import Link
from rota.store.postgres.parameters import Encoded, encoded, encoded_columns


class PostgresTransaction:
    def __init__(
        self,
        link: Link,
        queries: Mapping[str, Query],
        *,
        is_foreign: bool = False,
        now_ms: int | None = None,
    ) -> None:
        self._link = link
        self._queries = queries
        self.is_foreign = is_foreign
        self.now_ms = now_ms
        self.has_changed = False  # has any row been changed?

    def rows(self, query: str, /, *parameters: object) -> list[Row]:
        found = self._queries[query]
        result = self._link.run(found.text, *encoded(found, parameters))
        if found.is_change and result.command_tuples:
            self.has_changed = True
        return self._link.rows(result)

    def run(self, query: str, /, *parameters: object) -> int:
        found = self._queries[query]
        return self._changed(found, encoded(found, parameters))

    def many(self, query: str, rows: Iterable[Sequence[object]], /) -> int:
        listed = rows if isinstance(rows, Sequence) else list(rows)
        if not listed:
            return 0
        found = self._queries[query]
        return self._changed(found, encoded_columns(found, listed))

    def put(self, query: str, /, *parameters: object) -> None:
        found = self._queries[query]
        self._sent(found, encoded(found, parameters))

    def put_many(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        listed = rows if isinstance(rows, Sequence) else list(rows)
        if listed:
            found = self._queries[query]
            self._sent(found, encoded_columns(found, listed))

    def _sent(self, query: Query, parameters: Encoded) -> None:
        self.has_changed = True  # as it will have; to know it would mean to wait
        self._link.send(query.text, *parameters)

    def _changed(self, query: Query, parameters: Encoded) -> int:
        changed = self._link.run(query.text, *parameters).command_tuples or 0
        if changed:
            self.has_changed = True
        return changed
