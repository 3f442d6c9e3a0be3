"""The dashboard's cookie: unreadable for scripts, never sent by other sites.

The cookie is named after the port, since browsers keep one jar for all ports of a host and several
coordinators may run on one. A change that comes with a cookie must say which origin it comes from,
and be ours. A request with an `Authorization` header is authenticated without its cookie.
"""

from http.cookies import CookieError, SimpleCookie

from rota.core.access import LOCAL, Caller
from rota.errors import Forbidden, Unauthorized
from rota.gateways.auth.authenticator import Authenticator
from rota.gateways.auth.request_auth import Headers, header_text

PREFIX = "rota_token_"


def cookie_name(headers: Headers) -> str:
    port = (header_text(headers, b"host") or "").rpartition(":")[2]
    return PREFIX + (port if port.isdigit() else "default")


def secret_of(headers: Headers) -> str | None:
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
    origin = header_text(headers, b"origin")
    authenticator.check_browser(
        host=header_text(headers, b"host"), origin=origin, is_change=is_change
    )
    if is_change and origin is None and secret_of(headers) is not None:
        raise Forbidden("a change that comes with a cookie must say its Origin")


async def authenticate(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller:
    """Identify the caller of a request without an `Authorization` header, by its cookie if any."""
    check_browser(authenticator, headers, is_change=is_change)
    secret = secret_of(headers)
    try:
        return await authenticator.identify(secret)
    except Unauthorized:
        if secret is not None and authenticator.is_open:
            return LOCAL  # an old cookie must not lock out a caller that needs no token
        raise


def set_cookie(headers: Headers, secret: str) -> tuple[str, str]:
    """The header that makes a browser keep a token until it is closed."""
    is_secure = header_text(headers, b"x-forwarded-proto") == "https"
    return "set-cookie", f"{cookie_name(headers)}={secret}; {_terms(is_secure=is_secure)}"


def clear_cookie(headers: Headers) -> tuple[str, str]:
    return "set-cookie", f"{cookie_name(headers)}=; Max-Age=0; {_terms(is_secure=False)}"


def _terms(*, is_secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")
