"""Puts the links of a coordinator together: those that it opens, and those that it accepts."""

import ssl
from functools import partial
from urllib.parse import urlsplit

from rota.core.replicas import Leader, Role
from rota.engine.coordinator import Coordinator
from rota.engine.metrics.links import LinkMetrics
from rota.engine.replicas.leadership import Leadership
from rota.engine.replicas.link.frames import OnLeaderFrame, OnLost
from rota.gateways.http.server.connection import Upgrade
from rota.gateways.peers.dialer import FollowerLink, dial
from rota.gateways.peers.handshake import LinkRefused
from rota.gateways.peers.server import UPGRADE, PeerGate, PeerProtocol
from rota.gateways.quotas import Quota
from rota.settings import Settings
from rota.tls import client_context

MOST_HANDSHAKES = 64  # of other coordinators, under way at once
HANDSHAKES_OF_ONE_ADDRESS = 8


class PeerGateway:
    def __init__(self, coordinator: Coordinator, settings: Settings) -> None:
        self._membership = coordinator.membership
        self._links = coordinator.metrics().links
        self._settings = settings

    def advertise(self, url: str) -> None:
        """Tell the other coordinators on the store where this one is reached."""
        if self._settings.advertise is not None:
            url = f"{urlsplit(url).scheme}://{self._settings.advertise}"
        membership = self._membership
        membership.presence.url = url
        if membership.leadership is not None:
            membership.leadership.address = url
            membership.leadership.dial = partial(_dial, name=membership.name, links=self._links)

    def upgrades(self) -> dict[bytes, Upgrade]:
        """Return how connections of other coordinators are taken over, if the store is shared."""
        leadership = self._membership.leadership
        if leadership is None:
            return {}
        return {UPGRADE: partial(PeerProtocol, gate=self._gate(leadership))}

    def _gate(self, leadership: Leadership) -> PeerGate:
        return PeerGate(
            name=self._membership.name,
            secret=leadership.secret,
            is_leading=lambda: leadership.epoch if leadership.role is Role.LEADER else None,
            accept=self._membership.followers.accept,
            handshakes=Quota(
                "handshakes of coordinators",
                MOST_HANDSHAKES,
                share=HANDSHAKES_OF_ONE_ADDRESS,
                name="max_peer_handshakes",
            ),
            links=self._links,
        )


async def _dial(
    leader: Leader,
    secret: bytes,
    on_frame: OnLeaderFrame,
    on_lost: OnLost,
    *,
    name: str,
    links: LinkMetrics,
) -> FollowerLink:
    """Open a link to the leader; raises `OSError` when that fails."""
    try:
        return await dial(
            leader.address,
            secret=secret,
            name=name,
            epoch=leader.epoch,
            tls=_tls_for(leader.address),
            on_frame=on_frame,
            on_lost=on_lost,
            links=links,
        )
    except LinkRefused as refused:
        raise ConnectionRefusedError(str(refused)) from refused


def _tls_for(address: str) -> ssl.SSLContext | None:
    """The authorities of `ROTA_CA`, or of the system, vouch for a leader that has TLS."""
    return client_context() if urlsplit(address).scheme == "https" else None
