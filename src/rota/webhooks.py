"""Checks requests that a coordinator has signed: webhooks, and tasks pushed over HTTP.

import rota.webhooks

event = rota.webhooks.verify(request.headers, request.body, secret)
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core import limits
from rota.core.outbound.signatures import SignatureMismatch, check_signature
from rota.errors import Invalid

__all__ = ["SignatureMismatch", "verify"]

TOLERANCE_S = limits.WEBHOOK_TOLERANCE_MS / 1000


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    *,
    tolerance_s: float = TOLERANCE_S,
    now_s: float | None = None,
) -> Any:
    """The JSON body of a request, if it was signed with this secret, and lately.

    Raises `SignatureMismatch` otherwise. `body` is the body as it arrived, byte for byte: JSON that
    was decoded and encoded again has another signature. Deliveries may come twice: a receiver that
    must not act twice remembers the header `webhook-id`.
    """
    now_s = time.time() if now_s is None else now_s
    check_signature(headers, body, secret, now_s=now_s, tolerance_s=tolerance_s)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is signed, but is not JSON: {error}") from error
