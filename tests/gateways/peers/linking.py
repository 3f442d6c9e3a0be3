"""A leader that accepts links on its HTTP port, and followers that dial it over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from rota.engine.replicas.link.frames import (
    FollowerFrame,
    LeaderFrame,
    OnFollowerFrame,
    OnLost,
    PeerConnection,
)
from rota.gateways.http.server.server import HttpServer
from rota.gateways.http.server.tls import ServerTls
from rota.gateways.peers.dialer import FollowerLink, dial
from rota.gateways.peers.link import LinkLimits, PeerLink
from rota.gateways.peers.server import UPGRADE, PeerGate, PeerProtocol
from rota.gateways.quotas import Quota
from rota.node import Node
from tests.gateways.serving import settings_in

SECRET = b"s" * 32
EPOCH = 7
PATIENCE_S = 20.0
HANDSHAKES = 4  # at once, of one address

Frame = TypeVar("Frame")


class Received(Generic[Frame]):
    """What one end of a link was told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.losses: list[Exception | None] = []
        self._changed = asyncio.Event()

    def on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._changed.set()

    def on_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
        self._changed.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def have(self, count: int) -> list[Frame]:
        await self.until(lambda: len(self.frames) >= count)
        return self.frames

    async def lost(self) -> Exception | None:
        await self.until(lambda: self.losses)
        assert len(self.losses) == 1
        return self.losses[0]


LeaderLink = PeerLink[LeaderFrame, FollowerFrame]


class Leader:
    """A coordinator that accepts links; `links` has its ends of them, `received` what came."""

    def __init__(self) -> None:
        self.url: str
        self.server: HttpServer
        self.proxy_url: str | None = None  # where followers reach it instead
        self.secret: bytes | None = SECRET
        self.epoch: int | None = EPOCH
        self.links: dict[str, LeaderLink] = {}
        self.received: dict[str, Received[FollowerFrame]] = {}
        self.on_accepted: Callable[[PeerConnection[LeaderFrame]], None] = lambda _: None

    def accept(
        self, name: str, connection: PeerConnection[LeaderFrame]
    ) -> tuple[OnFollowerFrame, OnLost]:
        assert isinstance(connection, PeerLink)
        self.links[name] = connection
        self.received[name] = received = Received[FollowerFrame]()
        self.on_accepted(connection)
        return received.on_frame, received.on_lost

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    async def link(
        self, name: str = "f1", **options: Any
    ) -> tuple[FollowerLink, Received[LeaderFrame]]:
        received = Received[LeaderFrame]()
        given = {"secret": SECRET, "name": name, "epoch": EPOCH, "tls": None, **options}
        link = await dial(
            self.proxy_url or self.url,
            on_frame=received.on_frame,
            on_lost=received.on_lost,
            **{"timeout_s": PATIENCE_S, **given},
        )
        return link, received


@asynccontextmanager
async def leading(
    folder: Path,
    *,
    link_limits: LinkLimits | None = None,
    handshake_s: float = PATIENCE_S,
    tls: ServerTls | None = None,
) -> AsyncIterator[Leader]:
    node = Node(settings_in(folder))
    await node.start()
    leader = Leader()
    gate = PeerGate(
        name="leader",
        secret=lambda: leader.secret,
        is_leading=lambda: leader.epoch,
        accept=leader.accept,
        handshakes=Quota("handshakes", 100, share=HANDSHAKES, name="handshakes"),
        link_limits=link_limits or LinkLimits(),
        handshake_s=handshake_s,
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        leader.server = HttpServer(node.app, {UPGRADE: partial(PeerProtocol, gate=gate)}, tls)
        leader.server.start(listening)
        scheme = "http" if tls is None else "https"
        leader.url = "{}://{}:{}".format(scheme, *listening.getsockname())
        try:
            yield leader
        finally:
            for link in leader.links.values():
                link.close()
            await leader.server.stop()
            await node.stop()
