"""Which store does a URL mean? This is the one place that knows all of them."""

from typing import TYPE_CHECKING

from rota.addresses import without_password
from rota.errors import Invalid, StoreError
from rota.store import migrate
from rota.store.database import Database
from rota.store.sqlite import MEMORY, SqliteDatabase, path_of

if TYPE_CHECKING:
    from rota.store.postgres.database import PostgresDatabase
    from rota.store.postgres.options import PostgresOptions

SQLITE = "sqlite"
POSTGRES = ("postgresql", "postgres")


def is_postgres(url: str) -> bool:
    return url.partition("://")[0] in POSTGRES


def open_database(
    url: str, options: "PostgresOptions | None" = None
) -> "SqliteDatabase | PostgresDatabase":
    """Open the store, and bring it to the newest shape. The options are those of PostgreSQL."""
    if not is_postgres(url):
        _check(url)
        return SqliteDatabase(path_of(url))
    try:
        # Only who uses it needs it: it is an extra.
        from rota.store.postgres.address import address_of  # noqa: PLC0415
        from rota.store.postgres.database import PostgresDatabase  # noqa: PLC0415
    except ImportError as error:
        raise StoreError(
            f"a store on PostgreSQL needs psycopg ({error}): pip install 'rota[postgres]'"
        ) from error
    return PostgresDatabase(address_of(url, options.schema if options else None), options)


def check_whole(database: Database, name: str) -> None:
    """Refuse what is the beginning of a copy: it knows only a part."""
    if database.read(lambda tx: tx.rows("copying.is_under_way")[0][0]):
        raise StoreError(
            f"{name} is a copy that was not finished: finish it with the same `rota copy` that "
            "began it, or begin with an empty store"
        )


def sql_of(url: str, schema: str) -> str:
    """The SQL of a new store; nothing is opened."""
    if not is_postgres(url):
        _check(url)
        return migrate.offline()
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
    """What a store is called where people and logs see it."""
    if is_postgres(url):
        return without_password(url)
    return "memory" if path_of(url) == MEMORY else url


def _check(url: str) -> None:
    if url.partition(":")[0] != SQLITE:
        raise Invalid(
            f"store {without_password(url)!r} is neither a sqlite:/// nor a postgresql:// URL",
            setting="store",
        )
