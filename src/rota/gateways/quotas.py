"""Quotas: the share of each caller of what a coordinator can hold at once.

Everything that a caller takes up while it is served (places of requests, long polls, event streams,
sockets, bytes of bodies) is counted in a `Quota`. A quota has a limit for all callers, a smaller
one for each caller, and a reserve for operators. So one caller always leaves a part for the others,
and an operator can look and act while all others are refused.

A caller is known by its token, and without one by its address. The calls that a worker needs to
keep its work (heartbeats, results, progress) have quotas of their own.
"""

import sys
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

from rota.core import limits
from rota.core.access import Caller, Scope
from rota.errors import Overloaded, TooMany
from rota.settings import Settings

UNKNOWN_ADDRESS = "unknown"
IPV6_NETWORK_BITS = 64  # what one subscriber is given: it can call from any address in it
RETRY_AFTER_S = 1


class QuotaExceeded(TooMany):
    """A refusal that is created once, so that it costs little under overload."""


class Quota:
    """A bounded amount of one thing, shared by all callers. Belongs to the event loop."""

    __slots__ = (
        "_full",
        "_held",
        "_over_share",
        "_scarce_from",
        "_share",
        "_unreserved",
        "_whole",
        "taken",
    )

    def __init__(
        self, what: str, whole: int, *, share: int | None = None, name: str, reserve: int = 0
    ) -> None:
        """`whole` is the limit for all, `share` that of one caller, `name` that of the limit.

        The last `reserve` of the whole is for operators alone.
        """
        self._whole = whole
        self._share = whole if share is None else share
        self._unreserved = whole - reserve
        self._scarce_from = min(self._unreserved, self._share)
        self._full = QuotaExceeded(
            f"{what}: at most {whole} at once, and all are taken",
            limit=whole,
            setting=name,
            retry_after_s=RETRY_AFTER_S,
        )
        self._over_share = QuotaExceeded(
            f"{what}: at most {self._share} at once of one caller",
            limit=self._share,
            setting=name,
            retry_after_s=RETRY_AFTER_S,
        )
        self._held: dict[str, int] = {}  # by caller, without callers that hold nothing
        self.taken = 0

    @property
    def whole(self) -> int:
        return self._whole

    @property
    def share(self) -> int:
        return self._share

    def held_by(self, holder: str) -> int:
        return self._held.get(holder, 0)

    @property
    def is_scarce(self) -> bool:
        """Whether so much is taken that some caller would be refused."""
        return self.taken >= self._scarce_from

    def refusal(self, holder: str, caller: Caller | None, amount: int = 1) -> QuotaExceeded | None:
        """The refusal of this much; None: the caller could take it."""
        taken = self.taken + amount
        if taken > self._unreserved and not (taken <= self._whole and is_operator(caller)):
            return self._full
        if self._held.get(holder, 0) + amount > self._share:
            return self._over_share
        return None

    def check(self, holder: str, caller: Caller | None, amount: int = 1) -> None:
        """Refuse when the caller could not take this much."""
        refusal = self.refusal(holder, caller, amount)
        if refusal is not None:
            raise refusal.with_traceback(None)

    def take(self, holder: str, caller: Caller | None, amount: int = 1) -> None:
        """Take this much for a caller, or refuse."""
        taken, held = self.taken + amount, self._held.get(holder, 0) + amount
        if taken > self._unreserved or held > self._share:
            self.check(holder, caller, amount)
        self.taken = taken
        self._held[holder] = held

    def release(self, holder: str, amount: int = 1) -> None:
        self.taken -= amount
        left = self._held[holder] - amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]


class Reservation:
    """What one request or socket holds, until it ends."""

    __slots__ = ("_taken", "caller", "holder")

    def __init__(self, holder: str, caller: Caller | None = None) -> None:
        self.holder = holder
        self.caller = caller
        self._taken: dict[Quota, int] = {}

    def take(self, quota: Quota, amount: int = 1) -> None:
        quota.take(self.holder, self.caller, amount)
        self._taken[quota] = self._taken.get(quota, 0) + amount

    def try_take(self, quota: Quota, amount: int = 1) -> bool:
        """Take this much if possible; return whether it was."""
        try:
            self.take(quota, amount)
        except TooMany:
            return False
        return True

    def release(self, quota: Quota) -> None:
        """Release all that was taken of a quota."""
        amount = self._taken.pop(quota, 0)
        if amount:
            quota.release(self.holder, amount)

    def end(self) -> None:
        for quota in list(self._taken):
            self.release(quota)


class RequestQuotas:
    """The quotas of one class of requests."""

    def __init__(self, what: str, settings: Settings, *, reserve: bool) -> None:
        most = settings.max_connections
        kept = most // limits.OPERATOR_PART if reserve else 0
        share = most - most // limits.LEFT_PART
        self.places = Quota(
            f"{what} under way", most, share=share, name="max_connections", reserve=kept
        )
        self.reading = Quota(
            f"{what} whose bodies are being read", most, share=share, name="max_connections"
        )
        # A caller alone can always send one body of the largest size.
        most_bytes = max(settings.max_bodies_bytes, 2 * settings.max_body_bytes)
        self.body_bytes = Quota(
            f"bytes of bodies of {what}", most_bytes, share=most_bytes // 2, name="max_bodies_bytes"
        )


class Quotas:
    """All quotas of a coordinator's HTTP and WebSocket gateways."""

    def __init__(self, settings: Settings) -> None:
        self.requests = RequestQuotas("requests", settings, reserve=True)
        self.keeping_work = RequestQuotas("calls that keep work", settings, reserve=False)
        most = settings.max_connections
        self.long_polls = Quota(
            "long polls",
            most - most // limits.LEFT_PART,
            share=most - most // limits.LONG_POLLS_LEFT_PART,
            name="max_connections",
            reserve=most // limits.OPERATOR_PART,
        )
        self.anonymous = Quota(
            "requests that need no token",
            limits.MAX_ANONYMOUS_REQUESTS,
            share=limits.MAX_ANONYMOUS_REQUESTS_OF_ADDRESS,
            name="MAX_ANONYMOUS_REQUESTS",
        )
        self.event_streams = _shared("event streams", limits.MAX_EVENT_STREAMS, "MAX_EVENT_STREAMS")
        self.sockets = _shared("sockets", settings.max_sockets, "max_sockets")
        self.subscriptions = _shared(
            "subscriptions of sockets",
            limits.MAX_SOCKET_SUBSCRIPTIONS,
            "MAX_SOCKET_SUBSCRIPTIONS",
        )
        self.socket_waits = _shared(
            "answers that sockets wait for", limits.MAX_SOCKET_WAITS, "MAX_SOCKET_WAITS"
        )
        # A caller alone can always send one artifact of the largest size.
        most_bytes = max(settings.max_artifacts_bytes, 2 * settings.max_artifact_bytes)
        self.uploads = _shared(
            "bytes of artifacts that are being sent", most_bytes, "max_artifacts_bytes"
        )
        waiting = settings.max_waiting
        # The bound for all is the engine's, which knows what else waits.
        self.submitted = Quota(
            "tasks that wait for their commit",
            sys.maxsize,
            share=waiting - waiting // limits.LEFT_PART,
            name="max_waiting",
        )

    def reserve_submission(self, reservation: Reservation, count: int) -> None:
        """Count a submission of several tasks; the only one of a caller always fits."""
        share, held = self.submitted.share, self.submitted.held_by(reservation.holder)
        if held and held + count > share:
            raise Overloaded(
                f"{held} tasks of this caller wait for their commit, and the limit is {share}",
                limit="max_waiting",
            )
        reservation.take(self.submitted, min(count, share))


def _shared(what: str, most: int, name: str) -> Quota:
    """A quota of which one caller leaves a part to others, with a reserve for operators."""
    share = most - most // limits.LEFT_PART
    return Quota(what, most, share=share, name=name, reserve=most // limits.OPERATOR_PART)


def is_operator(caller: Caller | None) -> bool:
    """Whether a caller may do everything, everywhere."""
    return caller is not None and Scope.ADMIN in caller.scopes and not caller.is_bound


def holder_of(caller: Caller, scope: Any) -> str:
    """The name under which a caller's share is counted: its token, or else its address."""
    return caller.token_id or address_of(scope)


def address_of(scope: Any) -> str:
    """The peer's address, or its network where one peer has many addresses."""
    client = scope.get("client")
    return address_of_host(client and client[0])


def address_of_host(host: str | None) -> str:
    return UNKNOWN_ADDRESS if host is None else _network_of(host)


@lru_cache(maxsize=4_096)
def _network_of(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    prefix = int(address) >> (128 - IPV6_NETWORK_BITS)
    return f"{IPv6Address(prefix << (128 - IPV6_NETWORK_BITS))}/{IPV6_NETWORK_BITS}"
