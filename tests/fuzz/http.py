"""HTTP requests that are nearly valid."""

import re
from random import Random
from typing import Any
from urllib.parse import quote

from tests.fuzz.mutation import ODD, damaged, mutated, pieces, written
from tests.fuzz.target import Address, Finding, Target, Wire, check_text
from tests.gateways.access.oracle import HTTP, PAGES, filled

NAME = "http"
ANSWER_S = 0.05  # that is waited for an answer; a long poll has none in this time
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
PARAMETERS = (
    *("wait_ms", "limit", "cursor", "state", "after", "last", "type", "prefix", "pattern", "queue"),
    *("label", "key", "rank", "capability", "health", "run", "at", "decisions", "node", "per_node"),
    *("if_version", "incarnation", "target_ms", "concurrency", "task_id", "fence", "subject"),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW", "get", "CONNECT")
HEADERS = (
    b"content-length: 5",
    b"content-length: -1",
    b"content-length: 1e3",
    b"content-length: 99999999999999999999",
    b"content-length: 0",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"transfer-encoding:\tchunked",
    b"Transfer-Encoding : chunked",
    b"expect: 100-continue",
    b"connection: close",
    b"connection: upgrade\r\nupgrade: h2c",
    b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13",
    b"host: evil.example",
    b"host: ",
    b"host: \xff",
    b"origin: null",
    b"origin: http://[",
    b"authorization: Bearer rota_" + b"x" * 43,
    b"authorization: Basic \xff",
    b"cookie: rota_token=\xff; rota_token=x",
    b"accept: text/event-stream",
    b"last-event-id: 99999999999999999999",
    b"last-event-id: 1",
    b"content-type: multipart/form-data; boundary=x",
    b"content-encoding: gzip",
    b"x: " + b"y" * 9_000,
    b"no colon",
    b" folded: line",
    b": empty",
    b"x\x00y: z",
)

# Those that take something say more about what is done with it.
RULES = (*HTTP, *[rule for rule in HTTP if rule.body is not None] * 2, *PAGES)

Place = dict[str, str]


class HttpFuzzer:
    name = NAME

    def __init__(self, target: Target) -> None:
        self.address: Address = target.http
        self._place = _place(target)

    def shoot(self, rng: Random, wire: Wire) -> None:
        """Send a few requests on one connection, and look at what comes back."""
        data = b"".join(self._request(rng) for _ in range(rng.choice((1, 1, 1, 2, 5))))
        if rng.random() < 0.15:
            data = damaged(rng, data)
        for piece in pieces(rng, data):
            if not wire.send(piece):
                break
        if rng.random() < 0.3:
            wire.end_sending()
        check_answers(wire.receive_all(ANSWER_S))

    def _request(self, rng: Random) -> bytes:
        rule = rng.choice(RULES)
        method = rule.route.partition(" ")[0]
        if rng.random() < 0.05:
            method = rng.choice(METHODS)
        target = _target(rng, filled(rule.path, self._place))
        body = b"" if rule.text is None else rule.text.encode()
        if rule.body is not None:
            value: Any = filled(rule.body, self._place)
            if rng.random() < 0.5:
                value = mutated(rng, value)
            body = written(value)
        if body and rng.random() < 0.08:
            body = damaged(rng, body)
        headers = [b"host: localhost", *_framed(rng, body)]
        for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 2))):
            headers.insert(rng.randrange(len(headers) + 1), rng.choice(HEADERS))
        version = rng.choice(
            (b"HTTP/1.1",) * 60 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"http/1.1")
        )
        line = b"%b %b %b" % (method.encode(), target, version)
        return b"\r\n".join((line, *headers, b"", _in_chunks(rng, headers, body)))


def _target(rng: Random, path: str) -> bytes:
    """The path, its parameters and its query, some of them wrong."""
    if rng.random() < 0.1:
        parts = path.split("/")
        place = rng.randrange(1, len(parts))
        odd = rng.choice(ODD)
        parts[place] = quote(odd[:300], safe="") if isinstance(odd, str) else str(odd)[:50]
        path = "/".join(parts).replace(" ", "")
    if rng.random() < 0.15:
        named = rng.choice(PARAMETERS)
        value = quote(str(rng.choice((*ODD, "1", "queued", "x*", "[", "%ff")))[:300], safe="%")
        path += f"{'&' if '?' in path else '?'}{named}={value}"
    if rng.random() < 0.05:
        path = rng.choice(("//", "/..", "*", "http://x/api/tasks", "/api/tasks/%00", "/%")) + path
    return path.encode("ascii", "replace").replace(b" ", b"%20")


def _framed(rng: Random, body: bytes) -> list[bytes]:
    chance = rng.random()
    if chance < 0.8:
        return [b"content-length: %d" % len(body)] if body else []
    if chance < 0.95:
        return [b"transfer-encoding: chunked"]
    off = rng.choice((-1, 1, 100, -len(body)))
    return [b"content-length: %d" % max(0, len(body) + off)]


def _in_chunks(rng: Random, headers: list[bytes], body: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in headers:
        return body
    chunks = [b"%x\r\n%b\r\n" % (len(one), one) for one in pieces(rng, body) if one]
    if rng.random() < 0.4:
        odd = rng.choice(
            (
                b"0\r\n\r\n",
                b"5;name=value\r\nabcde\r\n",
                b"5;" + b"x" * 5_000 + b"\r\nabcde\r\n",
                b"0x5\r\nabcde\r\n",
                b"-1\r\n\r\n",
                b"ffffffffffffffff\r\n",
                b"5\nabcde\n",
                b"5\r\nabcdefgh\r\n",
                b"\r\n",
                b"g\r\n",
            )
        )
        chunks.insert(rng.randrange(len(chunks) + 1), odd)
    end = rng.choice(
        (b"0\r\n\r\n",) * 6 + (b"", b"0\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\n" + b"t: u\r\n" * 500)
    )
    return b"".join(chunks) + end


def check_answers(data: bytes) -> None:
    for status in STATUS.findall(data):
        if status >= b"500" and status != b"501":
            raise Finding(f"answered with {status.decode()}: {data[:1_000]!r}")
    check_text(data)


def _place(target: Target) -> Place:
    """Things that are there, so that requests get past the first look-up."""
    flow = {"initial_node": "n", "nodes": {"n": {"wait_for": {"event": "go"}}}, "transitions": []}
    target.call("PUT", "/api/workflows/flow", flow)
    task = target.call("POST", "/api/tasks", {"name": "work", "queue": "q"})
    worker = target.call("POST", "/api/workers", {"worker_id": "w", "queues": ["q"]})
    target.call("POST", "/api/services/s/members", {"workerId": "w", "maxShardCount": 4})
    return {
        **dict.fromkeys(("queue", "own_queue", "pushed_queue"), "q"),
        "service": "s",
        "worker": "w",
        "incarnation": str(worker["incarnation"]),
        **dict.fromkeys(("task", "failed_task", "job"), task["id"]),
        "fingerprint": "0" * 16,
        "run": target.call("POST", "/api/runs", {"workflow": "flow"})["id"],
        "workflow": "flow",
        "key": "key",
        "lock": "lock",
        "schedule": "schedule",
        "webhook": "webhook",
        "token": "t-0",
        "secret": "rota_" + "x" * 43,
    }


# --- connections that are left alone ------------------------------------------------------------

HEAD_S, BODY_S, IDLE_S = 15.0, 60.0, 75.0
HALF_BODY = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"
HALF_CHUNK = (
    b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"
)

# What is sent before nothing more is, and how long the coordinator may wait for the rest.
ABANDONED: tuple[tuple[str, bytes, float], ...] = (
    ("says nothing", b"", HEAD_S),
    ("half a request line", b"GET /api/ta", HEAD_S),
    ("half a head", b"GET /api/tasks HTTP/1.1\r\nhost: loc", HEAD_S),
    ("a head without its end", b"GET /api/tasks HTTP/1.1\r\nhost: localhost\r\n", HEAD_S),
    ("half a body", HALF_BODY, BODY_S),
    ("half a chunk", HALF_CHUNK, BODY_S),
    ("says no more", b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n", IDLE_S),
)
