"""Whatever one caller takes, the others are served."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from websockets.exceptions import InvalidStatus

from rota.administration import create_token
from rota.core import limits
from rota.core.access import LOCAL, Caller, Scope
from rota.errors import TooMany
from rota.gateways.auth.authenticator import new_token
from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.quotas import Quota, Quotas, Reservation, address_of
from rota.gateways.registration import WorkerQuota
from rota.messages import TokenRequest
from rota.settings import Settings
from tests.gateways.serving import Api, Json, served, settings_in
from tests.gateways.test_artifacts import ONE, attach
from tests.gateways.websocket.talking import peer
from tests.gateways.working import Bench

SECONDS = 30
PLACES = 16  # of which one caller has 14, and the last is for operators
SHARE = PLACES - PLACES // limits.LEFT_PART
LONG_POLL_SHARE = PLACES - PLACES // limits.LONG_POLLS_LEFT_PART

Headers = dict[str, str]


class Callers:
    """Tokens of several callers, in the store before the coordinator is served."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._settings = settings_in(folder, **settings)
        self._folder = folder
        self._options = settings

    def add(self, *scopes: Any, **bound: Any) -> Headers:
        token, secret = new_token(
            TokenRequest(scopes=list(scopes), name="-".join(scopes), **bound),
            now_ms=1_800_000_000_000,
        )
        create_token(self._settings, token)
        return {"authorization": f"Bearer {secret}"}

    @asynccontextmanager
    async def served(self, **settings: Any) -> AsyncIterator[Api]:
        options = {**self._options, "require_token": True, "zmq_port": None}
        options["store"] = self._settings.store
        async with served(self._folder, **options, **settings) as api:
            # Each stalled request has a connection of its own.
            limit = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            async with httpx.AsyncClient(
                base_url=api.client.base_url, timeout=SECONDS, limits=limit, verify=False
            ) as client:
                yield Api(client, api.node, api.clock)


class Raw:
    """A connection on which a test says exactly what it wants to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def status(self) -> int:
        line = await asyncio.wait_for(self._reader.readline(), SECONDS)
        return int(line.split()[1])

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def close(self) -> None:
        self._writer.close()


async def raw(api: Api, stack: AsyncExitStack, *pieces: bytes) -> Raw:
    url = httpx.URL(str(api.client.base_url))
    connection = Raw(*await asyncio.open_connection(url.host, url.port))
    stack.push_async_callback(connection.close)
    for piece in pieces:
        connection.send(piece)
    return connection


def head(method: str, path: str, who: Headers, **more: Any) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    given = {**who, **{name.replace("_", "-"): value for name, value in more.items()}}
    lines += [f"{name}: {value}" for name, value in given.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)


async def register(api: Api, who: Headers, worker_id: str = "w1") -> Json:
    body = {"worker_id": worker_id, "node_id": "n1", "max_concurrent_tasks": 10}
    answer = await api.post("/api/workers", body, headers=who)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def keep_work(api: Api, who: Headers, worker: Json, lease: Json) -> list[int]:
    """Beat, tell how far a task is, and report its result; the statuses."""
    path, incarnation = f"/api/workers/{worker['id']}", worker["incarnation"]
    held = {"task_id": lease["task_id"], "fence": lease["fence"]}
    bodies = {
        "heartbeat": {"incarnation": incarnation, "running": [lease["task_id"]]},
        "progress": {"incarnation": incarnation, "items": [{**held, "progress": 1}]},
        "results": {"incarnation": incarnation, "results": [{**held, "ok": True}]},
    }
    return [
        (await api.post(f"{path}/{verb}", body, headers=who)).status_code
        for verb, body in bodies.items()
    ]


async def leased(api: Api, submitter: Headers, who: Headers, worker: Json) -> Json:
    await api.post("/api/tasks", {"name": "work"}, headers=submitter)
    body = {"incarnation": worker["incarnation"], "max": 1}
    answer = await api.post(f"/api/workers/{worker['id']}/lease", body, headers=who)
    return answer.json()["leases"][0]


MEMBERS = "/api/services/orders/members"


async def join(api: Api, who: Headers) -> Json:
    member = {"workerId": "m1", "maxShardCount": 2, "incarnation": 1}
    answer = await api.post(MEMBERS, member, headers=who)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def beat(api: Api, who: Headers, assigned: Json, *, wait_ms: int = 0) -> httpx.Response:
    body = {
        "maxShardCount": 2,
        "assignedShards": assigned["assignedShards"],
        "incarnation": 1,
        "generation": assigned["generation"],
        "seq": 1,
    }
    return await api.post(f"{MEMBERS}/m1/heartbeat?wait_ms={wait_ms}", body, headers=who)


# --- callers that nobody knows ------------------------------------------------------------------


async def test_stalled_logins_hurt_nobody_but_other_logins_of_their_address(
    tmp_path: Path,
) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    admin, worker_token = callers.add("admin"), callers.add("worker")
    login = head("POST", "/api/login", {}, content_length="100")
    async with callers.served() as api, AsyncExitStack() as stack:
        worker = await register(api, worker_token)
        lease = await leased(api, admin, worker_token, worker)
        anonymous = api.node.quotas.anonymous
        for _ in range(limits.MAX_ANONYMOUS_REQUESTS_OF_ADDRESS):
            await raw(api, stack, login)
        await until(lambda: anonymous.taken == limits.MAX_ANONYMOUS_REQUESTS_OF_ADDRESS)

        one_more = await raw(api, stack, login)

        assert await one_more.status() == 429
        assert api.node.quotas.requests.places.taken == 0
        assert (await api.get("/api/tasks", headers=admin)).status_code == 200
        assert (await api.get("/health/ready")).status_code == 200
        assert await keep_work(api, worker_token, worker, lease) == [200, 200, 200]
    assert anonymous.taken == 0


async def test_a_login_over_4_kib_is_refused_before_its_body_is_read(api: Api) -> None:
    large = head("POST", "/api/login", {}, content_length=str(limits.MAX_LOGIN_BYTES + 1))
    async with AsyncExitStack() as stack:
        declared = await raw(api, stack, large)
        grown = await raw(api, stack, head("POST", "/api/logout", {}, transfer_encoding="chunked"))
        for _ in range(2):
            grown.send(b"c00\r\n" + b" " * 0xC00 + b"\r\n")

        assert await declared.status() == 413
        assert await grown.status() == 413
    answer = await api.client.post("/api/login", content=b" " * 5 * 1024)
    assert (answer.status_code, answer.json()["limit"]) == (413, limits.MAX_LOGIN_BYTES)


async def test_a_request_without_a_token_is_refused_before_its_body_is_there(
    tmp_path: Path,
) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    callers.add("admin")
    async with callers.served() as api, AsyncExitStack() as stack:
        for _ in range(2 * PLACES):
            one = await raw(api, stack, head("POST", "/api/tasks", {}, content_length="100"))
            assert await one.status() == 401

        assert api.node.quotas.requests.reading.taken == 0


# --- places -------------------------------------------------------------------------------------


async def test_long_polls_of_one_token_leave_room_for_others_and_for_kept_work(
    tmp_path: Path,
) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    reader, other = callers.add("read"), callers.add("read")
    admin, worker_token = callers.add("admin"), callers.add("worker")
    async with callers.served() as api, AsyncExitStack() as stack:
        worker = await register(api, worker_token)
        lease = await leased(api, admin, worker_token, worker)
        path = f"/api/tasks/{lease['task_id']}?wait_ms=60000"
        for _ in range(LONG_POLL_SHARE):
            await raw(api, stack, head("GET", path, reader))
        polls = api.node.quotas.long_polls
        await until(lambda: polls.taken == LONG_POLL_SHARE)

        refused = await api.get(path, headers=reader)

        assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
        assert refused.json()["limit"] == LONG_POLL_SHARE
        assert (await api.get("/api/tasks", headers=other)).status_code == 200
        assert (await api.get("/api/tasks", headers=admin)).status_code == 200
        assert (await beat(api, worker_token, await join(api, worker_token))).status_code == 200
        assert await keep_work(api, worker_token, worker, lease) == [200, 200, 200]
        await until(lambda: polls.taken == 0)  # the task has ended


async def test_places_that_all_others_have_taken_are_left_for_operators_and_kept_work(
    tmp_path: Path,
) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    greedy, others = callers.add("read"), callers.add("read")
    admin, worker_token = callers.add("admin"), callers.add("worker")
    async with callers.served() as api:
        worker = await register(api, worker_token)
        lease = await leased(api, admin, worker_token, worker)
        places = api.node.quotas.requests.places
        reader = Caller(name="read", scopes=(Scope.READ,))
        # As requests do that are under way.
        places.take((await token_id(api, admin, greedy)), reader, SHARE)
        mine = await api.get("/api/tasks", headers=greedy)
        places.take("t-other", reader)
        theirs = await api.get("/api/tasks", headers=others)

        assert (mine.status_code, mine.json()["limit"]) == (429, SHARE)
        assert (theirs.status_code, theirs.json()["limit"]) == (429, PLACES)
        assert (await api.get("/api/tasks", headers=admin)).status_code == 200
        assert await keep_work(api, worker_token, worker, lease) == [200, 200, 200]


def test_the_calls_that_keep_work_have_rooms_of_their_own() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.keeps_work} == {
        "/api/workers/{worker_id}/heartbeat",
        "/api/workers/{worker_id}/results",
        "/api/workers/{worker_id}/progress",
        "/api/workers/{worker_id}/operations",
        "/api/jobs/{job_id}/complete",
        "/api/jobs/{job_id}/fail",
        "/api/services/{name}/members/{worker_id}/heartbeat",
        "/api/services/{name}/shards/{shard}/checkpoint",
        "/api/locks/{name}/renew",
        "/api/locks/{name}/release",
    }


async def token_id(api: Api, admin: Headers, who: Headers) -> str:
    assert (await api.get("/api/me", headers=who)).status_code == 200
    items = (await api.get("/api/tokens", headers=admin)).json()["items"]
    caller = await api.node.authenticator.identify(who["authorization"].removeprefix("Bearer "))
    assert caller.token_id in {item["id"] for item in items}
    assert caller.token_id is not None
    return caller.token_id


async def test_a_beat_that_would_wait_is_answered_at_once_when_there_is_no_room_to_wait(
    tmp_path: Path,
) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    worker_token = callers.add("worker")
    async with callers.served() as api:
        assigned = await join(api, worker_token)
        polls = api.node.quotas.long_polls
        polls.take("t-other", LOCAL, LONG_POLL_SHARE)
        polls.take("t-another", LOCAL, polls.whole - LONG_POLL_SHARE)

        answer = await beat(api, worker_token, assigned, wait_ms=60_000)

        assert answer.status_code == 200, answer.text
        assert api.node.quotas.keeping_work.places.taken == 0


async def test_submissions_of_one_caller_leave_room_for_those_of_others(tmp_path: Path) -> None:
    callers = Callers(tmp_path, max_waiting=PLACES)
    greedy, other, admin = callers.add("submit"), callers.add("submit"), callers.add("admin")
    async with callers.served() as api:
        submitted = api.node.quotas.submitted
        reader = Caller(name="submit", scopes=(Scope.SUBMIT,))
        submitted.take(await token_id(api, admin, greedy), reader, SHARE)
        for duty in api.node.coordinator.leading.duties._tasks:
            duty.cancel()  # a duty that waits for its commit is a waiting change, too

        async def submit(who: Headers, count: int) -> int:
            tasks = [{"name": "work"}] * count
            return (await api.post("/api/tasks", tasks, headers=who)).status_code

        assert await submit(greedy, 1) == 503
        assert await submit(other, 1) == 201
        assert await submit(other, 2 * PLACES) == 201  # alone, it may be of any size
        assert submitted.taken == SHARE


# --- bodies -------------------------------------------------------------------------------------

MEBIBYTE = 1024 * 1024


async def test_bodies_on_their_way_hold_no_place_and_only_a_share_of_the_bytes(
    tmp_path: Path,
) -> None:
    sizes = {"max_body_bytes": MEBIBYTE, "max_bodies_bytes": 2 * MEBIBYTE}
    callers = Callers(tmp_path, **sizes)
    greedy, other, worker_token = (
        callers.add("submit"),
        callers.add("submit"),
        callers.add("worker"),
    )
    large = {"content_length": str(MEBIBYTE)}
    async with callers.served() as api, AsyncExitStack() as stack:
        rooms = api.node.quotas.requests
        await raw(api, stack, head("POST", "/api/tasks", greedy, **large), b"[")
        await until(lambda: rooms.body_bytes.taken == MEBIBYTE)

        refused = await raw(api, stack, head("POST", "/api/tasks", greedy, **large))
        chunked = await raw(
            api,
            stack,
            head("POST", "/api/tasks", greedy, transfer_encoding="chunked"),
            b"1\r\n[\r\n",
        )

        assert await refused.status() == 429
        assert await chunked.status() == 429
        assert rooms.places.taken == 0
        small = await api.post("/api/tasks", {"name": "work"}, headers=greedy)
        body = {"name": "work", "payload": "x" * (MEBIBYTE // 2)}
        assert small.status_code == 201
        assert (await api.post("/api/tasks", body, headers=other)).status_code == 201
        await register(api, worker_token)
    assert rooms.body_bytes.taken == rooms.reading.taken == 0


async def test_a_caller_has_only_so_many_bodies_on_their_way(tmp_path: Path) -> None:
    callers = Callers(tmp_path, max_connections=PLACES)
    greedy, other = callers.add("submit"), callers.add("submit")
    stalled = head("POST", "/api/tasks", greedy, content_length="100")
    async with callers.served() as api, AsyncExitStack() as stack:
        reading = api.node.quotas.requests.reading
        for _ in range(SHARE):
            await raw(api, stack, stalled)
        await until(lambda: reading.taken == SHARE)

        refused = await raw(api, stack, stalled)

        assert await refused.status() == 429
        own = await api.post("/api/tasks", {"name": "work"}, headers=greedy)
        others = await raw(
            api, stack, head("POST", "/api/tasks", other, content_length="15"), b'{"name":'
        )
        await until(lambda: reading.taken == SHARE + 1)
        others.send(b' "wor"}')
        assert own.status_code == 201
        assert await others.status() == 201


# --- streams and sockets ------------------------------------------------------------------------


async def test_event_streams_of_one_token_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_EVENT_STREAMS", PLACES)
    callers = Callers(tmp_path)
    greedy, other, admin = callers.add("read"), callers.add("read"), callers.add("admin")
    accept = {"accept": "text/event-stream"}
    async with callers.served() as api, AsyncExitStack() as stack:
        streams = api.node.quotas.event_streams
        for _ in range(SHARE):
            one = await raw(api, stack, head("GET", "/api/events", greedy, **accept))
            assert await one.status() == 200

        refused = await raw(api, stack, head("GET", "/api/events", greedy, **accept))
        allowed = await raw(api, stack, head("GET", "/api/events", other, **accept))
        reserved = await raw(api, stack, head("GET", "/api/events", other, **accept))
        operator = await raw(api, stack, head("GET", "/api/events", admin, **accept))

        statuses = [await one.status() for one in (refused, allowed, reserved, operator)]
        assert statuses == [429, 200, 429, 200]
        await stack.aclose()
        await until(lambda: streams.taken == 0)


async def test_sockets_of_one_token_leave_room_for_others(tmp_path: Path) -> None:
    callers = Callers(tmp_path, max_sockets=8)
    greedy, other = callers.add("read"), callers.add("worker")
    async with callers.served() as api, AsyncExitStack() as stack:
        url = f"ws://{httpx.URL(str(api.client.base_url)).netloc.decode()}/ws"

        async def opened(who: Headers) -> Any:
            return await stack.enter_async_context(
                websockets.connect(url, additional_headers=who, open_timeout=SECONDS)
            )

        for _ in range(7):
            await opened(greedy)
        with pytest.raises(InvalidStatus) as refused:
            await opened(greedy)
        await opened(other)

        assert refused.value.response.status_code == 429
        await stack.aclose()
        await until(lambda: api.node.quotas.sockets.taken == 0)


async def test_subscriptions_of_one_caller_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKET_SUBSCRIPTIONS", 8)
    async with served(tmp_path) as api:
        subscriptions = api.node.quotas.subscriptions
        async with peer(api) as one, peer(api) as two:
            for number in range(7):
                wish = await (one if number % 2 else two).ask("subscribe", payload=["task-*"])
                assert wish["status"] == "subscribed"
            refused = await one.ask("subscribe", payload=["task-*"])
            await two.ask("unsubscribe", payload={})
            again = await one.ask("subscribe", payload=["task-*"])

            assert refused["code"] == "too_many"
            assert again["status"] == "subscribed"
        await until(lambda: subscriptions.taken == 0)


async def test_answers_that_sockets_wait_for_are_counted_by_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SOCKET_WAITS", 2)
    async with served(tmp_path) as api:
        waits = api.node.quotas.socket_waits
        async with peer(api) as worker, peer(api) as one:
            await worker.register("w")
            for number in range(2):
                await one.say("process_task", "worker:w", f"t{number}")
            await until(lambda: waits.taken == 2)
            refused = await one.ask("process_task", "worker:w", "t2")

            assert refused["code"] == "too_many"
        await until(lambda: waits.taken == 0)


# --- rooms --------------------------------------------------------------------------------------

READER = Caller(name="read", scopes=(Scope.READ,), token_id="t-1")


def test_one_caller_leaves_a_part_of_every_room() -> None:
    quotas = Quotas(Settings())

    for quota in (
        quotas.requests.places,
        quotas.requests.reading,
        quotas.requests.body_bytes,
        quotas.keeping_work.places,
        quotas.keeping_work.body_bytes,
        quotas.long_polls,
        quotas.anonymous,
        quotas.event_streams,
        quotas.sockets,
        quotas.subscriptions,
        quotas.socket_waits,
    ):
        quota.take("t-1", READER, quota.share)
        with pytest.raises(TooMany, match="of one caller"):
            quota.take("t-1", READER)
        quota.take("t-2", READER)


def test_a_room_of_one_is_not_split() -> None:
    quotas = Quotas(Settings(max_connections=1, max_sockets=1))

    for quota in (quotas.requests.places, quotas.long_polls, quotas.sockets):
        assert (quota.whole, quota.share) == (1, 1)
        quota.take("t-1", READER)


def test_what_a_stay_took_is_given_back_once() -> None:
    quota = Quota("places", 4, share=3, name="max")
    reservation = Reservation("t-1", READER)

    reservation.take(quota, 2)
    reservation.take(quota)
    assert not reservation.try_take(quota)
    assert (quota.taken, quota.held_by("t-1")) == (3, 3)
    reservation.release(quota)
    reservation.end()

    assert (quota.taken, quota.held_by("t-1")) == (0, 0)


@pytest.mark.parametrize(
    ("host", "holder"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("nowhere", "nowhere"),
    ],
)
def test_addresses_of_one_network_are_one_peer(host: str, holder: str) -> None:
    assert address_of({"client": (host, 1)}) == holder


def test_a_peer_without_an_address_is_counted_too() -> None:
    assert address_of({"client": None}) == "unknown"


# --- what is kept -------------------------------------------------------------------------------


async def test_workers_of_one_token_leave_room_for_others(tmp_path: Path) -> None:
    callers = Callers(tmp_path, max_workers=8)
    greedy, other = callers.add("worker"), callers.add("worker")
    async with callers.served() as api:
        for number in range(7):
            await register(api, greedy, f"w{number}")

        body = {"worker_id": "w7", "node_id": "n1", "max_concurrent_tasks": 1}
        refused = await api.post("/api/workers", body, headers=greedy)
        await register(api, greedy, "w0")  # one that it has may come back
        await register(api, other, "x")

        assert (refused.status_code, refused.json()["setting"]) == (429, "max_workers")
        left = await api.delete("/api/workers/w1", headers=greedy)
        assert left.status_code == 200


async def test_workers_that_are_gone_make_room_for_new_ones() -> None:
    registered = {"w0", "w1"}

    async def find_registered(worker_ids: Sequence[str]) -> set[str]:
        return registered & {*worker_ids}

    worker_quota = WorkerQuota(Settings(max_workers=2), find_registered)
    await worker_quota.check("t-1", "w0")
    await worker_quota.check("t-1", "w1")
    registered.remove("w0")

    await worker_quota.check("t-1", "w2")

    registered.add("w2")
    with pytest.raises(TooMany):
        await worker_quota.check("t-1", "w3")


async def test_an_upload_on_its_way_holds_no_place(tmp_path: Path) -> None:
    async with served(tmp_path) as api, AsyncExitStack() as stack:
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id = await bench.start("one")
        (lease,) = await bench.worker.lease()
        query = f"task_id={lease['task_id']}&fence={lease['fence']}"
        path = f"/api/runs/{run_id}/artifacts/a?{query}"

        stalled = await raw(api, stack, head("PUT", path, {}, content_length="4"), b"ab")
        rooms = api.node.quotas.requests
        await until(lambda: rooms.reading.taken == 1)
        taken = rooms.places.taken
        stalled.send(b"cd")

        assert await stalled.status() == 201
        assert taken == 0
        assert rooms.body_bytes.taken == rooms.reading.taken == 0


async def test_artifacts_of_one_attempt_have_a_bound_of_bytes(tmp_path: Path) -> None:
    async with served(tmp_path, max_attempt_bytes=2_048) as api:
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id = await bench.start("one")
        (lease,) = await bench.worker.lease()

        first = await attach(bench, run_id, lease, "a", b"x" * 1_500)
        second = await attach(bench, run_id, lease, "b", b"x" * 600)

    assert first.status_code == 201
    assert (second.status_code, second.json()["setting"]) == (413, "max_attempt_bytes")
