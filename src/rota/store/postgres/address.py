"""The address of a database and its schema, and the options of a store on PostgreSQL."""

import hashlib
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.addresses import without_password
from rota.errors import Invalid

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "rota"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class PostgresOptions(NamedTuple):
    schema: str = "rota"
    readers: int = 8  # connections that read, at most
    statement_ms: int = 15_000  # of one statement
    lock_ms: int = 10_000  # of a wait for a lock, as that of a takeover or a migration
    idle_ms: int = 10_000  # of a pause in a transaction; then the database ends it


class Address(NamedTuple):
    url: str  # as libpq takes it, with the password
    shown: str  # as people may see it
    schema: str

    def key(self, purpose: str) -> int:
        """The number of an advisory lock, distinct for each schema of a database."""
        digest = hashlib.sha256(f"rota {purpose} {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)


def address_of(url: str, schema: str | None = None) -> Address:
    """Parse a `postgresql://` URL. `?schema=` in it overrides `schema`."""
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        assert parts.port != 0  # reading the port validates it
        conninfo_to_dict(_without_schema(url))
    except (ValueError, psycopg.Error):
        # The message would quote the address with its password.
        raise Invalid(f"{shown!r} is not a valid postgresql:// URL", setting="store") from None
    if parts.scheme not in SCHEMES:
        raise Invalid(f"{shown!r} is not a postgresql:// URL", setting="store")
    options = parse_qsl(parts.query, keep_blank_values=True)
    asked = [value for name, value in options if name == "schema"]
    chosen = asked[-1] if asked else schema or DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(chosen):
        raise Invalid(
            f"{chosen!r} cannot be the name of a schema here: lower-case letters, digits and "
            "underscores, no more than 40",
            setting="store",
        )
    return Address(_without_schema(url), shown, chosen)


def _without_schema(url: str) -> str:
    """The URL without `?schema=`, which libpq does not know."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    rest = urlencode([pair for pair in options if pair[0] != "schema"], quote_via=quote)
    return urlunsplit(parts._replace(query=rest))
