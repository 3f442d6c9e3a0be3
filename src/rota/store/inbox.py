"""Tasks that came with the transactions of others, until they are accepted."""

from rota.store.database import Transaction


class Inbox:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def is_empty(self) -> bool:
        return not self._tx.rows("inbox.any")[0][0]

    def put(self, key: str, task: bytes, *, at_ms: int) -> None:
        """As a program does it that shares the database with us."""
        self._tx.run("inbox.put", key, task, at_ms)

    def take(self, most: int, *, most_bytes: int) -> list[tuple[str, bytes]]:
        """Keys and contents, in the order they came; at least one, if there is any."""
        rows = self._tx.rows("inbox.take", most, most_bytes)
        return [(key, bytes(task)) for _, key, task in sorted(rows, key=lambda row: row[0])]
