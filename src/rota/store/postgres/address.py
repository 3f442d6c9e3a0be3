"""Where is the database, and in which schema? And how is that told without its password?"""

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


class Address(NamedTuple):
    url: str  # as libpq takes it, with the password
    shown: str  # as people may see it
    schema: str

    def key(self, purpose: str) -> int:
        """The number of an advisory lock: locks of one database are told apart by schema."""
        digest = hashlib.sha256(f"rota {purpose} {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)


def address_of(url: str, schema: str | None = None) -> Address:
    """Take a `postgresql://` URL apart; `?schema=` in it comes before what is given beside it."""
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        assert parts.port != 0  # asking for it is what checks it
        conninfo_to_dict(_without_schema(url))
    except (ValueError, psycopg.Error):
        # What they have to say quotes the address, password and all.
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
    """The URL as libpq takes it, which knows nothing of schemas."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    rest = urlencode([pair for pair in options if pair[0] != "schema"], quote_via=quote)
    return urlunsplit(parts._replace(query=rest))
