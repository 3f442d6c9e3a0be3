"""How is the address of a store shown? Without what only its owner may know."""

from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

HIDDEN = "…"
SECRETS = frozenset({"password", "sslpassword", "passfile", "sslkey"})


def without_password(address: str) -> str:
    """An address as it may be shown, logged and answered."""
    scheme, sign, _ = address.partition("://")
    if not sign:
        return address
    try:
        parts = urlsplit(address)
    except ValueError:
        return f"{scheme}://{HIDDEN}"  # nobody can tell what in it is a password
    if parts.fragment or "@" in parts.path:
        # A sign that was not quoted ends the address too early; what follows may be a secret.
        return f"{scheme}://{HIDDEN}"
    place, options = _place(parts.netloc), parse_qsl(parts.query, keep_blank_values=True)
    if all(name not in SECRETS for name, _ in options):
        return address.replace(parts.netloc, place, 1) if parts.netloc else address
    shown = [(name, HIDDEN if name in SECRETS else quote(value)) for name, value in options]
    query = "&".join(f"{quote(name)}={value}" for name, value in shown)
    return urlunsplit(parts._replace(netloc=place, query=query))


def _place(netloc: str) -> str:
    who, sign, host = netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{user}{colon}{HIDDEN if colon else ''}{sign}{host}"
