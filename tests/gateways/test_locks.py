"""Locks over HTTP: had, waited for, renewed, released, looked at; and callers that go away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json, called, served
from tests.gateways.test_access import status, token
from tests.gateways.test_kv import encoded, refusal

PATIENCE_S = 20


def path(name: str, verb: str = "") -> str:
    return f"/api/locks/{encoded(name)}" + (f"/{verb}" if verb else "")


async def acquire(api: Api, owner: str, name: str = "door", **options: Any) -> Json:
    answer = await api.post(path(name, "acquire"), {"owner": owner, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def say(api: Api, verb: str, had: Json, **changes: Any) -> httpx.Response:
    """Renew or release what was had."""
    body = {"owner": had["holder"], "fence": had["fence"], **changes}
    return await api.post(path(had["name"], verb), body)


async def look(api: Api, name: str = "door") -> Json:
    return (await api.get(path(name))).json()


async def until_waiting(api: Api, count: int, name: str = "door") -> None:
    """Wait until so many are in line; each look is a round trip."""
    async with asyncio.timeout(PATIENCE_S):
        while (await look(api, name))["waiting"] != count:
            pass


async def in_line(api: Api, owner: str, place: int) -> "asyncio.Task[Json]":
    call = asyncio.create_task(acquire(api, owner, wait_ms=limits.MAX_WAIT_MS))
    await until_waiting(api, place)
    return call


# --- having it ----------------------------------------------------------------------------------


async def test_a_lock_is_had_renewed_and_released(api: Api) -> None:
    had = await acquire(api, "ann", ttl_ms=10_000)
    api.clock.turn(5_000)
    renewed = await say(api, "renew", had)
    longer = await say(api, "renew", had, ttl_ms=60_000)
    released = await say(api, "release", had)

    now_ms = api.clock.now_ms()
    assert had == {
        "name": "door",
        "acquired": True,
        "fence": had["fence"],
        "holder": "ann",
        "expires_at_ms": now_ms + 5_000,
        "position": None,
        "waiting": None,
    }
    assert had["fence"] > 0
    assert renewed.json()["expires_at_ms"] == now_ms + 10_000
    assert longer.json()["expires_at_ms"] == now_ms + 60_000
    assert (released.json()["acquired"], released.json()["holder"]) == (False, None)


async def test_whoever_asks_in_vain_is_told_who_has_it(api: Api) -> None:
    had = await acquire(api, "ann")

    refused = await acquire(api, "bob")

    assert (refused["acquired"], refused["fence"]) == (False, None)
    assert (refused["holder"], refused["expires_at_ms"]) == ("ann", had["expires_at_ms"])


async def test_the_same_owner_is_given_the_same_fence_again(api: Api) -> None:
    assert (await acquire(api, "ann"))["fence"] == (await acquire(api, "ann"))["fence"]


async def test_a_lock_that_was_lost_is_neither_renewed_nor_released(api: Api) -> None:
    had = await acquire(api, "ann", ttl_ms=1_000)
    api.clock.turn(1_000)
    next_one = await acquire(api, "bob")

    answers = [
        await say(api, "renew", had),
        await say(api, "release", had),
        await say(api, "release", had, fence=next_one["fence"]),
        await say(api, "renew", next_one, owner="ann"),
        await say(api, "renew", {**had, "name": "never"}),
    ]

    assert {refusal(answer) for answer in answers} == {(409, "lock_lost", None)}
    assert answers[0].json()["fence"] == had["fence"] < next_one["fence"]
    assert (await look(api))["holder"] == "bob"


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("acquire", {}, "owner"),
        ("acquire", {"owner": ""}, "owner"),
        ("acquire", {"owner": "o" * (limits.MAX_NAME_LENGTH + 1)}, "owner"),
        ("acquire", {"owner": "o", "ttl_ms": 0}, "ttl_ms"),
        ("acquire", {"owner": "o", "ttl_ms": limits.MAX_LOCK_TTL_MS + 1}, "ttl_ms"),
        ("acquire", {"owner": "o", "wait_ms": -1}, "wait_ms"),
        ("acquire", {"owner": "o", "wait_ms": limits.MAX_WAIT_MS + 1}, "wait_ms"),
        ("acquire", {"owner": "o", "wait": 1}, "wait"),
        ("renew", {"owner": "o"}, "fence"),
        ("renew", {"owner": "o", "fence": -1}, "fence"),
        ("renew", {"owner": "o", "fence": 1, "ttl_ms": 0}, "ttl_ms"),
        ("release", {"fence": 1}, "owner"),
        ("release", {"owner": "o", "fence": "1"}, "fence"),
        ("release", {"owner": "o", "fence": 1, "ttl_ms": 1}, "ttl_ms"),
    ],
)
async def test_a_question_that_can_never_succeed_names_the_field(
    api: Api, verb: str, body: Json, field: str
) -> None:
    assert refusal(await api.post(path("door", verb), body)) == (400, "invalid", field)


AWKWARD = ["a/b", "..", "%", "%2F", "a b", "é", "日本", "\x00", "a?b#c", "{name}", "acquire"]


async def test_any_text_is_a_name_and_none_is_taken_for_another(api: Api) -> None:
    for name in AWKWARD:
        assert (await acquire(api, f"of {name}", name))["name"] == name

    for name in AWKWARD:
        assert (await look(api, name))["holder"] == f"of {name}"
    names = [item["name"] for item in (await api.get("/api/locks")).json()["items"]]
    assert names == sorted(AWKWARD)


async def test_a_name_that_is_too_long_is_refused(api: Api) -> None:
    name = "n" * (limits.MAX_NAME_LENGTH + 1)

    answers = [
        await api.get(path(name)),
        await api.post(path(name, "acquire"), {"owner": "o"}),
        await api.post(path(name, "renew"), {"owner": "o", "fence": 1}),
        await api.post(path(name, "release"), {"owner": "o", "fence": 1}),
    ]

    assert {refusal(answer) for answer in answers} == {(400, "invalid", "name")}


# --- waiting ------------------------------------------------------------------------------------


async def test_those_who_wait_are_woken_by_a_release_in_the_order_they_came(api: Api) -> None:
    had = await acquire(api, "ann")
    calls = [await in_line(api, owner, place) for place, owner in enumerate(("bob", "cat"), 1)]

    fences = [had["fence"]]
    for call in calls:
        await say(api, "release", had)
        had = await asyncio.wait_for(call, PATIENCE_S)
        assert had["acquired"]
        fences.append(had["fence"])

    assert had["holder"] == "cat"
    assert fences == sorted(set(fences))


async def test_a_lock_whose_time_is_over_wakes_the_next(api: Api) -> None:
    await acquire(api, "ann", ttl_ms=1_000)
    call = await in_line(api, "bob", 1)

    await api.turn(1_000)

    assert (await asyncio.wait_for(call, PATIENCE_S))["acquired"]


async def test_whoever_waits_in_vain_is_told_its_place_and_keeps_it(api: Api) -> None:
    had = await acquire(api, "ann")
    first = await acquire(api, "bob", wait_ms=1)
    other = await in_line(api, "cat", 1)

    again = asyncio.create_task(acquire(api, "bob", wait_ms=limits.MAX_WAIT_MS))
    await until_waiting(api, 2)
    await say(api, "release", had)

    assert (first["acquired"], first["holder"], first["position"]) == (False, "ann", 1)
    assert (await asyncio.wait_for(again, PATIENCE_S))["acquired"]
    assert not other.done()
    await say(api, "release", await again)
    assert (await asyncio.wait_for(other, PATIENCE_S))["acquired"]


async def test_a_caller_that_hangs_up_while_it_waits_is_passed_over(api: Api) -> None:
    had = await acquire(api, "ann")
    gone = await in_line(api, "bob", 1)
    other = await in_line(api, "cat", 2)

    gone.cancel()
    await until_waiting(api, 1)
    await say(api, "release", had)

    assert (await asyncio.wait_for(other, PATIENCE_S))["holder"] == "cat"


async def test_a_caller_that_asks_again_on_a_new_connection_outlives_its_old_one(api: Api) -> None:
    had = await acquire(api, "ann")
    broken = await in_line(api, "bob", 1)
    other = await in_line(api, "cat", 2)
    again = asyncio.create_task(acquire(api, "bob", wait_ms=limits.MAX_WAIT_MS))
    await until_asked_again(api, "bob")

    broken.cancel()
    await until_hung_up(api)
    await say(api, "release", had)

    assert (await asyncio.wait_for(again, PATIENCE_S))["acquired"]
    other.cancel()


async def until_asked_again(api: Api, owner: str) -> None:
    """Wait until two calls of this owner wait."""
    turns = api.node.coordinator._lock_waiters._standing
    async with asyncio.timeout(PATIENCE_S):
        while len(turns["door", owner]) < 2:
            await look(api)


async def until_hung_up(api: Api) -> None:
    """Wait until only two calls are left, of three."""
    turns = api.node.coordinator._lock_waiters._standing
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, turns.values())) > 2:
            await look(api)


async def test_a_stop_lets_nobody_wait(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await acquire(api, "ann")
        call = await in_line(api, "bob", 1)

        api.node.ask_to_stop()

        assert not (await asyncio.wait_for(call, PATIENCE_S))["acquired"]


async def test_a_line_has_an_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOCK_WAITERS", 1)
    await acquire(api, "ann")
    call = await in_line(api, "bob", 1)

    refused = await api.post(path("door", "acquire"), {"owner": "cat", "wait_ms": 1})

    assert refusal(refused) == (429, "too_many", None)
    assert refused.headers["retry-after"]
    call.cancel()


# --- looking ------------------------------------------------------------------------------------


async def test_a_lock_that_nobody_has_is_free_and_not_missing(api: Api) -> None:
    answer = await api.get(path("never"))

    assert answer.status_code == 200
    assert answer.json() == {
        "name": "never",
        "acquired": False,
        "fence": None,
        "holder": None,
        "expires_at_ms": None,
        "position": None,
        "waiting": 0,
    }


async def test_locks_that_somebody_has_are_listed_page_by_page(api: Api) -> None:
    for name in "dbca":
        await acquire(api, f"of {name}", name, ttl_ms=1_000 if name == "b" else 60_000)
    api.clock.turn(1_000)

    first = (await api.get("/api/locks?limit=2")).json()
    second = (await api.get("/api/locks?limit=2&cursor=c")).json()
    whole = (await api.get("/api/locks?limit=3")).json()

    assert [(item["name"], item["holder"]) for item in first["items"]] == [
        ("a", "of a"),
        ("c", "of c"),
    ]
    assert first["next_cursor"] == "c"
    assert ([item["name"] for item in second["items"]], second["next_cursor"]) == (["d"], None)
    assert (len(whole["items"]), whole["next_cursor"]) == (3, None)
    assert all(item["fence"] > 0 and item["waiting"] == 0 for item in whole["items"])


# --- who may ------------------------------------------------------------------------------------


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator where everybody needs a token."""
    async with called(tmp_path, host="0.0.0.0") as running:
        yield running


LOOK: list[tuple[str, str, Json]] = [("GET", "/api/locks", None), ("GET", "/api/locks/door", None)]
CHANGE: list[tuple[str, str, Json]] = [
    ("POST", "/api/locks/door/acquire", {"owner": "o"}),
    ("POST", "/api/locks/door/renew", {"owner": "o", "fence": 0}),
    ("POST", "/api/locks/door/release", {"owner": "o", "fence": 0}),
]


@pytest.mark.parametrize("scope", ["admin", "submit", "worker", "read"])
async def test_each_scope_opens_what_it_says(closed: Api, scope: str) -> None:
    who = await token(closed, scope)

    for call in LOOK:
        assert await status(closed, who, *call) == 200, call
    for call in CHANGE:
        # No lock has the fence 0, so a caller that may renew or release is told that it is lost.
        allowed = {200} if call[1].endswith("acquire") else {409}
        assert await status(closed, who, *call) in ({403} if scope == "read" else allowed), call
    for call in [*LOOK, *CHANGE]:
        assert await status(closed, {}, *call) == 401


@pytest.mark.parametrize("bound", [{"queues": ("a",)}, {"services": ("feed",)}])
async def test_a_token_that_is_bound_has_no_part_in_what_all_share(
    closed: Api, bound: dict[str, Any]
) -> None:
    who = await token(closed, "submit", "worker", **bound)

    for call in [*LOOK, *CHANGE]:
        assert await status(closed, who, *call) == 403, call
