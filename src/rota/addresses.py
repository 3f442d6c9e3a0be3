"""The address of a store as it may be shown: without what only its owner may know.

Only what is known to be harmless is shown. An address that is not understood may be anything, a
connection string of libpq (`host=… password=…`) for one, and is hidden as a whole.
"""

import re
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

HIDDEN = "…"
# Parameters of libpq that tell no secret; what is not among them is hidden.
HARMLESS = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "dbname",
        "gssencmode",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "load_balance_hosts",
        "port",
        "require_auth",
        "schema",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
_PATH = re.compile(r"(?:sqlite:)?[\w./~-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOST = r"(?:\[[\w.:%]*\]|[\w.%-]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_VALUE = re.compile(r"[\w ./,:*-]*")


def without_password(address: str) -> str:
    """An address without its secrets, to show, log and answer."""
    scheme, sign, _ = address.partition("://")
    if not sign or not _SCHEME.fullmatch(scheme):
        return address if _PATH.fullmatch(address) else HIDDEN
    hidden = f"{scheme}://{HIDDEN}"
    try:
        parts = urlsplit(address)
    except ValueError:
        return hidden  # it is unclear which part is a password
    if parts.scheme == "sqlite" and not parts.netloc:
        return address  # the path of a file
    login, sign, hosts = parts.netloc.rpartition("@")
    if not _HOSTS.fullmatch(hosts) or parts.fragment or "@" in f"{parts.path}{parts.query}":
        # An unquoted character ends the login too early; what follows may be a secret.
        return hidden
    user, colon, _ = login.partition(":")
    place = f"{user}{colon}{HIDDEN if colon else ''}{sign}{hosts}"
    options = parse_qsl(parts.query, keep_blank_values=True)
    if all(_is_harmless(name, value) for name, value in options):
        return address.replace(parts.netloc, place, 1) if parts.netloc else address
    query = "&".join(
        f"{quote(name)}={quote(value) if _is_harmless(name, value) else HIDDEN}"
        for name, value in options
    )
    return urlunsplit(parts._replace(netloc=place, query=query))


def without_secrets_of(address: str, text: str) -> str:
    """A library's text about an address, without the secret values of that address."""
    try:
        parts = urlsplit(address)
        login = parts.netloc.rpartition("@")[0]
        password = login.partition(":")[2]
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return HIDDEN
    secrets = [value for name, value in options if not _is_harmless(name, value)]
    for secret in sorted({password, unquote(password), *secrets}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, HIDDEN)
    return text


def _is_harmless(name: str, value: str) -> bool:
    return name in HARMLESS and _VALUE.fullmatch(value) is not None
