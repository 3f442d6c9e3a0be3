"""How does a browser show its token? In a cookie that no script can read and no other site sends.

The cookie is named after the port, since browsers keep one jar for all ports of a host and several
coordinators may run on one. A change that comes with a cookie must say which origin it comes from,
and be ours; requests with an `Authorization` header are none of this module's business.
"""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from rota.core.access import LOCAL, Caller
from rota.errors import Forbidden, Unauthorized
from rota.gateways.gate import Gate

Headers = Mapping[bytes, bytes]

PREFIX = "rota_token_"


def text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def cookie_name(headers: Headers) -> str:
    port = (text(headers, b"host") or "").rpartition(":")[2]
    return PREFIX + (port if port.isdigit() else "default")


def secret_of(headers: Headers) -> str | None:
    """The token that a browser shows, if it has one for this coordinator."""
    if b"cookie" not in headers:  # as programs do not
        return None
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(text(headers, b"cookie") or "")
    except CookieError:
        return None
    morsel = jar.get(cookie_name(headers))
    return None if morsel is None else morsel.value or None


def check_browser(gate: Gate, headers: Headers, *, is_change: bool) -> None:
    """Refuse what a foreign web page could make a browser send."""
    origin = text(headers, b"origin")
    gate.check_browser(host=text(headers, b"host"), origin=origin, is_change=is_change)
    if is_change and origin is None and secret_of(headers) is not None:
        raise Forbidden("a change that comes with a cookie must say its Origin")


async def identify(gate: Gate, secret: str) -> Caller:
    """Tell who calls with a cookie, and without an `Authorization` header."""
    try:
        return await gate.identify(secret)
    except Unauthorized:
        if gate.is_open:  # a cookie that is left over must not lock out whom an open door lets in
            return LOCAL
        raise


def keeping(headers: Headers, secret: str) -> tuple[str, str]:
    """The header that makes a browser keep a token until it is closed."""
    is_secure = text(headers, b"x-forwarded-proto") == "https"
    return "set-cookie", f"{cookie_name(headers)}={secret}; {_terms(is_secure=is_secure)}"


def forgetting(headers: Headers) -> tuple[str, str]:
    return "set-cookie", f"{cookie_name(headers)}=; Max-Age=0; {_terms(is_secure=False)}"


def _terms(*, is_secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")
