"""Who is calling, and may they come in? The one place that every gateway asks.

Deny by default. A coordinator bound to loopback is open to whoever is on the machine, unless the
operator asked for `--require-token`, as one must behind a proxy; anywhere else a token is needed,
unless the operator asked for `--insecure`. A token that is presented is
checked even where none is needed: a caller who believes to be somebody must not silently be
somebody else. Only hashes are kept, so a stolen database opens nothing.

An open coordinator has one more enemy: a web page in the operator's own browser. Such a page
cannot set an Authorization header without our leave, so only calls without a token are looked at:
their Host must be this machine (or a name in the DNS was pointed at it), and a change must not
come from another origin.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from rota.addresses import without_password
from rota.core.access import LOCAL, AccessToken, Caller, Scope, caller_of, is_expired
from rota.errors import Forbidden, Invalid, Unauthorized
from rota.messages import TokenRequest
from rota.settings import Settings

SECRET_PREFIX = "rota_"  # noqa: S105 - how tokens begin, not one of them
SECRET_BYTES = 32
SECRET_LENGTH = len(SECRET_PREFIX) + 43
TOKEN_ID_BYTES = 6
RELOAD_AFTER_S = 3.0  # how long a token revoked by another process may still open the door
BUCKET_DIGITS = 8

TokensLoader = Callable[[], Awaitable[Sequence[AccessToken]]]


def new_secret() -> str:
    """A token as its owner sees it, once."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def hash_of(secret: str) -> str:
    # No salt and no stretching: there is nothing to guess in 256 random bits.
    return hashlib.sha256(secret.encode()).hexdigest()


def new_token(asked: TokenRequest, *, now_ms: int) -> tuple[AccessToken, str]:
    """A token as it is stored, and the secret that opens with it."""
    secret = new_secret()
    token = AccessToken(
        id=f"t-{secrets.token_hex(TOKEN_ID_BYTES)}",
        hash=hash_of(secret),
        name=asked.name,
        scopes=tuple(Scope(scope) for scope in dict.fromkeys(asked.scopes)),
        queues=None if asked.queues is None else tuple(dict.fromkeys(asked.queues)),
        services=None if asked.services is None else tuple(dict.fromkeys(asked.services)),
        worker_id=asked.worker_id,
        created_at_ms=now_ms,
        expires_at_ms=None if asked.expires_in_ms is None else now_ms + asked.expires_in_ms,
    )
    return token, secret


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_unsafe_bind(settings: Settings, tokens: Sequence[AccessToken]) -> None:
    """Refuse to listen where strangers can reach us, unless they need a token."""
    if is_loopback(settings.host) or settings.insecure or tokens:
        return
    raise Invalid(
        f"binding to {settings.host} needs a token: run `rota token create --scope admin "
        f"--store {without_password(settings.store)}`, or pass --insecure",
        field="host",
    )


class Gate:
    def __init__(
        self,
        settings: Settings,
        load_tokens: TokensLoader,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._host = settings.host.lower()
        self._is_local = is_loopback(settings.host)
        is_trusted = self._is_local and not settings.require_token
        self._is_open = is_trusted or settings.insecure
        is_zmq_open = settings.insecure and settings.zmq_keys is None
        self._zmq_host = settings.zmq_host
        self._is_zmq_exposed = is_zmq_open and not is_loopback(settings.zmq_host)
        self._load_tokens = load_tokens
        self._now_ms = now_ms
        self._buckets: dict[str, list[AccessToken]] = {}
        self._stale_at_s = 0.0
        self._reloading = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether it lets in those who show no token."""
        return self._is_open

    async def identify(self, secret: str | None) -> Caller:
        """Tell who presents this token; without one, who an open door lets in."""
        return self.stranger() if secret is None else await self._caller_with(secret)

    def stranger(self) -> Caller:
        """Who an open door lets in without a token."""
        if self._is_open:
            return LOCAL
        raise Unauthorized("a token is needed: send `Authorization: Bearer rota_…`")

    def check_browser(self, *, host: str | None, origin: str | None, is_change: bool) -> None:
        """Refuse what a foreign web page could make a browser send to an open coordinator."""
        if self._is_local and host is not None and not self._is_own_host(host):
            raise Forbidden(f"this coordinator is not {host!r}; call it by a loopback address")
        if is_change and origin is not None and _authority(origin) != (host or "").lower():
            raise Forbidden(f"a page of {origin!r} may not change anything here", origin=origin)

    def forget_tokens(self) -> None:
        """Tokens have changed: read them again before the next one is checked."""
        self._stale_at_s = 0.0

    def warnings(self) -> list[str]:
        warnings = []
        if self._is_open and not self._is_local:
            warnings.append(f"insecure: everybody who can reach {self._host} may do everything")
        if self._is_zmq_exposed:
            host = self._zmq_host
            warnings.append(f"insecure: everybody who can reach ZeroMQ on {host} may take shards")
        return warnings

    async def _caller_with(self, secret: str) -> Caller:
        token = None
        if secret.startswith(SECRET_PREFIX) and len(secret) == SECRET_LENGTH:
            token = await self._find(hash_of(secret))
        if token is None or is_expired(token, now_ms=self._now_ms()):
            raise Unauthorized("the token is not known, was revoked, or has expired")
        return caller_of(token)

    async def _find(self, digest: str) -> AccessToken | None:
        await self._reload_if_stale()
        bucket = self._buckets.get(digest[:BUCKET_DIGITS], ())
        matching = [token for token in bucket if hmac.compare_digest(token.hash, digest)]
        return matching[0] if matching else None

    async def _reload_if_stale(self) -> None:
        if time.monotonic() < self._stale_at_s:
            return
        async with self._reloading:
            if time.monotonic() < self._stale_at_s:
                return  # somebody else did it while we waited
            # Set before reading: a token that changes meanwhile makes it stale once more.
            self._stale_at_s = time.monotonic() + RELOAD_AFTER_S
            try:
                tokens = await self._load_tokens()
            except BaseException:
                self.forget_tokens()
                raise
            self._buckets = {}
            for token in tokens:
                self._buckets.setdefault(token.hash[:BUCKET_DIGITS], []).append(token)

    def _is_own_host(self, header: str) -> bool:
        name = _host_name(header)
        return name is not None and (is_loopback(name) or name == self._host)


@lru_cache(maxsize=256)
def _host_name(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() or None
