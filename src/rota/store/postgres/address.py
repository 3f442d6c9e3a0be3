"""Where is the database, and in which schema? And how is that told without its password?"""

import hashlib
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from rota.errors import Invalid

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "rota"
HIDDEN = "***"
SECRETS = frozenset({"password", "sslpassword", "passfile"})
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Address(NamedTuple):
    url: str  # as libpq takes it, with the password
    shown: str  # as people may see it
    schema: str

    def key(self, purpose: str) -> int:
        """The number of an advisory lock: locks of one database are told apart by schema."""
        digest = hashlib.sha256(f"rota {purpose} {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)


def is_postgres(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES


def address_of(url: str, schema: str | None = None) -> Address:
    """Take a `postgresql://` URL apart; `?schema=` in it comes before what is given beside it."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise Invalid("the store is not a postgresql:// URL", setting="store")
    options = parse_qsl(parts.query, keep_blank_values=True)
    asked = [value for name, value in options if name == "schema"]
    chosen = asked[-1] if asked else schema or DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(chosen):
        raise Invalid(
            f"{chosen!r} cannot be the name of a schema here: lower-case letters, digits and "
            "underscores, no more than 40",
            setting="store",
        )
    rest = urlencode([pair for pair in options if pair[0] != "schema"], quote_via=quote)
    return Address(urlunsplit(parts._replace(query=rest)), shown(url), chosen)


def shown(url: str) -> str:
    """The URL without what must not be seen."""
    parts = urlsplit(url)
    place = parts.netloc
    user, sign, host = place.rpartition("@")
    if sign:
        place = user.partition(":")[0] + (f":{HIDDEN}" if ":" in user else "") + "@" + host
    options = parse_qsl(parts.query, keep_blank_values=True)
    hidden = [(name, HIDDEN if name in SECRETS else value) for name, value in options]
    query = urlencode(hidden, safe="/*", quote_via=quote)
    return urlunsplit(parts._replace(netloc=place, query=query))
