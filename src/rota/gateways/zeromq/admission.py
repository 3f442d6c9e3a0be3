"""Who may connect?

ZeroMQ asks this, for every connection that wants in, by a message within the process (ZAP, its RFC
27). The answer names whom the connection is to be taken for: with keys, the holder of the public
key that it has proved to have the secret of; all its messages carry that.

Nobody is turned away for good. A client that hears a final no never tries again, and somebody may
be about to add its key, or to make room.
"""

import zmq
from msgspec import Struct
from zmq.utils import z85

from rota.engine.figures import WireFigures
from rota.gateways.zeromq.complaints import Complaints
from rota.gateways.zeromq.connections import Connections
from rota.gateways.zeromq.keyring import Keyring
from rota.gateways.zeromq.pump import NOW, Pump

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"rota"
VERSION = b"1.0"
FRAMES = 8  # of a request without credentials: two of the envelope, and six of its own
WELCOME, NOT_NOW = b"200", b"300"


class Request(Struct, frozen=True):
    envelope: tuple[bytes, bytes]
    request_id: bytes
    address: str
    mechanism: bytes
    credentials: tuple[bytes, ...]


class Verdict(Struct, frozen=True):
    refusal: str | None  # as it is counted; None: welcome
    user_id: str = ""


class Doorkeeper:
    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        connections: Connections,
        keyring: Keyring | None,
        *,
        most: int,
        figures: WireFigures,
        complaints: Complaints,
    ) -> None:
        """Without keys, whoever finds a place may come in."""
        self._connections = connections
        self._keyring = keyring
        self._most = most
        self._figures = figures
        self._complaints = complaints
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.rcvhwm = self._socket.sndhwm = 0  # asked by our own library, once each
        self._socket.bind(ENDPOINT)
        self._pump: Pump | None = None

    def start(self) -> None:
        self._pump = Pump(self._socket, self._take)

    def close(self) -> None:
        if self._pump is not None:
            self._pump.close()
        self._socket.close()

    def _take(self) -> None:
        request = parse(self._socket.recv_multipart(NOW))
        verdict = self._judge(request)
        if verdict.refusal is not None:
            self._figures.refused_connections[verdict.refusal] += 1
            self._complaints.about(
                "connection turned away", code=verdict.refusal, address=request.address
            )
        self._socket.send_multipart(
            [
                *request.envelope,
                VERSION,
                request.request_id,
                WELCOME if verdict.refusal is None else NOT_NOW,
                (verdict.refusal or "").encode(),
                verdict.user_id.encode(),
                b"",
            ],
            NOW,
        )

    def _judge(self, request: Request) -> Verdict:
        public = ""
        if self._keyring is not None:
            if request.mechanism != b"CURVE" or not request.credentials:
                return Verdict("unencrypted")
            public = z85.encode(request.credentials[0]).decode()
            if not self._keyring.is_known(public):
                return Verdict("unknown_key")
        if not self._connections.find_place(most=self._most):
            return Verdict("connections_full")
        return Verdict(None, public)


def parse(frames: list[bytes]) -> Request:
    assert len(frames) >= FRAMES, "our own library asks"
    return Request(
        envelope=(frames[0], frames[1]),
        request_id=frames[3],
        address=frames[5].decode(errors="replace"),
        mechanism=frames[7],
        credentials=tuple(frames[8:]),
    )
