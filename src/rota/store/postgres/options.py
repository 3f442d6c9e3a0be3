"""What may be changed about how a database is used?"""

from typing import NamedTuple


class PostgresOptions(NamedTuple):
    schema: str = "rota"
    readers: int = 8  # connections that read, at the most
    notify: bool = True  # tell the others by NOTIFY that there is something new
    statement_ms: int = 15_000  # of one statement
    lock_ms: int = 10_000  # of waiting for the other coordinators' writes
    idle_ms: int = 10_000  # a transaction may stand still; then the database ends it
