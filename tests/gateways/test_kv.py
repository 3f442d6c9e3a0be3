"""Memory over HTTP: values by key, on condition, for a time, page by page."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json, called, served
from tests.gateways.test_access import status, token


def encoded(name: str) -> str:
    # Also the dots: a client takes two of them for a way up.
    return quote(name, safe="").replace(".", "%2E")


def path(key: str) -> str:
    return f"/api/memory/{encoded(key)}"


async def put(api: Api, key: str, value: Json, **more: Any) -> httpx.Response:
    return await api.client.put(path(key), json={"value": value, **more})


async def keep(api: Api, *keys: str) -> None:
    for key in keys:
        answer = await put(api, key, key)
        assert answer.status_code == 200, answer.text


async def listed(api: Api, **query: Any) -> list[str]:
    """The keys of all pages."""
    found: list[str] = []
    while True:
        page = (await api.get("/api/memory", params=query)).json()
        found += [item["key"] for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, body["code"], body.get("field")


# --- one key ------------------------------------------------------------------------------------


async def test_a_value_is_put_looked_up_and_deleted(api: Api) -> None:
    made = await put(api, "k", {"a": [1, None, "é"]})
    seen = await api.get("/api/memory/k")
    gone = await api.delete("/api/memory/k")
    missing = await api.get("/api/memory/k")
    again = await api.delete("/api/memory/k")

    assert made.status_code == seen.status_code == gone.status_code == 200
    assert made.json() == seen.json()
    assert seen.json() == {
        "key": "k",
        "value": {"a": [1, None, "é"]},
        "version": made.json()["version"],
        "updated_at_ms": api.clock.now_ms(),
        "expires_at_ms": None,
    }
    assert gone.json() == {"key": "k", "version": made.json()["version"]}
    assert refusal(missing) == refusal(again) == (404, "key_not_found", None)
    assert "not found" in missing.json()["detail"]
    assert missing.json()["key"] == "k"


@pytest.mark.parametrize(
    "text", ["null", "0", "-1.50", "1e400", '""', '"\\u00e9"', "[ ]", '{"a":1, "a":2}']
)
async def test_a_value_comes_back_as_it_went_in(api: Api, text: str) -> None:
    made = await api.client.put("/api/memory/k", content=f'{{"value": {text}}}')

    assert made.status_code == 200
    assert f'"value":{text},' in (await api.get("/api/memory/k")).text


async def test_a_value_must_be_named_also_if_it_is_null(api: Api) -> None:
    """A caller that changes only the time of a value must not lose the value."""
    await put(api, "k", 1)

    refused = await api.client.put("/api/memory/k", json={"ttl_ms": 5_000})
    null = await put(api, "k", None)

    assert refusal(refused) == (400, "invalid", "value")
    assert null.json()["value"] is None


async def test_a_value_is_kept_for_its_time(api: Api) -> None:
    made = await put(api, "k", 1, ttl_ms=1_000)
    assert made.json()["expires_at_ms"] == api.clock.now_ms() + 1_000

    api.clock.turn(1_000)

    assert (await api.get("/api/memory/k")).status_code == 404
    assert await listed(api) == []


async def test_a_put_on_condition_is_refused_when_the_value_has_changed(api: Api) -> None:
    first = await put(api, "k", 1, if_version=0)
    version = first.json()["version"]

    new_again = await put(api, "k", 2, if_version=0)
    right = await put(api, "k", 3, if_version=version)
    late = await put(api, "k", 4, if_version=version)

    assert [first.status_code, right.status_code] == [200, 200]
    assert refusal(new_again) == refusal(late) == (409, "version_conflict", None)
    assert late.json()["wanted"] == version
    assert late.json()["current"] == right.json()["version"] > version
    assert (await api.get("/api/memory/k")).json()["value"] == 3


async def test_a_delete_on_condition_is_refused_when_the_value_has_changed(api: Api) -> None:
    version = (await put(api, "k", 1)).json()["version"]

    late = await api.delete(f"/api/memory/k?if_version={version - 1}")
    right = await api.delete(f"/api/memory/k?if_version={version}")

    assert refusal(late) == (409, "version_conflict", None)
    assert right.status_code == 200


async def test_of_many_who_count_up_at_once_every_addition_counts(api: Api) -> None:
    async def add() -> None:
        while True:
            seen = await api.get("/api/memory/n")
            entry = seen.json() if seen.status_code == 200 else {"value": 0, "version": 0}
            done = await put(api, "n", entry["value"] + 1, if_version=entry["version"])
            if done.status_code == 200:
                return

    await asyncio.gather(*(add() for _ in range(20)))

    assert (await api.get("/api/memory/n")).json()["value"] == 20


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"value": 1, "ttl_ms": 0}, "ttl_ms"),
        ({"value": 1, "ttl_ms": limits.MAX_MEMORY_TTL_MS + 1}, "ttl_ms"),
        ({"value": 1, "ttl_ms": "5"}, "ttl_ms"),
        ({"value": 1, "if_version": -1}, "if_version"),
        ({"value": 1, "if_version": 2**53 + 1}, "if_version"),
        ({"value": 1, "ttl": 5}, "ttl"),
        ([], None),
    ],
)
async def test_a_put_that_can_never_succeed_names_the_field(
    api: Api, body: Json, field: str | None
) -> None:
    refused = await api.client.put("/api/memory/k", json=body)

    assert refusal(refused) == (400, "invalid", field)
    assert (await api.get("/api/memory/k")).status_code == 404


async def test_a_value_that_is_too_large_or_too_deep_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, max_payload_bytes=1_000) as api:
        large = await put(api, "k", "x" * 999)
        fits = await put(api, "k", "x" * 998)
        deep = await api.client.put(
            "/api/memory/k", content='{"value":' + "[" * 65 + "]" * 65 + "}"
        )

    assert refusal(large) == (413, "too_large", "value")
    assert fits.status_code == 200
    assert refusal(deep) == (400, "invalid", "value")


# --- hostile keys -------------------------------------------------------------------------------

AWKWARD = [
    "a/b",
    "a//b",
    "/",
    "..",
    "../../etc/passwd",
    "%",
    "%2F",
    "a b",
    "a+b",
    "a?b#c",
    "a%b_c[d]*e",
    "é",
    "日本/値",
    "\U0010ffff",
    "\x7f",
    "\n",
    "'; DROP TABLE memory; --",
    "{key}",
    "k" * limits.MAX_KEY_LENGTH,
]


async def test_any_text_is_a_key_and_none_is_taken_for_another(api: Api) -> None:
    await keep(api, *AWKWARD)

    for key in AWKWARD:
        assert (await api.get(path(key))).json()["value"] == key
        assert await listed(api, prefix=key) == sorted(
            one for one in AWKWARD if one.startswith(key)
        )
    assert await listed(api) == sorted(AWKWARD)
    assert await listed(api, limit=1) == sorted(AWKWARD)


@pytest.mark.parametrize(
    "raw",
    [
        "%00",
        "a%00b",
        "%FF",
        "%ED%A0%80",  # half of a pair that stands for one character
        "k" * (limits.MAX_KEY_LENGTH + 1),
    ],
)
async def test_a_key_that_cannot_be_kept_as_it_is_is_refused(api: Api, raw: str) -> None:
    target = f"/api/memory/{raw}"

    answers = [
        await api.client.put(target, json={"value": 1}),
        await api.get(target),
        await api.delete(target),
    ]

    assert {refusal(answer) for answer in answers} == {(400, "invalid", "key")}


@pytest.mark.parametrize("raw", ["a/b", "a/b/c", "a/", "a//b", "a/%2F/b", "a%2Fb/c", "%25/a"])
async def test_a_slash_in_a_key_may_be_encoded_or_not(api: Api, raw: str) -> None:
    made = await api.client.put(f"/api/memory/{raw}", json={"value": 1})
    seen = await api.get(f"/api/memory/{encoded(unquote(raw))}")
    gone = await api.delete(f"/api/memory/{raw}")

    assert (made.status_code, made.json()["key"]) == (200, unquote(raw))
    assert seen.json() == made.json()
    assert gone.status_code == 200
    assert await listed(api) == []


async def test_a_path_without_a_key_is_no_key(api: Api) -> None:
    answer = await api.client.put("/api/memory/", json={"value": 1})

    assert answer.status_code in {404, 405}
    assert await listed(api) == []


# --- lists --------------------------------------------------------------------------------------


async def test_keys_are_listed_by_prefix_or_by_pattern(api: Api) -> None:
    await keep(api, "jobs/1", "jobs/2", "jobs/2/log", "job", "users/1")

    assert await listed(api, prefix="jobs/") == ["jobs/1", "jobs/2", "jobs/2/log"]
    assert await listed(api, pattern="*/1") == ["jobs/1", "users/1"]
    assert await listed(api, pattern="jobs/?") == ["jobs/1", "jobs/2"]
    assert await listed(api, pattern="jobs/[^1]") == ["jobs/2"]
    assert await listed(api, pattern="job") == ["job"]
    assert await listed(api, prefix="none") == []


async def test_a_list_is_given_page_by_page_with_its_values(api: Api) -> None:
    await keep(api, *"cab")

    first = (await api.get("/api/memory?limit=2")).json()
    second = (await api.get("/api/memory?limit=2&cursor=b")).json()
    whole = (await api.get("/api/memory?limit=3")).json()

    assert [(item["key"], item["value"]) for item in first["items"]] == [("a", "a"), ("b", "b")]
    assert first["next_cursor"] == "b"
    assert ([item["key"] for item in second["items"]], second["next_cursor"]) == (["c"], None)
    assert (len(whole["items"]), whole["next_cursor"]) == (3, None)


async def test_a_page_of_large_values_is_bounded(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        large = "x" * (limits.MAX_MEMORY_PAGE_BYTES // 5)
        for key in "abcdefg":
            await put(api, key, large)

        pages = [
            (await api.get("/api/memory", params={"cursor": cursor})).json() for cursor in "0d"
        ]

    assert [[item["key"] for item in page["items"]] for page in pages] == [
        ["a", "b", "c", "d"],
        ["e", "f", "g"],
    ]
    assert [page["next_cursor"] for page in pages] == ["d", None]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("prefix=a&pattern=b", "pattern"),
        ("limit=0", "limit"),
        (f"limit={limits.MAX_PAGE + 1}", "limit"),
        ("pattern=%00", "pattern"),
        (f"prefix={'k' * (limits.MAX_KEY_LENGTH + 1)}", "prefix"),
        ("regex=.*", "regex"),
    ],
)
async def test_a_list_that_cannot_be_given_names_the_parameter(
    api: Api, query: str, field: str
) -> None:
    assert refusal(await api.get(f"/api/memory?{query}")) == (400, "invalid", field)


async def test_a_pattern_that_is_hard_to_match_takes_no_longer(api: Api) -> None:
    await keep(api, "a" * limits.MAX_KEY_LENGTH)

    assert await listed(api, pattern="*a" * 200 + "*b") == []
    assert await listed(api, pattern="[" * limits.MAX_KEY_LENGTH) == []


# --- who may ------------------------------------------------------------------------------------


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator where everybody needs a token."""
    async with called(tmp_path, host="0.0.0.0") as running:
        yield running


LOOK = [("GET", "/api/memory", None), ("GET", "/api/memory/k", None)]
CHANGE = [("PUT", "/api/memory/k", {"value": 1}), ("DELETE", "/api/memory/k", None)]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("admin", [*LOOK, *CHANGE]),
        ("submit", [*LOOK, *CHANGE]),
        ("worker", [*LOOK, *CHANGE]),
        ("read", LOOK),
    ],
)
async def test_each_scope_opens_what_it_says(closed: Api, scope: str, allowed: list[Any]) -> None:
    admin, who = await token(closed, "admin"), await token(closed, scope)

    for call in [*LOOK, *CHANGE]:
        await closed.client.put("/api/memory/k", json={"value": 0}, headers=admin)
        assert await status(closed, who, *call) == (200 if call in allowed else 403), call
    for call in [*LOOK, *CHANGE]:
        assert await status(closed, {}, *call) == 401


@pytest.mark.parametrize("bound", [{"queues": ("a",)}, {"services": ("feed",)}])
async def test_a_token_that_is_bound_has_no_part_in_what_all_share(
    closed: Api, bound: dict[str, Any]
) -> None:
    who = await token(closed, "submit", "worker", **bound)

    for call in [*LOOK, *CHANGE]:
        assert await status(closed, who, *call) == 403, call
