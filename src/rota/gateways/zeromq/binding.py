"""The address of the gateway, whether it may listen there, and its limits."""

import errno
import socket

import structlog
import zmq

from rota.errors import Invalid, Unavailable
from rota.gateways.auth.authenticator import is_loopback
from rota.gateways.zeromq.auth.authenticator import DOMAIN
from rota.gateways.zeromq.auth.keyring import Keyring
from rota.settings import Settings

log = structlog.get_logger("rota.zeromq")

DEFAULT_PORT = 5555

MAX_MESSAGE_BYTES = 2 * 1024 * 1024  # room for a beat that lists every shard there can be
MAX_MESSAGE_FRAMES = 1_000  # of one message; one with more costs its sender the connection
MAX_UNFINISHED_BYTES = MAX_MESSAGE_BYTES + 64 * 1024  # received of one message; dropped beyond
MAX_UNFINISHED_BYTES_TOTAL = 16 * 1024 * 1024  # the same over all connections; the largest goes
MAX_UNFINISHED_GROWTH_BYTES = 48 * 1024 * 1024  # of memory, beyond those bytes; the largest goes
MAX_MESSAGE_MS = 15_000  # from the beginning of a message to its end, or a lease if that is longer
MAX_SILENCE_MS = 60_000  # without a whole message, or two leases if that is longer
RECEIVE_BUFFER_BYTES = 256 * 1024  # of one connection, in the kernel
MOST_UNSENT = 256  # messages to one peer; more are dropped
MOST_UNREAD = 64  # messages of one peer; the peer has to wait with more
HANDSHAKE_MS = 5_000  # until the handshake of a connection is complete
BACKLOG = 2_048  # connections that the system holds while the gateway is busy
# A peer whose machine is gone is given up within about a minute.
KEEP_ALIVE_IDLE_S = 30
KEEP_ALIVE_EVERY_S = 10
KEEP_ALIVE_TIMES = 3
MOST_UNACKNOWLEDGED_MS = 60_000


def refuse_unsafe_binding(settings: Settings) -> None:
    """Refuse to listen on a public address without keys."""
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
    """Whether the gateway is to listen; `refuse_unsafe_binding` has checked the address."""
    if settings.zmq_keys is not None or settings.zmq_port is not None:
        return True
    if settings.require_token and not settings.insecure:
        log.warning(
            "zeromq_disabled",
            reason="a token is required, and ZeroMQ has no keys",
            hint="give it keys with --zmq-keys",
        )
        return False
    return True


def create_socket(
    context: zmq.Context[zmq.Socket[bytes]], keyring: Keyring | None
) -> zmq.Socket[bytes]:
    """A socket with all its limits, not bound yet."""
    router = context.socket(zmq.ROUTER)
    options = {
        zmq.LINGER: 0,
        zmq.ROUTER_MANDATORY: 1,  # a message that cannot be sent is an error
        # A peer may choose its own address. The newest one to claim it has it, as a worker that
        # comes back should; with keys, messages from an address of a peer's choice are refused.
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


def listen(settings: Settings) -> socket.socket | None:
    """Listen on the address in the settings; None: it names no port, and the usual one is taken."""
    port = DEFAULT_PORT if settings.zmq_port is None else settings.zmq_port
    family, address = _address(settings.zmq_host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4 as well
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if settings.zmq_port is None and error.errno == errno.EADDRINUSE:
            log.warning(
                "zeromq_disabled",
                reason="its port is taken",
                hint="give another with --zmq-port",
                port=port,
            )
            return None
        raise Unavailable(
            f"cannot listen for ZeroMQ on {settings.zmq_host} port {port}: {error.strerror}; is "
            "another coordinator running? Give another port with --zmq-port"
        ) from error
    return listening


def bind(router: zmq.Socket[bytes], listening: socket.socket) -> str:
    """Have libzmq accept from a listening socket, with a descriptor of its own; the endpoint."""
    host, port = listening.getsockname()[:2]
    is_ipv6 = listening.family == socket.AF_INET6
    endpoint = f"tcp://[{host}]:{port}" if is_ipv6 else f"tcp://{host}:{port}"
    router.ipv6 = is_ipv6
    given = listening.dup()
    router.setsockopt(zmq.USE_FD, given.fileno())
    router.bind(endpoint)
    given.detach()  # from here on it is libzmq's to close
    return endpoint


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The address to listen on; IPv4 where a name has addresses of both kinds."""
    if host == "*":
        return socket.AF_INET, ("0.0.0.0", port)  # noqa: S104 - it was asked for by name
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Invalid(f"{host!r} is not an address to listen on", field="zmq_host") from error
    # Clients try IPv4 first.
    family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, (str(address[0]), port)
