from typing import Any

import pytest

from rota.core import limits
from tests.gateways.membership import EVERYTHING, FEED, SERVICE, SERVICES, Member, pass_time, two
from tests.gateways.serving import Api, Json
from tests.gateways.test_access import closed, status, token

__all__ = ["closed"]  # a fixture


async def put(api: Api, body: Json, name: str = SERVICE) -> Json:
    answer = await api.client.put(f"{SERVICES}/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(api: Api) -> Json:
    answer = await api.get(FEED)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- how services look ----------------------------------------------------------------------------


async def test_a_service_shows_who_owns_what_and_who_shall(api: Api) -> None:
    a, b = Member(api, "a"), Member(api, "b")
    await a.register()
    await b.register(weight=1.5, maxShards=4)
    await pass_time(api, 2_500)

    feed = await shown(api)

    assert (feed["name"], feed["shard_count"], feed["pinned"]) == (SERVICE, 10, False)
    assert (feed["min_protocol"], feed["unowned"], feed["moving"]) == (1, 0, 4)
    assert feed["generation"] > a.told["generation"]
    first, second = feed["members"]
    assert (first["worker_id"], second["worker_id"]) == ("a", "b")
    assert (first["shards"], first["epochs"]) == (EVERYTHING, [1] * 10)
    assert (first["target"], second["target"]) == (EVERYTHING[:6], EVERYTHING[6:])
    assert (first["weight"], second["weight"], second["max_shards"]) == (1.0, 1.5, 4)
    assert (second["shards"], second["epochs"]) == ([], [])
    assert (first["draining"], first["health"], first["protocol"]) == (False, "healthy", 2)
    assert first["last_heartbeat_ms"] == api.clock.now_ms() - 2_500
    assert first["fenced"] is None


async def test_services_are_listed_with_what_counts(api: Api) -> None:
    await put(api, {"shard_count": 3}, name="empty")
    await Member(api, "a").register()

    answer = await api.get(SERVICES)

    assert answer.status_code == 200
    assert answer.json()["next_cursor"] is None
    empty, feed = answer.json()["items"]
    assert (empty["name"], empty["member_count"], empty["unowned"]) == ("empty", 0, 3)
    assert (feed["name"], feed["member_count"], feed["unowned"]) == (SERVICE, 1, 0)
    assert "members" not in feed


async def test_without_services_the_list_is_empty(api: Api) -> None:
    assert (await api.get(SERVICES)).json() == {"items": [], "next_cursor": None}


async def test_a_service_that_never_was_is_not_found(api: Api) -> None:
    calls = [
        await api.get(FEED),
        await api.get(f"{SERVICES}/{'x' * 201}"),
        await api.post(f"{FEED}/members/a/drain"),
        await api.get(f"{FEED}/shards/0/checkpoint"),
        await api.client.put(f"{FEED}/shards/0/checkpoint", json={"epoch": 1}),
    ]

    for answer in calls:
        assert (answer.status_code, answer.json()["code"]) == (404, "service_not_found")
        assert "not found" in answer.json()["detail"]


# --- what operators decide ------------------------------------------------------------------------


async def test_a_service_is_made_and_changed_field_by_field(api: Api) -> None:
    made = await put(api, {"shard_count": 7})
    pinned = await put(api, {"pinned": True})
    same = await put(api, {})
    changed = await put(api, {"shard_count": 8, "min_protocol": 2, "pinned": False})

    assert (made["shard_count"], made["pinned"], made["unowned"]) == (7, False, 7)
    assert (pinned["shard_count"], pinned["pinned"]) == (7, True)
    assert same == pinned
    assert (changed["shard_count"], changed["pinned"], changed["min_protocol"]) == (8, False, 2)


async def test_a_pinned_count_is_what_members_get_whatever_they_say(api: Api) -> None:
    await put(api, {"shard_count": 4, "pinned": True})

    told = await Member(api, "a", count=10).register()

    assert told["assignedShards"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"shard_count": 0}, "shard_count"),
        ({"shard_count": limits.MAX_SHARDS + 1}, "shard_count"),
        ({"shard_count": 1.5}, "shard_count"),
        ({"min_protocol": 3}, "min_protocol"),
        ({"pinned": "yes"}, "pinned"),
        ({"shards": 3}, "shards"),
    ],
    ids=str,
)
async def test_a_bad_change_names_its_field_and_makes_nothing(
    api: Api, body: Json, field: str
) -> None:
    answer = await api.client.put(FEED, json=body)

    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert (await api.get(FEED)).status_code == 404


async def test_a_change_needs_a_body(api: Api) -> None:
    assert (await api.client.put(FEED)).json()["code"] == "malformed"


async def test_names_have_their_length(api: Api) -> None:
    long = "x" * 201

    service = await api.client.put(f"{SERVICES}/{long}", json={})
    member = await api.post(f"{SERVICES}/{long}/members", {"workerId": "a", "maxShardCount": 1})
    beat = await api.post(
        f"{FEED}/members/{long}/heartbeat", {"maxShardCount": 1, "assignedShards": []}
    )

    assert (service.status_code, service.json()["field"]) == (400, "name")
    assert (member.status_code, member.json()["field"]) == (400, "name")
    assert (beat.status_code, beat.json()["field"]) == (400, "worker_id")


async def test_names_may_have_anything_in_them(api: Api) -> None:
    told = await api.post(
        f"{SERVICES}/a%2Fb%20%C3%B6/members", {"workerId": "w/1", "maxShardCount": 2}
    )
    drained = await api.post(f"{SERVICES}/a%2Fb%20%C3%B6/members/w%2F1/drain")

    assert told.json()["assignedShards"] == [0, 1]
    assert drained.json()["name"] == "a/b ö"
    assert drained.json()["members"][0]["draining"] is True


async def test_a_drained_member_hands_over_and_gets_shards_again_when_it_may(api: Api) -> None:
    a, b = await two(api)

    draining = await api.post(f"{a.path}/drain")
    await pass_time(api, 500)
    asked = await a.beat()
    assert (asked["assignedShards"], asked["revoking"]) == ([], [0, 1, 2, 3, 4])
    await a.beat()
    assert (await b.beat())["assignedShards"] == EVERYTHING
    again = await api.post(f"{a.path}/drain", {"draining": False})
    await pass_time(api, 500)

    assert draining.json()["members"][0]["draining"] is True
    assert again.json()["members"][0]["draining"] is False
    assert (await shown(api))["moving"] == 5


async def test_only_a_member_can_be_drained(api: Api) -> None:
    await put(api, {"shard_count": 1})

    answer = await api.post(f"{FEED}/members/nobody/drain")

    assert (answer.status_code, answer.json()["code"]) == (404, "member_not_found")
    assert "not found" in answer.json()["detail"]


# --- tokens ---------------------------------------------------------------------------------------

Request = tuple[str, str, Json]

REGISTER = ("POST", f"{FEED}/members", {"workerId": "a", "maxShardCount": 10})
BEAT = ("POST", f"{FEED}/members/a/heartbeat", {"maxShardCount": 10, "assignedShards": []})
SAVE = ("PUT", f"{FEED}/shards/0/checkpoint", {"epoch": 1, "value": 1})
CHECKPOINT = ("GET", f"{FEED}/shards/0/checkpoint", None)
LIST = ("GET", SERVICES, None)
SHOW = ("GET", FEED, None)
CONFIGURE = ("PUT", FEED, {"pinned": True})
DRAIN = ("POST", f"{FEED}/members/a/drain", None)
LEAVE = ("DELETE", f"{FEED}/members/a", None)
WORK: list[Request] = [REGISTER, BEAT, SAVE, CHECKPOINT, LEAVE]
EVERY_CALL: list[Request] = [REGISTER, BEAT, SAVE, CHECKPOINT, LIST, SHOW, CONFIGURE, DRAIN, LEAVE]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("admin", EVERY_CALL),
        ("worker", WORK),
        ("read", [LIST, SHOW]),
        ("submit", [LIST, SHOW]),
    ],
    ids=["admin", "worker", "read", "submit"],
)
async def test_each_scope_opens_its_part_of_services(closed: Api, scope: str, allowed: Any) -> None:
    admin, who = await token(closed, "admin"), await token(closed, scope)
    await status(closed, admin, *REGISTER)

    for call in EVERY_CALL:
        given = await status(closed, who, *call)
        assert given == (200 if call in allowed else 403), call


async def test_without_a_token_services_are_closed(closed: Api) -> None:
    for call in EVERY_CALL:
        assert await status(closed, {}, *call) == 401


async def test_a_token_bound_to_an_id_speaks_for_that_member_only(closed: Api) -> None:
    own = await token(closed, "worker", worker_id="a")
    who = await token(closed, "worker", worker_id="b")
    await status(closed, own, *REGISTER)

    for call in (REGISTER, BEAT, LEAVE):
        assert await status(closed, who, *call) == 403, call
    # The epoch is right, but the shard is that of another.
    assert await status(closed, who, *SAVE) == 403
    assert await status(closed, who, "PUT", SAVE[1], {"epoch": 7}) == 409
    assert await status(closed, who, *CHECKPOINT) == 200
    for call in WORK:
        assert await status(closed, own, *call) == 200, call


async def test_a_token_bound_to_services_is_for_no_other(closed: Api) -> None:
    admin = await token(closed, "admin")
    own = await token(closed, "submit", "worker", services=(SERVICE,))
    other = await token(closed, "submit", "worker", services=("other",))
    queues = await token(closed, "submit", "worker", queues=("default",))
    await status(closed, own, *REGISTER)
    await status(closed, admin, "PUT", f"{SERVICES}/other", {"shard_count": 1})

    for call in EVERY_CALL:
        expected = 403 if call in [CONFIGURE, DRAIN] else 200
        assert await status(closed, own, *call) == expected, call
    for who in (other, queues):
        for call in EVERY_CALL:
            assert await status(closed, who, *call) == (200 if call is LIST else 403), call
    for who, names in ((own, [SERVICE]), (other, ["other"]), (queues, [])):
        listed = (await closed.get(SERVICES, headers=who)).json()["items"]
        assert [one["name"] for one in listed] == names


async def test_a_token_bound_to_services_alone_is_for_no_queue(closed: Api) -> None:
    admin = await token(closed, "admin")
    body = {"scopes": ["submit", "worker"], "services": [SERVICE]}
    made = await closed.post("/api/tokens", body, headers=admin)
    who = {"authorization": f"Bearer {made.json()['token']}"}

    assert made.json()["services"] == [SERVICE]
    assert await status(closed, who, "POST", "/api/tasks", {"name": "x"}) == 403
    assert await status(closed, who, "GET", "/api/tasks") == 403
    assert await status(closed, who, "GET", "/api/runs") == 403
    assert await status(closed, who, "POST", "/api/workers", {"queues": ["default"]}) == 403
    assert await status(closed, who, *REGISTER) == 200
