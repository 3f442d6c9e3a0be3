"""Where the coordinator may call out to: the form of a URL, and the addresses that are refused.

A URL that an admin has stored must not reach what only the coordinator's machine or network can
reach: its own services, those of its neighbours, the metadata of a cloud. So the address that a
name resolves to is checked, not the name, and the connection goes to that address and to no other.
The operator lists exceptions by name or by network.
"""

import re
from collections.abc import Callable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from rota.core import limits
from rota.errors import Invalid

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"[!-~]+")  # printable ASCII without a space
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)
# A resolver of C takes such a last part for a number: 2130706433, 0x7f.1 and 0177.0.0.1 are
# spellings of 127.0.0.1.
_NUMERIC = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")

# Not public, or public and yet only for the machines of one provider. Those that `ipaddress` knows
# as private, loopback, link-local, multicast, reserved or unspecified are refused besides.
_REFUSED = tuple(
    ip_network(one)
    for one in (
        "0.0.0.0/8",  # this network
        "100.64.0.0/10",  # shared by customers of a provider, with metadata of some clouds
        "168.63.129.16/32",  # the platform of Azure
        "192.0.0.0/24",  # protocol assignments, with metadata of some clouds
        "192.88.99.0/24",  # relays to IPv6
        "198.18.0.0/15",  # benchmarks
        "::/96",  # the old form of IPv4 inside IPv6
        "::ffff:0:0/96",  # IPv4 mapped to IPv6
        "64:ff9b:1::/48",  # translation inside a network
        "100::/64",  # discarded
        "2001::/32",  # Teredo, with any IPv4 address in it
        "2002::/16",  # 6to4, with any IPv4 address in it
        "2001:db8::/32",  # documentation
        "fec0::/10",  # site-local
    )
)
_TRANSLATED = ip_network("64:ff9b::/96")  # a public IPv4 address behind a translator


class OutboundPolicy(Struct, frozen=True, kw_only=True):
    """What the operator allows beyond public addresses, or instead of them."""

    hosts: frozenset[str] = frozenset()  # `hooks.internal`, or `.internal` for all names below
    networks: tuple[IpNetwork, ...] = ()
    is_closed: bool = False  # True: what is not listed is refused


class OutboundTarget(Struct, frozen=True, kw_only=True):
    """The parts of a checked URL."""

    is_tls: bool
    host: str  # a lower-case name, or an address without brackets
    port: int
    authority: str  # as the `Host` header has it
    path: str  # with the query

    @property
    def place(self) -> str:
        """The URL without its path, which may be a secret."""
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


def policy_of(allowed: str, *, is_closed: bool) -> OutboundPolicy:
    """The policy of a setting: names, `*.names`, addresses and networks, separated by commas."""
    hosts: set[str] = set()
    networks: list[IpNetwork] = []
    for entry in allowed.replace(",", " ").lower().split():
        try:
            networks.append(ip_network(entry.strip("[]")))
            continue
        except ValueError:
            name = entry.removeprefix("*.").rstrip(".")
        if not _HOST.fullmatch(name) or _NUMERIC.fullmatch(name):
            raise Invalid(
                f"outbound_allow: {entry!r} is neither a host, nor *.DOMAIN, nor an address or "
                "network such as 10.0.0.0/8 (without bits beyond its mask)",
                field="outbound_allow",
            )
        hosts.add(f".{name}" if entry.startswith("*.") else name)
    return OutboundPolicy(hosts=frozenset(hosts), networks=tuple(networks), is_closed=is_closed)


def parse_target(url: str, field: str = "url") -> OutboundTarget:
    """Take a URL apart; refuse every form that two programs could read differently."""

    def refuse(text: str) -> Invalid:
        return Invalid(f"{field}: {text}", field=field)

    if len(url) > limits.MAX_OUTBOUND_URL_LENGTH:
        raise refuse(f"must have at most {limits.MAX_OUTBOUND_URL_LENGTH} characters")
    if not _URL.fullmatch(url) or "\\" in url:
        raise refuse("must have only printable ASCII characters, no space and no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refuse("is not a URL such as https://example.com/hook") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise refuse("must begin with https:// or http://")
    if "@" in parts.netloc:
        raise refuse("must not have a user name or password; give a header or a secret instead")
    if "#" in url:
        raise refuse("must not have a fragment: servers do not see it")
    if port == 0:
        raise refuse("must have a port from 1 to 65535")
    host, shown = _host_of(parts, refuse)
    default = DEFAULT_PORTS[parts.scheme]
    return OutboundTarget(
        is_tls=parts.scheme == "https",
        host=host,
        port=default if port is None else port,
        authority=shown if port in {None, default} else f"{shown}:{port}",
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


def _host_of(parts: SplitResult, refuse: Callable[[str], Invalid]) -> tuple[str, str]:
    """The host of a URL, and its form in the `Host` header."""
    host = (parts.hostname or "").lower()
    if parts.netloc.startswith("["):
        host = _literal_v6(host, refuse("has an IPv6 address that is not valid"))
        return host, f"[{host}]"
    host = host.removesuffix(".")
    if not _HOST.fullmatch(host):
        raise refuse(f"has a host that is neither a name nor an address: {host!r}")
    if _NUMERIC.fullmatch(host) and _parsed(host) is None:
        raise refuse("has an address that is not of the form 192.0.2.1")
    return host, host


def check_literal(policy: OutboundPolicy, target: OutboundTarget, field: str = "url") -> None:
    """Refuse a URL at once that names a refused address; a name is checked when it is resolved."""
    address = _parsed(target.host)
    why = None if address is None else why_refused(policy, target.host, address)
    if address is None and policy.is_closed and not _is_host_listed(policy, target.host):
        # Its address may still be in a listed network, which only the resolver knows.
        why = None if policy.networks else "is not listed in outbound_allow"
    if why is not None:
        raise Invalid(f"{field}: {target.host} {why}", field=field)


def why_refused(policy: OutboundPolicy, host: str, address: IpAddress) -> str | None:
    """Why a host must not be called at this address; None: it may be."""
    if _is_host_listed(policy, host) or any(_contains(one, address) for one in policy.networks):
        return None
    if policy.is_closed:
        return "is not listed in outbound_allow"
    if _is_public(address):
        return None
    place = "is" if _parsed(host) is not None else f"is at {address}, which is"
    return f"{place} not public; the operator can list it in the setting outbound_allow"


def _literal_v6(host: str, refusal: Invalid) -> str:
    try:
        address = IPv6Address(host)
    except ValueError:
        raise refusal from None
    if address.scope_id is not None:
        raise refusal
    return str(address)


def _parsed(host: str) -> IpAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_host_listed(policy: OutboundPolicy, host: str) -> bool:
    if host in policy.hosts:
        return True
    return any(one.startswith(".") and host.endswith(one) for one in policy.hosts)


def _contains(network: IpNetwork, address: IpAddress) -> bool:
    return network.version == address.version and address in network


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, IPv6Address) and address in _TRANSLATED:
        return _is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if any(_contains(one, address) for one in _REFUSED):
        return False
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
    )
