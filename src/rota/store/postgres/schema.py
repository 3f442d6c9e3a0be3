"""Which shape has the schema, and how does it get the one this code needs?

Migrations are numbered files, each applied once, in one transaction with its number, under an
advisory lock: of coordinators that start at the same time one does it, the others find it done.

A coordinator of the version before has to go on working while those of the new one come up. So a
migration only adds (`NNNN_name.sql`). What takes away, once nobody needs it any more, stands beside
it in `NNNN_name.post.sql`, and is applied by `rota migrate --post`, when the last coordinator of
the version before is gone. A schema is refused by code that is further behind than that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import NamedTuple

import structlog

from rota.errors import StoreError, StoreTooNew
from rota.store.postgres.address import Address
from rota.store.postgres.link import Link
from rota.store.postgres.options import PostgresOptions

log = structlog.get_logger("rota.store")

OLDEST_SERVER = 140_000
DURABLE = frozenset({"on", "remote_apply"})
POST = ".post.sql"
MIGRATION_MS = 600_000  # of one statement of a migration


# The order of a join is the one that is written, over indexes, as it is on SQLite: tables that are
# empty in one minute and hold a million rows in the next mislead those who guess.
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


class Beginnings(NamedTuple):
    """Messages that are the same for every transaction of a database."""

    write: bytes
    commit: tuple[bytes, ...]  # of a transaction that changed something
    read: bytes
    turn: bytes


def beginnings(address: Address, options: PostgresOptions) -> Beginnings:
    name = f'"{address.schema}"'
    settings = {
        "search_path": f"{address.schema}, pg_temp",
        "statement_timeout": str(options.statement_ms),
        "lock_timeout": str(options.lock_ms),
        "idle_in_transaction_session_timeout": str(options.idle_ms),
        **PLANS,
    }
    pairs = [f"set_config('{one}', '{value}', true)" for one, value in settings.items()]
    common = f"SELECT {', '.join(pairs)}; "
    # A sequence that nobody has asked yet has the number that it gives first.
    turn = "CASE WHEN is_called THEN last_value ELSE 0 END"
    now_ms = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    return Beginnings(
        write=(
            f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {common}"  # noqa: S608 - a checked name
            f"SELECT pg_advisory_xact_lock({address.key('write')}); "
            f"SELECT {turn}, {now_ms} FROM {name}.turn"
        ).encode(),
        commit=(f"SELECT nextval('{name}.turn')".encode(), b"COMMIT"),
        read=f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {common}".encode(),
        turn=f"SELECT {turn} FROM {name}.turn".encode(),  # noqa: S608 - a checked name
    )


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
    """All of it as one script, for those who let nobody but themselves change a schema."""
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


def prepare(link: Link, address: Address) -> tuple[int, int]:
    """Check the server and bring the schema up to date; says from which version to which."""
    check_server(link, address)
    before = version_of(link, address)
    known = newest_version()
    if before < known:
        before = _migrate(link, address)
    elif before > known:
        check_newer(link, address, before)
    return before, max(before, known)


def check_server(link: Link, address: Address) -> None:
    asked = b"""
    SELECT current_setting('server_version_num'), current_setting('server_encoding'),
           current_setting('synchronous_commit'), current_setting('fsync'), current_user
    """
    version, encoding, commit, fsync, user = texts(link, asked)
    if int(version) < OLDEST_SERVER:
        raise StoreError(
            f"{address.shown} is PostgreSQL {int(version) // 10_000}: Rota needs 14 or newer"
        )
    if encoding != "UTF8":
        raise StoreError(
            f"{address.shown} keeps text as {encoding}: make a database with ENCODING 'UTF8'"
        )
    if commit not in DURABLE:
        raise StoreError(
            f"{address.shown} has synchronous_commit = {commit}, so that what was acknowledged "
            f'could be lost: set it to on, as by ALTER ROLE "{user}" SET synchronous_commit = on'
        )
    if fsync == "off":
        log.warning("store does not sync", store=address.shown, setting="fsync")


def texts(link: Link, text: bytes) -> list[str]:
    result = link.script(text)[-1]
    return [(result.get_value(0, one) or b"").decode() for one in range(result.nfields)]


def version_of(link: Link, address: Address) -> int:
    """The newest migration that was applied; 0: there is no schema."""
    table = f'"{address.schema}".schema_version'
    if texts(link, f"SELECT to_regclass('{table}')".encode()) == [""]:
        return 0
    asked = f"SELECT coalesce(max(number), 0) FROM {table} WHERE NOT is_post"  # noqa: S608
    return int(texts(link, asked.encode())[0])


def _migrate(link: Link, address: Address) -> int:
    """Apply what is missing; the answer is which version there was before."""
    name = f'"{address.schema}"'
    with _alone(link, address):
        # Only who may create schemas has to; one that is there is taken as it is.
        if texts(link, f"SELECT to_regnamespace('{name}')".encode()) == [""]:
            link.script(f"CREATE SCHEMA {name}".encode())
        link.script(f"SET LOCAL search_path TO {name}; {_VERSIONS}".encode())
        before = version_of(link, address)
        for number, text in migrations().items():
            if number > before:
                link.script(f"{text}; {_note(number)}".encode())
    return before


def take_away(link: Link, address: Address) -> list[int]:
    """Apply what takes away what only older coordinators need; which of it was not done before."""
    done: list[int] = []
    with _alone(link, address):
        link.script(f'SET LOCAL search_path TO "{address.schema}"'.encode())
        for number, text in migrations(post=True).items():
            known = f"SELECT count(*) FROM schema_version WHERE is_post AND number = {number}"  # noqa: S608
            if texts(link, known.encode()) == ["0"]:
                link.script(f"{text}; {_note(number, post=True)}".encode())
                done.append(number)
    return done


@contextmanager
def _alone(link: Link, address: Address) -> Iterator[None]:
    """A transaction beside which nobody migrates, and nobody writes."""
    locks = [f"SELECT pg_advisory_xact_lock({address.key(one)})" for one in ("migrate", "write")]
    limit = f"SET LOCAL statement_timeout TO {MIGRATION_MS}"
    link.script("; ".join(["BEGIN", limit, *locks]).encode())
    try:
        yield
    except BaseException:
        if link.is_open:
            link.script(b"ROLLBACK")
        raise
    link.script(b"COMMIT")


def check_newer(link: Link, address: Address, version: int) -> None:
    """A schema that is one step ahead is that of the next version, which we may run beside."""
    known = newest_version()
    table = f'"{address.schema}".schema_version'
    asked = f"SELECT coalesce(max(number), 0) FROM {table} WHERE is_post"  # noqa: S608
    (post,) = texts(link, asked.encode())
    if known < max(version - 1, int(post)):
        raise StoreTooNew(
            f"{address.shown} was written by a newer Rota (schema {version}; this one knows "
            f"{known}): upgrade this program, or use another schema",
            schema=version,
            known=known,
        )
    log.warning("store is newer", store=address.shown, schema=version, known=known)
