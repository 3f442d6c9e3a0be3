"""Who stands behind the headers of a request? Asked the same way for every kind of request."""

from collections.abc import Mapping

from rota.core.access import Caller
from rota.errors import Unauthorized
from rota.gateways.gate import Gate

Headers = Mapping[bytes, bytes]


async def admit(gate: Gate, headers: Headers, *, is_change: bool) -> Caller:
    """The caller, if the gate lets it in; without a token, no foreign web page is."""
    secret = secret_in(headers)
    if secret is None:
        gate.check_browser(
            host=_text(headers.get(b"host")),
            origin=_text(headers.get(b"origin")),
            is_change=is_change,
        )
    return await gate.identify(secret)


def secret_in(headers: Headers) -> str | None:
    header = headers.get(b"authorization")
    if header is None:
        return None
    scheme, _, secret = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("only `Authorization: Bearer …` is understood")
    return secret.strip()


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")
