"""Authentication: from tokens to callers, and the checks of browser requests.

Deny by default. A coordinator bound to loopback is open to every user of the machine, unless the
operator passes `--require-token`, as is needed behind a proxy. Anywhere else a token is needed,
unless the operator passes `--insecure`. A token that is presented is checked even where none is
needed: a caller must not silently be taken for another one. Only hashes are stored, so a stolen
database opens nothing.

A web page in the operator's own browser can attack an open coordinator. Such a page cannot set an
Authorization header, so only calls without a token are checked: their Host must be this machine
(otherwise a name in the DNS was pointed at it), and a change must not come from another origin.
"""

import asyncio
import hashlib
import hmac
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from rota.addresses import without_password
from rota.core import limits
from rota.core.access import (
    LOCAL,
    AccessToken,
    Caller,
    Scope,
    caller_of,
    check_bindable,
    is_expired,
)
from rota.errors import Forbidden, Invalid, Unauthorized
from rota.gateways.auth.token_uses import TokenUses
from rota.messages import TokenRequest
from rota.settings import Settings

SECRET_PREFIX = "rota_"  # noqa: S105 - how tokens begin, not one of them
SECRET_BYTES = 32
SECRET_LENGTH = len(SECRET_PREFIX) + 43
SECRET_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_")
TOKEN_ID_BYTES = 6
RELOAD_AFTER_S = 3.0  # how long a token revoked by another process still counts
BUCKET_DIGITS = 8

TokensLoader = Callable[[], Awaitable[Sequence[AccessToken]]]


def new_secret() -> str:
    """A new token as its owner sees it, once."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def hash_of(secret: str) -> str:
    # No salt and no stretching: there is nothing to guess in 256 random bits.
    return hashlib.sha256(secret.encode()).hexdigest()


def check_secret(secret: str) -> None:
    """Refuse a secret that this program has not made: it may be guessed."""
    if not _is_secret(secret) or not set(secret) <= SECRET_CHARACTERS:
        raise Invalid("this is not the secret of a token: `rota token generate` makes one")


def new_token(
    asked: TokenRequest, *, now_ms: int, secret: str | None = None
) -> tuple[AccessToken, str]:
    """A token as it is stored, and its secret; an `admin` token is never bound."""
    secret = new_secret() if secret is None else secret
    check_secret(secret)
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
    check_bindable(token)
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
    """Refuse to listen on a public address without tokens."""
    if is_loopback(settings.host) or settings.insecure or tokens:
        return
    raise Invalid(
        f"binding to {settings.host} needs a token: run `rota token create --scope admin "
        f"--store {without_password(settings.store)}`, or pass --insecure",
        field="host",
    )


class Authenticator:
    def __init__(
        self,
        settings: Settings,
        load_tokens: TokensLoader,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._host = settings.host.lower()
        self._is_local = is_loopback(settings.host)
        self._is_tls = settings.tls_cert is not None
        is_trusted = self._is_local and not settings.require_token
        self._is_open = is_trusted or settings.insecure
        is_zmq_open = settings.insecure and settings.zmq_keys is None
        self._zmq_host = settings.zmq_host
        self._is_zmq_exposed = is_zmq_open and not is_loopback(settings.zmq_host)
        self._load_tokens = load_tokens
        self._now_ms = now_ms
        self._buckets: dict[str, list[AccessToken]] = {}
        self._by_id: dict[str, AccessToken] = {}
        self._stale_at_s = 0.0
        self._changes = 0  # of tokens in this process
        # The changes up to which the tokens were read; none at first, so that the first callers
        # wait for the tokens to be read.
        self._known_changes = -1
        self._reloading = asyncio.Lock()
        self.uses = TokenUses(self._reload_if_stale, self._is_good)

    @property
    def is_open(self) -> bool:
        """Whether a caller without a token is accepted."""
        return self._is_open

    async def identify(self, secret: str | None) -> Caller:
        """The caller that presents this token; without one, the anonymous caller."""
        return self.anonymous() if secret is None else await self._caller_with(secret)

    def anonymous(self) -> Caller:
        """The caller without a token, where none is needed."""
        if self._is_open:
            return LOCAL
        raise Unauthorized("a token is needed: send `Authorization: Bearer rota_…`")

    def check_browser(self, *, host: str | None, origin: str | None, is_change: bool) -> None:
        """Refuse what a foreign web page could make a browser send to an open coordinator."""
        if self._is_local and host is not None and not self._is_own_host(host):
            raise Forbidden(f"this coordinator is not {host!r}; call it by a loopback address")
        if is_change and origin is not None and not self._is_own_origin(origin, host):
            raise Forbidden(f"a page of {origin!r} may not change anything here", origin=origin)

    def forget_tokens(self) -> None:
        """Read the tokens again before the next one is checked, because they have changed."""
        self._changes += 1
        self.uses.note_change()

    def warnings(self) -> list[str]:
        warnings = []
        if self._is_open and not self._is_local:
            warnings.append(f"insecure: everyone who can reach {self._host} may do everything")
        if self._is_zmq_exposed:
            host = self._zmq_host
            warnings.append(f"insecure: everyone who can reach ZeroMQ on {host} may take shards")
        return warnings

    def identify_at_once(self, secret: str) -> Caller | None:
        """The caller that presents this token; None: the tokens have to be read again first."""
        return None if self._is_stale() else self._known(secret)

    async def _caller_with(self, secret: str) -> Caller:
        if _is_secret(secret):
            await self._reload_if_stale()
        return self._known(secret)

    def _known(self, secret: str) -> Caller:
        token = self._find(hash_of(secret)) if _is_secret(secret) else None
        if token is None or is_expired(token, now_ms=self._now_ms()):
            raise Unauthorized("the token is not known, was revoked, or has expired")
        return caller_of(token)

    def _find(self, digest: str) -> AccessToken | None:
        bucket = self._buckets.get(digest[:BUCKET_DIGITS], ())
        matching = [token for token in bucket if hmac.compare_digest(token.hash, digest)]
        return matching[0] if matching else None

    async def _reload_if_stale(self) -> None:
        if not self._is_stale():
            return
        async with self._reloading:
            if not self._is_stale():
                return  # another caller did it while this one waited
            # Counted before reading: a token that changes meanwhile makes it stale once more. While
            # tokens are merely old, others use them until the new ones are here.
            changes = self._changes
            self._stale_at_s = time.monotonic() + RELOAD_AFTER_S
            try:
                tokens = await self._load_tokens()
            except BaseException:
                self._stale_at_s = 0.0
                raise
            self._known_changes = changes
            self._by_id = {token.id: token for token in tokens}
            self._buckets = {}
            for token in tokens:
                self._buckets.setdefault(token.hash[:BUCKET_DIGITS], []).append(token)

    def _is_stale(self) -> bool:
        return self._known_changes != self._changes or time.monotonic() >= self._stale_at_s

    def _is_good(self, token_id: str) -> bool:
        token = self._by_id.get(token_id)
        return token is not None and not is_expired(token, now_ms=self._now_ms())

    def _is_own_origin(self, origin: str, host: str | None) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        # Without TLS here, the page may still have come over TLS, through a proxy.
        is_same_scheme = parts.scheme == "https" or not self._is_tls
        return is_same_scheme and parts.netloc.lower() == (host or "").lower() != ""

    def _is_own_host(self, header: str) -> bool:
        if len(header) > limits.MAX_HOST_LENGTH:
            return False  # and not remembered
        name = _host_name(header)
        return name is not None and (is_loopback(name) or name == self._host)


def _is_secret(text: str) -> bool:
    return text.startswith(SECRET_PREFIX) and len(text) == SECRET_LENGTH


@lru_cache(maxsize=256)
def _host_name(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
