"""The ZAP authenticator: which clients may connect.

libzmq asks this for every new connection, by a message within the process (ZAP, ZeroMQ RFC 27).
With keys, the answer names the public key whose secret the client has proved to hold; all messages
of the connection carry it.

A refusal is always temporary. A client that is refused for good never tries again, and its key may
be added later, or a connection may end.
"""

import zmq
from msgspec import Struct
from zmq.utils import z85

from rota.engine.metrics.metrics import WireMetrics
from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq.auth.keyring import Keyring
from rota.gateways.zeromq.connections import Connections
from rota.gateways.zeromq.poller import NOW, SocketPoller

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"rota"
VERSION = b"1.0"
FRAMES = 8  # of a request without credentials: two of the envelope, and six of its own
ACCEPTED, TRY_LATER = b"200", b"300"


class ZapRequest(Struct, frozen=True):
    envelope: tuple[bytes, bytes]
    request_id: bytes
    address: str
    mechanism: bytes
    credentials: tuple[bytes, ...]


class ZapVerdict(Struct, frozen=True):
    refusal: str | None  # the reason, as it is counted; None: accepted
    user_id: str = ""


class ZapAuthenticator:
    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        connections: Connections,
        keyring: Keyring | None,
        *,
        most: int,
        metrics: WireMetrics,
        throttled_log: ThrottledLog,
    ) -> None:
        """Without a keyring, every client is accepted up to the limit of connections."""
        self._connections = connections
        self._keyring = keyring
        self._most = most
        self._metrics = metrics
        self._throttled_log = throttled_log
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.rcvhwm = self._socket.sndhwm = 0  # asked by our own library, once each
        self._socket.bind(ENDPOINT)
        self._poller: SocketPoller | None = None

    def start(self) -> None:
        self._poller = SocketPoller(self._socket, self._take)

    def close(self) -> None:
        if self._poller is not None:
            self._poller.close()
        self._socket.close()

    def _take(self) -> None:
        request = parse(self._socket.recv_multipart(NOW))
        self._connections.take_waiting()
        verdict = self._decide(request)
        if verdict.refusal is not None:
            self._metrics.refused_connections[verdict.refusal] += 1
            self._throttled_log.warn(
                "connection_refused", code=verdict.refusal, address=request.address
            )
        self._socket.send_multipart(
            [
                *request.envelope,
                VERSION,
                request.request_id,
                ACCEPTED if verdict.refusal is None else TRY_LATER,
                (verdict.refusal or "").encode(),
                verdict.user_id.encode(),
                b"",
            ],
            NOW,
        )

    def _decide(self, request: ZapRequest) -> ZapVerdict:
        public = ""
        if self._keyring is not None:
            if request.mechanism != b"CURVE" or not request.credentials:
                return ZapVerdict("unencrypted")
            public = z85.encode(request.credentials[0]).decode()
            if not self._keyring.is_known(public):
                return ZapVerdict("unknown_key")
        if not self._connections.try_admit(most=self._most):
            return ZapVerdict("connections_full")
        return ZapVerdict(None, public)


def parse(frames: list[bytes]) -> ZapRequest:
    assert len(frames) >= FRAMES, "our own library asks"
    return ZapRequest(
        envelope=(frames[0], frames[1]),
        request_id=frames[3],
        address=frames[5].decode(errors="replace"),
        mechanism=frames[7],
        credentials=tuple(frames[8:]),
    )
