"""Where does the gateway listen, may it, and within which limits?"""

import errno
import socket

import structlog
import zmq

from rota.errors import Invalid, Unavailable
from rota.gateways.gate import is_loopback
from rota.gateways.zeromq.admission import DOMAIN
from rota.gateways.zeromq.keyring import Keyring
from rota.settings import Settings

log = structlog.get_logger("rota.zeromq")

DEFAULT_PORT = 5555

MAX_MESSAGE_BYTES = 2 * 1024 * 1024  # room for a beat that lists every shard there can be
MOST_UNSENT = 256  # messages to one peer; what is said to it beyond is dropped
MOST_UNREAD = 64  # messages of one peer; beyond, it has to wait
HANDSHAKE_MS = 5_000  # until a connection has said what it must
BACKLOG = 2_048  # connections the system holds while we are busy
# A peer whose machine has gone without a word is given up within about a minute.
KEEP_ALIVE_IDLE_S = 30
KEEP_ALIVE_EVERY_S = 10
KEEP_ALIVE_TIMES = 3
MOST_UNACKNOWLEDGED_MS = 60_000


def refuse_unsafe_binding(settings: Settings) -> None:
    """Refuse to listen where strangers can reach us, unless they need a key."""
    if settings.zmq_keys is not None or settings.insecure:
        return
    if not is_loopback(settings.zmq_host):
        raise Invalid(
            f"ZeroMQ on {settings.zmq_host} needs keys: give a key file with --zmq-keys, or pass "
            "--insecure",
            field="zmq_host",
        )
    if settings.require_token and settings.zmq_port is not None:
        raise Invalid(
            "with --require-token, ZeroMQ needs keys as well: give a key file with --zmq-keys",
            field="zmq_keys",
        )


def is_wanted(settings: Settings) -> bool:
    """Whether there is to be a door at all; one that was asked for was checked before."""
    if settings.zmq_keys is not None or settings.zmq_port is not None:
        return True
    if settings.require_token and not settings.insecure:
        log.warning("no ZeroMQ: a token is required, and ZeroMQ has no keys (--zmq-keys)")
        return False
    return True


def create_socket(
    context: zmq.Context[zmq.Socket[bytes]], keyring: Keyring | None
) -> zmq.Socket[bytes]:
    """A socket with all its limits, not bound yet."""
    router = context.socket(zmq.ROUTER)
    options = {
        zmq.LINGER: 0,
        zmq.ROUTER_MANDATORY: 1,  # what cannot be sent is told, not swallowed
        # A peer may choose its own address. The newest one to claim it has it, as a worker that
        # comes back should; with keys, addresses of a peer's choice are not listened to at all.
        zmq.ROUTER_HANDOVER: 1 if keyring is None else 0,
        zmq.SNDHWM: MOST_UNSENT,
        zmq.RCVHWM: MOST_UNREAD,
        zmq.MAXMSGSIZE: MAX_MESSAGE_BYTES,
        zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
        zmq.BACKLOG: BACKLOG,
        zmq.TCP_KEEPALIVE: 1,
        zmq.TCP_KEEPALIVE_IDLE: KEEP_ALIVE_IDLE_S,
        zmq.TCP_KEEPALIVE_INTVL: KEEP_ALIVE_EVERY_S,
        zmq.TCP_KEEPALIVE_CNT: KEEP_ALIVE_TIMES,
        zmq.TCP_MAXRT: MOST_UNACKNOWLEDGED_MS,
        zmq.ZAP_DOMAIN: DOMAIN,
    }
    if keyring is not None:
        options |= {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: keyring.secret.encode()}
    for option, value in options.items():
        router.setsockopt(option, value)
    return router


def bind(router: zmq.Socket[bytes], settings: Settings) -> bool:
    """Listen where the settings say; False: that was nobody's wish in particular, and is taken."""
    port = DEFAULT_PORT if settings.zmq_port is None else settings.zmq_port
    endpoint = _endpoint(settings.zmq_host, port)
    router.ipv6 = "[" in endpoint
    try:
        router.bind(endpoint)
    except zmq.ZMQError as error:
        if settings.zmq_port is None and error.errno == errno.EADDRINUSE:
            log.warning("no ZeroMQ: its port is taken; give another with --zmq-port", port=port)
            return False
        raise Unavailable(
            f"cannot listen for ZeroMQ on {settings.zmq_host} port {port}: {error.strerror}; is "
            "another coordinator running? Give another port with --zmq-port"
        ) from error
    return True


def _endpoint(host: str, port: int) -> str:
    """The library wants addresses, not names."""
    if host == "*":
        return f"tcp://*:{port}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Invalid(f"{host!r} is no address to listen on", field="zmq_host") from error
    # A name may stand for several; clients try the older kind first.
    family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    numeric = f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])
    return f"tcp://{numeric}:{port}"
