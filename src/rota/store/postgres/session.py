"""A connection with the settings of a store, and its transactions.

On a direct connection the settings hold for the session, and a transaction begins with its first
statement, in the same round trip. A pooler may give each transaction another session: there the
message that begins a transaction also sets what it needs, and is waited for.
"""

from collections.abc import Mapping

from psycopg import pq

from rota.store.postgres.address import Address, PostgresOptions
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.link import CONNECT_TIMEOUT_S, GRACE_S, StatementRefused

APPLICATION = "rota"
READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
SNAPSHOT = b"SELECT 1"  # the view of a transaction begins with its first statement
COMMIT = b"COMMIT"

# Joins are made in the order in which they are written, along indexes, as on SQLite. Statistics
# mislead the planner: a table may be empty in one minute and hold a million rows in the next.
PLANS = {
    "jit": "off",
    "join_collapse_limit": "1",
    "from_collapse_limit": "1",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "enable_sort": "off",
}
# The server gives up a connection whose other end is gone without a word, and its locks with it.
KEEPALIVE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def settings_of(address: Address, options: PostgresOptions) -> dict[str, str]:
    return {
        "search_path": f"{address.schema}, pg_temp",
        "statement_timeout": str(options.statement_ms),
        "lock_timeout": str(options.lock_ms),
        "idle_in_transaction_session_timeout": str(options.idle_ms),
        **PLANS,
    }


class StoreSession(PostgresConnection):
    def __init__(
        self,
        address: Address,
        settings: Mapping[str, str],
        *,
        limit_ms: int,
        grace_s: float = GRACE_S,
        connect_s: int = CONNECT_TIMEOUT_S,
    ) -> None:
        super().__init__(
            address.url, name=APPLICATION, limit_ms=limit_ms, grace_s=grace_s, connect_s=connect_s
        )
        self._local = _settings_script(settings, is_local=True)
        if self.is_direct:
            try:
                self.script(_settings_script({**settings, **KEEPALIVE}, is_local=False))
            except StatementRefused:
                self.close()
                raise

    def begin_write(self, *statements: bytes) -> None:
        """Begin a transaction that writes, with these statements first."""
        if self.is_direct:
            self.defer((WRITE, *statements))
        else:
            self.script(b"; ".join((WRITE, self._local, *statements)))

    def begin_read(self) -> None:
        """Begin a transaction that reads, on a view of the data as of now."""
        self.script(b"; ".join((READ, SNAPSHOT if self.is_direct else self._local)))

    def commit(self) -> None:
        _check_commit(self.finish(COMMIT))

    def send_commit(self) -> None:
        """Send the commit of a transaction on a direct connection, without waiting for it."""
        self.send_last(COMMIT)

    def end_commit(self) -> None:
        """Wait for the commit that was sent; goes on after `StoreIsSlow`."""
        _check_commit(self.last_result())


def _check_commit(result: pq.abc.PGresult) -> None:
    assert result.command_status == COMMIT, "a broken transaction was to be committed"


def _settings_script(settings: Mapping[str, str], *, is_local: bool) -> bytes:
    scope = "true" if is_local else "false"
    pairs = [f"set_config('{name}', '{value}', {scope})" for name, value in settings.items()]
    return f"SELECT {', '.join(pairs)}".encode()
