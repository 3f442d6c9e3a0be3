"""The version of the PostgreSQL schema, and the migrations to the newest.

Migrations are numbered files, each applied once, in one transaction with its number, under an
advisory lock: of coordinators that start at the same time one does it, the others find it done.

A coordinator of the previous version must keep working while those of the new one start. So a
migration only adds (`NNNN_name.sql`). `NNNN_name.post.sql` drops what is no longer needed. `rota
migrate --post` applies it when the last coordinator of the previous version is gone. A coordinator
refuses a schema that is more than one version ahead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources

import structlog

from rota.errors import StoreError, StoreTooNew
from rota.store.postgres.address import Address
from rota.store.postgres.connection import PostgresConnection

log = structlog.get_logger("rota.store")

OLDEST_SERVER = 140_000
DURABLE = frozenset({"on", "remote_apply"})
POST = ".post.sql"
MIGRATION_MS = 600_000  # of one statement of a migration


# --- the files ----------------------------------------------------------------------------------


def migrations(*, post: bool = False) -> dict[int, str]:
    folder = resources.files("rota.store") / "sql" / "postgres" / "migrations"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    chosen = [name for name in files if name.endswith(POST) == post]
    found = {
        int(name.split("_")[0]): (folder / name).read_text(encoding="utf-8") for name in chosen
    }
    assert len(found) == len(chosen), "no two migrations have the same number"
    return found


def newest_version() -> int:
    return max(migrations())


def offline(schema: str) -> str:
    """All migrations as one script, for operators who change schemas by hand."""
    name = f'"{schema}"'
    parts = ["BEGIN;", f"CREATE SCHEMA IF NOT EXISTS {name};", f"SET LOCAL search_path TO {name};"]
    parts.append(f"{_VERSIONS};")
    for number, text in migrations().items():
        parts += [f"-- {number}", text.strip(), f"{_note(number)};"]
    return "\n".join([*parts, "COMMIT;", ""])


_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_version ("
    "number bigint NOT NULL, is_post boolean NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (number, is_post))"
)


def _note(number: int, *, post: bool = False) -> str:
    return f"INSERT INTO schema_version (number, is_post) VALUES ({number}, {post})"  # noqa: S608


# --- the database -------------------------------------------------------------------------------


def prepare(connection: PostgresConnection, address: Address) -> tuple[int, int]:
    """Check the server and migrate the schema; returns the versions before and after."""
    check_server(connection, address)
    before = version_of(connection, address)
    known = newest_version()
    if before < known:
        before = _migrate(connection, address)
    elif before > known:
        check_newer(connection, address, before)
    return before, max(before, known)


def check_server(connection: PostgresConnection, address: Address) -> None:
    asked = b"""
    SELECT current_setting('server_version_num'), current_setting('server_encoding'),
           current_setting('synchronous_commit'), current_setting('fsync'), current_user
    """
    version, encoding, commit, fsync, user = texts(connection, asked)
    if int(version) < OLDEST_SERVER:
        raise StoreError(
            f"{address.shown} is PostgreSQL {int(version) // 10_000}: Rota needs 14 or newer"
        )
    if encoding != "UTF8":
        raise StoreError(
            f"{address.shown} stores text as {encoding}: create a database with ENCODING 'UTF8'"
        )
    if commit not in DURABLE:
        raise StoreError(
            f"{address.shown} has synchronous_commit = {commit}, so acknowledged changes could be "
            f'lost: set it to on, with ALTER ROLE "{user}" SET synchronous_commit = on'
        )
    if fsync == "off":
        log.warning("store_not_durable", store=address.shown, setting="fsync")


def texts(connection: PostgresConnection, text: bytes) -> list[str]:
    result = connection.script(text)[-1]
    return [(result.get_value(0, one) or b"").decode() for one in range(result.nfields)]


def version_of(connection: PostgresConnection, address: Address) -> int:
    """The newest applied migration; 0: there is no schema."""
    table = f'"{address.schema}".schema_version'
    if texts(connection, f"SELECT to_regclass('{table}')".encode()) == [""]:
        return 0
    asked = f"SELECT coalesce(max(number), 0) FROM {table} WHERE NOT is_post"  # noqa: S608
    return int(texts(connection, asked.encode())[0])


def _migrate(connection: PostgresConnection, address: Address) -> int:
    """Apply the missing migrations; returns the version before."""
    name = f'"{address.schema}"'
    with _alone(connection, address):
        # An existing schema is used as it is: the role may not be allowed to create one.
        if texts(connection, f"SELECT to_regnamespace('{name}')".encode()) == [""]:
            connection.script(f"CREATE SCHEMA {name}".encode())
        connection.script(f"SET LOCAL search_path TO {name}; {_VERSIONS}".encode())
        before = version_of(connection, address)
        for number, text in migrations().items():
            if number > before:
                connection.script(f"{text}; {_note(number)}".encode())
    return before


def drop_legacy(connection: PostgresConnection, address: Address) -> list[int]:
    """Apply the missing post migrations; returns their numbers."""
    done: list[int] = []
    with _alone(connection, address):
        connection.script(f'SET LOCAL search_path TO "{address.schema}"'.encode())
        for number, text in migrations(post=True).items():
            known = f"SELECT count(*) FROM schema_version WHERE is_post AND number = {number}"  # noqa: S608
            if texts(connection, known.encode()) == ["0"]:
                connection.script(f"{text}; {_note(number, post=True)}".encode())
                done.append(number)
    return done


@contextmanager
def _alone(connection: PostgresConnection, address: Address) -> Iterator[None]:
    """A transaction that excludes other migrations and all writes."""
    locks = [f"SELECT pg_advisory_xact_lock({address.key(one)})" for one in ("migrate", "write")]
    limit = f"SET LOCAL statement_timeout TO {MIGRATION_MS}"
    connection.script("; ".join(["BEGIN", limit, *locks]).encode())
    try:
        yield
    except BaseException:
        if connection.is_open:
            connection.script(b"ROLLBACK")
        raise
    connection.script(b"COMMIT")


def check_newer(connection: PostgresConnection, address: Address, version: int) -> None:
    """Refuse a schema that is more than one version ahead."""
    known = newest_version()
    table = f'"{address.schema}".schema_version'
    asked = f"SELECT coalesce(max(number), 0) FROM {table} WHERE is_post"  # noqa: S608
    (post,) = texts(connection, asked.encode())
    if known < max(version - 1, int(post)):
        raise StoreTooNew(
            f"{address.shown} was written by a newer Rota (schema {version}; this one knows "
            f"{known}): upgrade this program, or use another schema",
            schema=version,
            known=known,
        )
    log.warning("store_newer", store=address.shown, schema=version, known=known)
