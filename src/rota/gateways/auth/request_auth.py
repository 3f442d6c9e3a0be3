"""Authentication of a request by its headers, the same for every transport."""

from collections.abc import Mapping

from rota.core.access import Caller
from rota.errors import Unauthorized
from rota.gateways.auth.authenticator import Authenticator

Headers = Mapping[bytes, bytes]


async def authenticate(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller:
    """Identify the caller; without a token, refuse what a foreign web page could send."""
    secret = secret_in(headers)
    if secret is None:
        _check_browser(authenticator, headers, is_change=is_change)
    return await authenticator.identify(secret)


def authenticate_at_once(
    authenticator: Authenticator, headers: Headers, *, is_change: bool
) -> Caller | None:
    """Identify the caller without the store; None: that needs the store, or a cookie."""
    secret = secret_in(headers)
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


def secret_in(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    if header is None:
        return None
    scheme, _, secret = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("only `Authorization: Bearer …` is understood")
    return secret.strip()


def header_text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
