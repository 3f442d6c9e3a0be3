from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken
from rota.gateways.auth.authenticator import hash_of, new_secret
from tests.gateways.serving import Api, Json, called

Headers = dict[str, str]


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that anybody may reach, so everybody needs a token."""
    async with called(tmp_path, host="0.0.0.0") as running:
        yield running


async def token(api: Api, *scopes: str, **bound: Any) -> Headers:
    secret = new_secret()
    added = AccessToken(
        id=f"t-{secret[5:12]}",
        hash=hash_of(secret),
        name="-".join(scopes),
        scopes=tuple(map(Scope, scopes)),
        created_at_ms=0,
        **bound,
    )
    await api.node.coordinator.execute(AddToken(added))
    api.node.authenticator.forget_tokens()
    return {"authorization": f"Bearer {secret}"}


async def status(api: Api, who: Headers, method: str, path: str, body: Json = None) -> int:
    answer = await api.client.request(method, path, json=body, headers=who)
    return answer.status_code


LOOK = ("GET", "/api/tasks", None)
SUBMIT = ("POST", "/api/tasks", {"name": "work"})
REGISTER = ("POST", "/api/workers", {"worker_id": "w1"})
OPERATE = ("POST", "/api/queues/default/pause", None)
GRANT = ("POST", "/api/tokens", {"scopes": ["read"]})


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("admin", [LOOK, SUBMIT, REGISTER, OPERATE, GRANT]),
        ("submit", [LOOK, SUBMIT]),
        ("read", [LOOK]),
        ("worker", [REGISTER]),
    ],
)
async def test_each_scope_opens_what_it_says_and_nothing_else(
    closed: Api, scope: str, allowed: list[Any]
) -> None:
    who = await token(closed, scope)

    for call in (LOOK, SUBMIT, REGISTER, OPERATE, GRANT):
        given = await status(closed, who, *call)
        assert (given in {200, 201}) if call in allowed else (given == 403), call


async def test_without_a_token_only_the_open_paths_answer(closed: Api) -> None:
    for path in ("/health", "/health/live", "/health/ready", "/docs", "/openapi.json", "/"):
        assert (await closed.get(path)).status_code == 200
    for method, path, body in (LOOK, SUBMIT, REGISTER, OPERATE, GRANT, ("GET", "/metrics", None)):
        answer = await closed.client.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer rota_nonsense", "rota", ""])
async def test_anything_but_a_known_bearer_token_is_refused(closed: Api, header: str) -> None:
    answer = await closed.get("/api/tasks", headers={"authorization": header})

    assert answer.status_code == 401


async def test_a_token_in_the_query_is_not_a_token(closed: Api) -> None:
    who = await token(closed, "admin")
    secret = who["authorization"].split()[1]

    answer = await closed.get(f"/api/tasks?token={secret}")

    assert answer.status_code == 401


async def test_tokens_are_made_used_listed_and_revoked(closed: Api) -> None:
    admin = await token(closed, "admin")
    body = {"scopes": ["submit", "submit"], "name": "ci", "expires_in_ms": 60_000}

    made = await closed.post("/api/tokens", body, headers=admin)
    who = {"authorization": f"Bearer {made.json()['token']}"}
    used = await status(closed, who, *SUBMIT)
    listed = await closed.get("/api/tokens", headers=admin)
    revoked = await closed.delete(f"/api/tokens/{made.json()['id']}", headers=admin)
    after = await status(closed, who, *SUBMIT)
    again = await closed.delete(f"/api/tokens/{made.json()['id']}", headers=admin)

    assert made.status_code == 201
    assert made.json()["expires_at_ms"] == closed.clock.now_ms() + 60_000
    assert (used, after) == (201, 401)
    assert made.json()["token"] not in listed.text
    assert {"ci"} < {item["name"] for item in listed.json()["items"]}
    assert revoked.status_code == 200
    assert (again.status_code, again.json()["code"]) == (404, "token_not_found")


async def test_a_token_that_has_expired_is_refused(closed: Api) -> None:
    who = await token(closed, "admin", expires_at_ms=closed.clock.now_ms() + 1_000)
    assert await status(closed, who, *LOOK) == 200

    closed.clock.turn(1_000)

    assert await status(closed, who, *LOOK) == 401


async def test_a_submit_token_bound_to_queues_stays_within_them(closed: Api) -> None:
    who, admin = await token(closed, "submit", queues=("a",)), await token(closed, "admin")
    own = await closed.post("/api/tasks", {"name": "x", "queue": "a"}, headers=who)
    other = await closed.post("/api/tasks", {"name": "x", "queue": "b"}, headers=admin)
    own_id, other_id = own.json()["id"], other.json()["id"]

    assert own.status_code == 201
    mixed = [{"name": "x", "queue": "a"}, {"name": "x", "queue": "b"}]
    assert await status(closed, who, "POST", "/api/tasks", mixed) == 403
    assert await status(closed, who, "GET", f"/api/tasks/{own_id}") == 200
    assert await status(closed, who, "GET", f"/api/tasks/{other_id}") == 403
    assert await status(closed, who, "GET", f"/api/tasks/{other_id}?wait_ms=1") == 403
    assert await status(closed, who, "POST", f"/api/tasks/{other_id}/cancel") == 403
    assert await status(closed, who, "POST", "/api/tasks/cancel", {"queue": "b"}) == 403
    bulk = await closed.post("/api/tasks/cancel", {"ids": [own_id, other_id]}, headers=who)
    assert bulk.json()["count"] == 1
    listed = (await closed.get("/api/tasks", headers=who)).json()["items"]
    assert {task["queue"] for task in listed} == {"a"}
    queues = (await closed.get("/api/queues", headers=who)).json()["items"]
    assert [queue["name"] for queue in queues] == ["a"]


async def test_a_token_for_several_queues_must_say_which_it_lists(closed: Api) -> None:
    who = await token(closed, "submit", queues=("a", "b"))

    assert await status(closed, who, "GET", "/api/tasks") == 403
    assert await status(closed, who, "GET", "/api/tasks?queue=b") == 200


async def test_a_worker_token_registers_only_for_its_queues(closed: Api) -> None:
    who = await token(closed, "worker", queues=("a", "b"))

    absent = await closed.post("/api/workers", {"node_id": "n"}, headers=who)
    fewer = await closed.post("/api/workers", {"queues": ["b"]}, headers=who)
    other = await closed.post("/api/workers", {"queues": ["b", "c"]}, headers=who)

    assert absent.json()["queues"] == ["a", "b"]
    assert fewer.json()["queues"] == ["b"]
    assert (other.status_code, other.json()["code"]) == (403, "forbidden")


async def test_a_worker_token_for_queues_cannot_speak_for_a_worker_with_more(closed: Api) -> None:
    admin, who = await token(closed, "admin"), await token(closed, "worker", queues=("a",))
    wide = await closed.post("/api/workers", {"worker_id": "wide"}, headers=admin)
    narrow = await closed.post("/api/workers", {"worker_id": "narrow"}, headers=who)

    async def lease(answer: Json) -> int:
        body = {"incarnation": answer["incarnation"]}
        return await status(closed, who, "POST", f"/api/workers/{answer['id']}/lease", body)

    assert await lease(wide.json()) == 403
    assert await lease(narrow.json()) == 200
    assert await lease({"id": "nobody", "incarnation": 1}) == 404


async def test_a_worker_token_bound_to_an_id_is_that_worker_only(closed: Api) -> None:
    who = await token(closed, "worker", worker_id="w1")

    given = await closed.post("/api/workers", {"node_id": "n"}, headers=who)
    other = await closed.post("/api/workers", {"worker_id": "w2"}, headers=who)

    assert given.json()["id"] == "w1"
    assert other.status_code == 403
    for verb, body in (
        ("heartbeat", {"incarnation": 1}),
        ("lease", {"incarnation": 1}),
        ("results", {"incarnation": 1, "results": []}),
        ("progress", []),
    ):
        assert await status(closed, who, "POST", f"/api/workers/w2/{verb}", body) == 403
    assert await status(closed, who, "DELETE", "/api/workers/w2") == 403
    assert await status(closed, who, "DELETE", "/api/workers/w1") == 200


async def test_a_job_is_started_by_its_token_for_its_queues_only(closed: Api) -> None:
    admin = await token(closed, "admin")
    who = await token(closed, "worker", worker_id="w1", queues=("a",))
    own = await closed.post("/api/tasks", {"name": "x", "queue": "a"}, headers=admin)
    other = await closed.post("/api/tasks", {"name": "x", "queue": "b"}, headers=admin)

    started = await closed.post(f"/api/jobs/{own.json()['id']}/start", headers=who)

    assert started.json()["job"]["worker_id"] == "w1"
    path = f"/api/jobs/{own.json()['id']}/start"
    assert await status(closed, who, "POST", path, {"worker_id": "w2"}) == 403
    refused = await closed.post(f"/api/jobs/{other.json()['id']}/start", headers=who)
    assert (refused.status_code, refused.json()["success"]) == (403, False)


async def test_insecure_opens_everything(tmp_path: Path) -> None:
    async with called(tmp_path, host="0.0.0.0", insecure=True) as api:
        assert await status(api, {}, *OPERATE) == 200


async def test_a_foreign_page_cannot_use_an_open_coordinator(api: Api) -> None:
    async def post(**headers: str) -> int:
        answer = await api.post("/api/tasks", {"name": "x"}, headers=headers)
        return answer.status_code

    own = str(api.client.base_url).rstrip("/")
    assert await post(origin=own) == 201
    assert await post(origin="https://evil.example") == 403
    assert await post(origin="null") == 403
    assert await post(host="evil.example") == 403
    look = await api.get("/api/tasks", headers={"host": "evil.example"})
    assert (look.status_code, look.json()["code"]) == (403, "forbidden")


async def test_on_loopback_a_bad_token_is_still_a_bad_token(api: Api) -> None:
    answer = await api.get("/api/tasks", headers={"authorization": f"Bearer {new_secret()}"})

    assert answer.status_code == 401
