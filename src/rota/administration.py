"""Operations on the store of the settings that need no running coordinator.

The command line migrates a store and manages its access tokens this way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rota.core.access import AccessToken
from rota.errors import Invalid, TokenNotFound
from rota.settings import Settings
from rota.store import opening
from rota.store.access import TokenStore
from rota.store.database import Transaction
from rota.store.sqlite import backup
from rota.store.sqlite.backup import BackupReport

if TYPE_CHECKING:
    from rota.store.postgres.database import PostgresDatabase
    from rota.store.sqlite.database import SqliteDatabase

T = TypeVar("T")


def open_database(settings: Settings) -> "SqliteDatabase | PostgresDatabase":
    """Open and migrate the store of the settings; refuse a copy that is not finished."""
    options = None
    if opening.is_postgres(settings.store):
        with opening.naming_the_extra():
            from rota.store.postgres.address import PostgresOptions  # noqa: PLC0415 - an extra

        options = PostgresOptions(
            schema=settings.postgres_schema,
            readers=settings.postgres_readers,
            statement_ms=settings.postgres_statement_ms,
        )
    database = opening.open_database(settings.store, options)
    try:
        opening.check_whole(database, opening.name_of(settings.store))
    except BaseException:
        database.close()
        raise
    return database


def _with_store(settings: Settings, body: Callable[[Transaction], T]) -> T:
    database = open_database(settings)
    try:
        return database.administer(body)
    finally:
        database.close()


def migrate(settings: Settings, *, post: bool = False) -> tuple[int, int]:
    """Migrate the store to the newest version; return the versions before and after.

    `post`: also drop what only older coordinators need.
    """
    database = open_database(settings)
    try:
        if post:
            database.drop_legacy()
    finally:
        database.close()
    return database.migrated


def migration_sql(settings: Settings) -> str:
    """Return the SQL that makes an empty store one of the newest version."""
    return opening.sql_of(settings.store, settings.postgres_schema)


def back_up(settings: Settings, target: str) -> BackupReport:
    """Copy the store to a file while a coordinator uses it, and check the copy."""
    path = opening.file_of(settings.store)
    if path is None:
        raise Invalid(
            f"{opening.name_of(settings.store)} is not a file: back up PostgreSQL with its own "
            "tools, such as pg_dump",
            setting="store",
        )
    return backup.back_up(path, target)


def create_token(settings: Settings, token: AccessToken) -> None:
    _with_store(settings, lambda tx: TokenStore(tx).put(token))


def add_token(settings: Settings, token: AccessToken) -> AccessToken:
    """Store a token, unless one with the same secret is there; returns the one that is stored."""

    def body(tx: Transaction) -> AccessToken:
        store = TokenStore(tx)
        for stored in store.all():
            if stored.hash == token.hash:
                return stored
        store.put(token)
        return token

    return _with_store(settings, body)


def list_tokens(settings: Settings) -> list[AccessToken]:
    return _with_store(settings, lambda tx: TokenStore(tx).all())


def revoke_token(settings: Settings, token_id: str) -> None:
    def body(tx: Transaction) -> None:
        if token_id not in TokenStore(tx).ids():
            raise TokenNotFound(token_id)
        TokenStore(tx).delete(token_id)

    _with_store(settings, body)
