"""Authentication of a request by its headers: its token, or the dashboard's cookie.

The cookie is unreadable for scripts and never sent by other sites. It is named after the port,
since browsers keep one jar for all ports of a host and several coordinators may run on one. A
change that comes with a cookie must say which origin it comes from, and be ours. A request with an
`Authorization` header is authenticated without its cookie.
"""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from rota.core.access import LOCAL, Caller
from rota.errors import Forbidden, Unauthorized
from rota.gateways.auth.authenticator import Authenticator

Headers = Mapping[bytes, bytes]
COOKIE_PREFIX = "rota_token_"


async def authenticate(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller:
    """Identify the caller; without a token, refuse what a foreign web page could send."""
    secret = secret_in_header(headers)
    if secret is None:
        _check_browser(authenticator, headers, is_change=is_change)
    return await authenticator.identify(secret)


def authenticate_at_once(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller | None:
    """Identify the caller without the store; None: that needs the store, or a cookie."""
    secret = secret_in_header(headers)
    if secret is not None:
        return authenticator.identify_at_once(secret)
    if b"cookie" in headers:
        return None
    _check_browser(authenticator, headers, is_change=is_change)
    return authenticator.anonymous()


def _check_browser(authenticator: Authenticator, headers: Headers, *, is_change: bool) -> None:
    authenticator.check_browser(
        host=header_text(headers, b"host"),
        origin=header_text(headers, b"origin"),
        is_change=is_change,
    )


def secret_in_header(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    if header is None:
        return None
    scheme, _, secret = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("only `Authorization: Bearer TOKEN` is supported")
    return secret.strip()


def header_text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


# --- the dashboard's cookie ---------------------------------------------------------------------


def cookie_name(headers: Headers) -> str:
    port = (header_text(headers, b"host") or "").rpartition(":")[2]
    return COOKIE_PREFIX + (port if port.isdigit() else "default")


def secret_in_cookie(headers: Headers) -> str | None:
    """The token in the cookie of a browser, if it has one for this coordinator."""
    if b"cookie" not in headers:  # as programs do not
        return None
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header_text(headers, b"cookie") or "")
    except CookieError:
        return None
    morsel = jar.get(cookie_name(headers))
    return None if morsel is None else morsel.value or None


def check_browser(authenticator: Authenticator, headers: Headers, *, is_change: bool) -> None:
    """Refuse what a foreign web page could make a browser send."""
    _check_browser(authenticator, headers, is_change=is_change)
    if is_change and b"origin" not in headers and secret_in_cookie(headers) is not None:
        raise Forbidden("a change that is authenticated by a cookie needs an Origin header")


async def authenticate_browser(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller:
    """Identify the caller of a request without an `Authorization` header, by its cookie if any."""
    check_browser(authenticator, headers, is_change=is_change)
    secret = secret_in_cookie(headers)
    try:
        return await authenticator.identify(secret)
    except Unauthorized:
        if secret is not None and authenticator.is_open:
            return LOCAL  # an old cookie must not lock out a caller that needs no token
        raise


def set_cookie(headers: Headers, secret: str, *, is_tls: bool) -> tuple[str, str]:
    """The header that makes a browser keep a token until it is closed."""
    is_secure = is_tls or header_text(headers, b"x-forwarded-proto") == "https"
    return "set-cookie", f"{cookie_name(headers)}={secret}; {_terms(is_secure=is_secure)}"


def clear_cookie(headers: Headers) -> tuple[str, str]:
    return "set-cookie", f"{cookie_name(headers)}=; Max-Age=0; {_terms(is_secure=False)}"


def _terms(*, is_secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")
