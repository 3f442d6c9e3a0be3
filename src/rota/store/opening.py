"""Opens the store of a URL: the one place that knows both databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.addresses import without_password
from rota.errors import Invalid, StoreError
from rota.store import migrator
from rota.store.database import Database
from rota.store.sqlite.database import MEMORY, SqliteDatabase, path_of

if TYPE_CHECKING:
    from rota.store.postgres.address import PostgresOptions
    from rota.store.postgres.database import PostgresDatabase

SQLITE = "sqlite"
POSTGRES = ("postgresql", "postgres")


def is_postgres(url: str) -> bool:
    return url.partition("://")[0] in POSTGRES


@contextmanager
def naming_the_extra() -> Iterator[None]:
    """Name the extra `postgres` if an import inside finds no psycopg."""
    try:
        yield
    except ImportError as error:
        raise StoreError(
            f"a store on PostgreSQL needs psycopg ({error}): pip install 'rota[postgres]'"
        ) from error


def open_database(
    url: str, options: "PostgresOptions | None" = None
) -> "SqliteDatabase | PostgresDatabase":
    """Open and migrate the store. The options apply to PostgreSQL."""
    if not is_postgres(url):
        _check(url)
        return SqliteDatabase(path_of(url))
    with naming_the_extra():
        from rota.store.postgres.address import address_of  # noqa: PLC0415 - an extra
        from rota.store.postgres.database import PostgresDatabase  # noqa: PLC0415

    return PostgresDatabase(address_of(url, options.schema if options else None), options)


def check_whole(database: Database, name: str) -> None:
    """Refuse the target of a copy that is not finished."""
    if database.read(lambda tx: tx.value("copying.is_unfinished")):
        raise StoreError(
            f"{name} is an unfinished copy: finish it with the same `rota copy` command, or "
            "start with an empty store"
        )


def sql_of(url: str, schema: str) -> str:
    """The SQL that creates a new store."""
    if not is_postgres(url):
        _check(url)
        return migrator.offline()
    with naming_the_extra():
        from rota.store.postgres.address import address_of  # noqa: PLC0415 - an extra
        from rota.store.postgres.schema import offline  # noqa: PLC0415

    return offline(address_of(url, schema).schema)


def file_of(url: str) -> str | None:
    """The file behind a store; None when it is in memory, or elsewhere."""
    if is_postgres(url):
        return None
    path = path_of(url)
    return None if path == MEMORY else path


def name_of(url: str) -> str:
    """The name of a store for people and logs, without a password."""
    if is_postgres(url):
        return without_password(url)
    return "memory" if path_of(url) == MEMORY else url


def _check(url: str) -> None:
    if url.partition(":")[0] != SQLITE:
        raise Invalid(
            f"store {without_password(url)!r} is neither a sqlite:/// nor a postgresql:// URL",
            setting="store",
        )
