"""Two tenants on one coordinator, and the tokens of every kind that knock at its doors.

Every text of tenant B has the marker in it. A token that is bound to what tenant A has must never
be answered with it, unless the request itself said it.
"""

import json
import re
from enum import Enum
from typing import Any

import httpx
import msgspec
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken
from rota.gateways.auth.authenticator import hash_of, new_secret
from rota.messages.sessions import MSGPACK
from tests.gateways.access.oracle import SCOPES, WORKFLOW, Place
from tests.gateways.serving import Api, Json
from tests.gateways.websocket.talking import Peer, address_of

MARKER = "zebra"
MARKED = re.compile(rf"{MARKER}-[a-z]+")
QUEUE_A, SERVICE_A = "queue-of-a", "service-of-a"
QUEUE_B, SERVICE_B = f"{MARKER}-queue", f"{MARKER}-service"
LONG_GONE_MS = 1

Headers = dict[str, str]
# Shared by all queues: where it is put, and as what.
SHARED: dict[str, tuple[str, Json]] = {
    "key": ("memory/{}", {"value": 1}),
    "limit": ("limits/{}", {"limit": 5, "per_ms": 1_000}),
    "webhook": ("webhooks/{}", {"url": "http://receiver.invalid/"}),
    "pushed_queue": ("queues/{}/push", {"url": "http://receiver.invalid/"}),
}


class Holder(Enum):
    """A kind of token."""

    UNBOUND = "unbound"
    BOUND = "bound"  # to queue and service of A
    SERVICE_ONLY = "service-only"  # to the service of A, and so to no queue
    PINNED = "pinned"  # to a worker id, and to nothing else
    REVOKED = "revoked"
    EXPIRED = "expired"
    NOBODY = "nobody"  # no token at all


BINDINGS: dict[Holder, dict[str, Json]] = {
    Holder.UNBOUND: {},
    Holder.BOUND: {"queues": [QUEUE_A], "services": [SERVICE_A]},
    Holder.SERVICE_ONLY: {"services": [SERVICE_A]},
    Holder.PINNED: {"worker_id": "worker-pinned"},
}


class World:
    """What there is: the tokens, and the things of both tenants."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.client = api.client
        self.root: Headers = {}
        self.headers_b: Headers = {}
        self.tokens: dict[tuple[Holder, str], Headers] = {}
        self.own: dict[Holder, Place] = {}
        self.other: Place = {}
        self.fingerprints: dict[str, str] = {}  # of failures, by queue

    # --- asking ---------------------------------------------------------------------------------

    async def call(self, who: Headers, method: str, path: str, body: Json = None) -> Any:
        """A call that has to succeed."""
        answer = await self.client.request(method, path, json=body, headers=who)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()

    async def new_token(self, scopes: list[str], **bound: Json) -> tuple[str, Headers]:
        body = {"scopes": scopes, "name": "-".join(scopes), **bound}
        made = await self.call(self.root, "POST", "/api/tokens", body)
        return made["id"], {"authorization": f"Bearer {made['token']}"}

    async def add_token(self, *scopes: str, **more: Any) -> Headers:
        """Write a token straight into the store, as one that was made by an older version."""
        secret = new_secret()
        bound: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in more.items()
        }
        token = AccessToken(
            id=f"t-{secret[5:12]}",
            hash=hash_of(secret),
            name="stored",
            scopes=tuple(map(Scope, scopes)),
            created_at_ms=0,
            **bound,
        )
        await self.api.node.coordinator.execute(AddToken(token))
        self.api.node.authenticator.forget_tokens()
        return {"authorization": f"Bearer {secret}"}

    # --- making ---------------------------------------------------------------------------------

    async def build(self) -> None:
        self.root = await self.add_token("admin")
        for scope in SCOPES:
            for holder, binding in BINDINGS.items():
                self.tokens[holder, scope] = await self.add_token(scope, **binding)
            expired = await self.add_token(scope, expires_at_ms=LONG_GONE_MS)
            self.tokens[Holder.EXPIRED, scope] = expired
            token_id, revoked = await self.new_token([scope])
            look = "/api/scale"  # open to every scope
            assert (await self.client.get(look, headers=revoked)).status_code == 200
            await self.call(self.root, "DELETE", f"/api/tokens/{token_id}")
            self.tokens[Holder.REVOKED, scope] = revoked
            self.tokens[Holder.NOBODY, scope] = {}
        await self.failed_task(QUEUE_A)
        await self.failed_task(QUEUE_B, MARKER)
        # Asked for once, since the answer is kept for a while.
        groups = (await self.call(self.root, "GET", "/api/failures"))["items"]
        self.fingerprints = {next(iter(one["queues"])): one["fingerprint"] for one in groups}
        self.other = await self._tenant_b()
        for holder in Holder:
            self.own[holder] = await self._place(QUEUE_A, SERVICE_A, f"worker-{holder.value}")
        for holder in BINDINGS:
            await self.make("member", holder, "worker")
            if holder is not Holder.SERVICE_ONLY:
                await self.make("worker", holder, "worker")

    async def _place(self, queue: str, service: str, worker: str, prefix: str = "a") -> Place:
        """Everything that a request may name."""
        root = self.root
        workflow, key, lock = f"{prefix}-workflow", f"{prefix}-key", f"{prefix}-lock"
        await self.client.put(f"/api/workflows/{workflow}", content=WORKFLOW, headers=root)
        await self.call(root, "PUT", f"/api/memory/{key}", {"value": f"{prefix}-value"})
        await self.call(root, "POST", f"/api/locks/{lock}/acquire", {"owner": f"{prefix}-owner"})
        start = {"workflow": workflow, "input": {"text": f"{prefix}-input"}}
        run = await self.call(root, "POST", "/api/runs", start)
        token_id, _ = await self.new_token(["read"], queues=[queue])
        return {
            "queue": queue,
            "own_queue": QUEUE_A,
            "service": service,
            "worker": worker,
            "incarnation": "1",
            "socket_worker": worker,
            "pinned_worker": "worker-elsewhere",
            "foreign_worker": f"{MARKER}-worker",
            "task": await self.task(queue, prefix),
            "failed_task": await self.failed_task(queue, prefix),
            "fingerprint": self.fingerprints[queue],
            "job": await self.task(queue, prefix),
            "run": run["id"],
            "workflow": workflow,
            "key": key,
            "lock": lock,
            "schedule": await self.schedule(queue, f"{prefix}-schedule-{worker}", prefix),
            "pushed_queue": await self.pushed(f"{prefix}-pushed-{worker}", prefix),
            "webhook": await self.webhook(f"{prefix}-webhook-{worker}", prefix),
            "token": token_id,
            "secret": self.root["authorization"].removeprefix("Bearer "),
        }

    async def _tenant_b(self) -> Place:
        place = await self._place(QUEUE_B, SERVICE_B, f"{MARKER}-worker", MARKER)
        bound: Json = {"queues": [QUEUE_B], "services": [SERVICE_B]}
        place["token"], self.headers_b = await self.new_token(
            ["worker", "submit"], **bound, name=f"{MARKER}-token"
        )
        registration = {
            "worker_id": place["worker"],
            "node_id": f"{MARKER}-node",
            "queues": [QUEUE_B],
            "capabilities": [f"{MARKER}-capability"],
            "labels": [f"{MARKER}-label"],
        }
        worker = await self.call(self.headers_b, "POST", "/api/workers", registration)
        place["incarnation"] = str(worker["incarnation"])
        members = f"/api/services/{SERVICE_B}/members"
        joined = {"workerId": place["worker"], "maxShardCount": 4}
        told = await self.call(self.headers_b, "POST", members, joined)
        saved = {"epoch": told["shardEpochs"][0], "value": f"{MARKER}-checkpoint"}
        checkpoint = f"/api/services/{SERVICE_B}/shards/0/checkpoint"
        await self.call(self.headers_b, "PUT", checkpoint, saved)
        await self.call(self.headers_b, "POST", f"/api/jobs/{place['job']}/start")
        place["socket_worker"] = place["pinned_worker"] = f"{MARKER}-socketworker"
        return place

    async def task(self, queue: str, prefix: str = "a", **more: Json) -> str:
        task = {
            "name": f"{prefix}-name",
            "queue": queue,
            "payload": f"{prefix}-payload",
            "labels": [f"{prefix}-tasklabel"],
            "requires": [f"{prefix}-required"],
            "key": None,
            **more,
        }
        made = await self.call(self.root, "POST", "/api/tasks", task)
        return str(made["id"])

    async def schedule(self, queue: str, name: str, prefix: str = "a") -> str:
        task = {"name": f"{prefix}-name", "queue": queue, "payload": f"{prefix}-payload"}
        body = {"every_ms": 3_600_000, "task": task}
        await self.call(self.root, "PUT", f"/api/schedules/{name}", body)
        await self.call(self.root, "POST", f"/api/schedules/{name}/run")
        return name

    async def pushed(self, queue: str, prefix: str = "a") -> str:
        body = {"url": f"http://receiver.invalid/{prefix}-path"}
        await self.call(self.root, "PUT", f"/api/queues/{queue}/push", body)
        return queue

    async def webhook(self, name: str, prefix: str = "a") -> str:
        body = {"url": f"http://receiver.invalid/{prefix}-path", "description": f"{prefix}-for"}
        await self.call(self.root, "PUT", f"/api/webhooks/{name}", body)
        return name

    async def failed_task(self, queue: str, prefix: str = "a") -> str:
        task_id = await self.task(queue, prefix, max_attempts=1)
        await self.call(self.root, "POST", f"/api/jobs/{task_id}/start")
        error = {"error": f"{prefix}-error"}
        await self.call(self.root, "POST", f"/api/jobs/{task_id}/fail", error)
        return task_id

    async def make(self, what: str, holder: Holder, scope: str) -> None:
        """Make what the last request has used up again."""
        place, root = self.own[holder], self.root
        # With the same binding as the token that will ask, so that it is its own.
        worker = self.tokens[holder, "worker"]
        match what:
            case "task":
                place["task"] = await self.task(QUEUE_A)
            case "failed_task":
                place["failed_task"] = await self.failed_task(QUEUE_A)
            case "job":
                place["job"] = await self.task(QUEUE_A)
                path = f"/api/jobs/{place['job']}/start"
                await self.call(self.tokens[holder, scope], "POST", path)
            case "worker":
                body: Json = {"worker_id": place["worker"], "queues": [QUEUE_A]}
                made = await self.call(worker, "POST", "/api/workers", body)
                place["incarnation"] = str(made["incarnation"])
            case "member":
                body = {"workerId": place["worker"], "maxShardCount": 4}
                await self.call(worker, "POST", f"/api/services/{SERVICE_A}/members", body)
            case "run":
                start = {"workflow": place["workflow"]}
                place["run"] = (await self.call(root, "POST", "/api/runs", start))["id"]
            case "key" | "limit" | "webhook" | "pushed_queue":
                path, body = SHARED[what]
                name = place.get(what, place["key"])
                await self.call(root, "PUT", f"/api/{path.format(name)}", body)
            case "schedule":
                await self.schedule(QUEUE_A, place["schedule"])
            case "token":
                place["token"], _ = await self.new_token(["read"])
            case _:
                raise AssertionError(what)

    # --- looking --------------------------------------------------------------------------------

    async def state_of_b(self) -> Json:
        """What no token that is bound to A may ever change."""
        place, root = self.other, self.root

        async def look(path: str, *fields: str) -> list[Json]:
            found = await self.call(root, "GET", path)
            return [found[field] for field in fields]

        queues = (await self.call(root, "GET", "/api/queues"))["items"]
        members = await look(f"/api/services/{SERVICE_B}", "members", "shard_count", "pinned")
        return {
            "task": await look(f"/api/tasks/{place['task']}", "state", "attempt"),
            "failed task": await look(f"/api/tasks/{place['failed_task']}", "state", "attempt"),
            "job": await look(f"/api/tasks/{place['job']}", "state", "worker_id"),
            "worker": await look(
                f"/api/workers/{place['worker']}", "state", "incarnation", "queues", "node_id"
            ),
            "queue": [one["paused"] for one in queues if one["name"] == QUEUE_B],
            "service": members,
            "run": await look(f"/api/runs/{place['run']}", "state"),
            "workflow": await look(f"/api/workflows/{place['workflow']}", "version"),
            "value": await look(f"/api/memory/{place['key']}", "value", "version"),
            "lock": await look(f"/api/locks/{place['lock']}", "holder", "fence"),
            "schedule": await look(
                f"/api/schedules/{place['schedule']}", "task", "paused", "updated_at_ms", "firings"
            ),
            "push": await look(f"/api/queues/{place['pushed_queue']}/push", "url", "changed_at_ms"),
            "webhook": await look(f"/api/webhooks/{place['webhook']}", "url", "updated_at_ms"),
            "token": place["token"] in (await self.client.get("/api/tokens", headers=root)).text,
        }


def leaked(answer: str, request: str) -> set[str]:
    """What an answer tells of tenant B that the request did not say itself."""
    return set(MARKED.findall(answer)) - set(MARKED.findall(request))


class PackedPeer(Peer):
    """A socket that packs its envelopes, since streams are for such sockets only."""

    async def send(self, frame: str | bytes) -> None:
        await super().send(msgspec.msgpack.encode(json.loads(frame)))


async def open_socket(world: World, who: Headers) -> PackedPeer:
    socket = await connect(
        address_of(world.api), additional_headers=who, subprotocols=[Subprotocol(MSGPACK)]
    )
    peer = PackedPeer(socket)
    await peer.pushed("SessionEstablished")
    return peer


def secured(answer: httpx.Response) -> str:
    """Everything of an answer that its reader can see."""
    return f"{answer.headers} {answer.text}"
