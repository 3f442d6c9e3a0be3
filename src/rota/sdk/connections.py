"""Whose connection is this, and how is a statement put into its transaction?

Connections are told by the module they come from; none of these libraries is imported here. Those
that SQLAlchemy and Django wrap are used through them, so that their own bookkeeping of transactions
holds.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from rota.errors import Invalid

PERCENT = "%s"  # the placeholder of psycopg, and of what is made like it
DOLLAR = "${}"  # asyncpg's
DOLLAR_STYLES = frozenset({"numeric_dollar"})
POSTGRES = "postgresql"

Values = Sequence[object]


class Statement(NamedTuple):
    """A statement with its values, which is written when it is known how they are named."""

    text: Callable[[Callable[[int], str]], str]
    values: Values

    def written(self, placeholder: str) -> str:
        return self.text(placeholder.format)


class Connection(NamedTuple):
    """How to run a statement on it: one of the two ways, or either."""

    run: Callable[[Statement], None] | None = None
    arun: Callable[[Statement], Awaitable[None]] | None = None


def connection_of(given: Any) -> Connection:
    for kind in type(given).__mro__:
        library, _, rest = kind.__module__.partition(".")
        know = KNOWN.get(library)
        if know is not None:
            return know(given, kind.__name__, rest)
    name = f"{type(given).__module__}.{type(given).__qualname__}"
    raise Invalid(
        f"conn is a {name}; it has to be a connection of psycopg, asyncpg, SQLAlchemy or Django",
        field="conn",
    )


# --- the libraries ------------------------------------------------------------------------------


def _psycopg(given: Any, name: str, _module: str) -> Connection:
    if not name.endswith("Connection"):
        raise Invalid(f"conn is a {name} of psycopg; give the connection", field="conn")
    if not name.startswith("Async"):
        return Connection(run=lambda one: _discard(given.execute(one.written(PERCENT), one.values)))

    async def arun(statement: Statement) -> None:
        await given.execute(statement.written(PERCENT), statement.values)

    return Connection(arun=arun)


def _asyncpg(given: Any, name: str, _module: str) -> Connection:
    if not hasattr(given, "fetchval") or name == "Pool":
        raise Invalid(f"conn is a {name} of asyncpg; give the connection", field="conn")

    async def arun(statement: Statement) -> None:
        await given.execute(statement.written(DOLLAR), *statement.values)

    return Connection(arun=arun)


def _sqlalchemy(given: Any, name: str, module: str) -> Connection:
    if name not in {"Connection", "Session", "scoped_session", "AsyncConnection", "AsyncSession"}:
        raise Invalid(
            f"conn is a {name} of SQLAlchemy; give the connection or the session", field="conn"
        )
    is_session = name.lower().endswith("session")

    def run(statement: Statement) -> None:
        connection = given.connection() if is_session else given
        _on_sqlalchemy(connection, statement)

    async def arun(statement: Statement) -> None:
        connection = await given.connection() if is_session else given
        await _on_sqlalchemy(connection, statement)

    return Connection(arun=arun) if "asyncio" in module else Connection(run=run)


def _on_sqlalchemy(connection: Any, statement: Statement) -> Any:
    dialect = connection.dialect
    _check_postgres(dialect.name)
    placeholder = DOLLAR if dialect.paramstyle in DOLLAR_STYLES else PERCENT
    return connection.exec_driver_sql(statement.written(placeholder), tuple(statement.values))


def _django(given: Any, name: str, _module: str) -> Connection:
    if not hasattr(given, "vendor"):
        raise Invalid(
            f"conn is a {name} of Django; give django.db.connection, or one of its connections",
            field="conn",
        )
    _check_postgres(given.vendor)

    def run(statement: Statement) -> None:
        with given.cursor() as cursor:
            cursor.execute(statement.written(PERCENT), statement.values)

    return Connection(run=run)


KNOWN: dict[str, Callable[[Any, str, str], Connection]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}


def _check_postgres(name: str) -> None:
    if name != POSTGRES:
        raise Invalid(
            f"conn is a connection to {name}: a task goes into a transaction of PostgreSQL only",
            field="conn",
        )


def _discard(_cursor: object) -> None:
    """What a statement answers is of no interest here."""
