"""Two tenants, each with a token bound to its own queue: neither reaches the other by a key."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json, served
from tests.gateways.test_access import Headers, token

SECRET = {"card": "4111"}


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator on a real socket that asks everybody for a token."""
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


@pytest.fixture
async def a(closed: Api) -> Headers:
    return await token(closed, "submit", "read", queues=("a",))


@pytest.fixture
async def b(closed: Api) -> Headers:
    return await token(closed, "submit", "read", queues=("b",))


def task(queue: str, key: str | None = None, name: str = "work", **more: Json) -> Json:
    return {"name": name, "queue": queue, "key": key, **more}


async def submitted(api: Api, who: Headers, body: Json, status: int = 201) -> Json:
    answer = await api.post("/api/tasks", body, headers=who)
    assert answer.status_code == status, answer.text
    return answer.json()


# --- keys ---------------------------------------------------------------------------------------


async def test_a_submission_with_the_key_of_another_queue_makes_its_own_task(
    closed: Api, a: Headers, b: Headers
) -> None:
    theirs = await submitted(closed, b, task("b", "invoice-7", payload=SECRET))

    alone = await submitted(closed, a, task("a", "invoice-7", payload=1))
    (listed,) = await submitted(closed, a, [task("a", "invoice-7")], status=200)
    again = await submitted(closed, b, task("b", "invoice-7"), status=200)

    assert (alone["queue"], alone["payload"], alone["duplicate"]) == ("a", 1, False)
    assert (listed["id"], listed["duplicate"]) == (alone["id"], True)
    assert (again["id"], again["payload"], again["duplicate"]) == (theirs["id"], SECRET, True)


async def test_a_key_of_another_queue_is_not_found(closed: Api, a: Headers, b: Headers) -> None:
    await submitted(closed, b, task("b", "invoice-7", payload=SECRET))

    own = await closed.get("/api/tasks?key=invoice-7", headers=a)
    foreign = await closed.get("/api/tasks?key=invoice-7&queue=b", headers=a)

    assert own.json()["items"] == []
    assert foreign.status_code == 403


async def test_a_key_is_looked_up_in_one_queue_or_in_all(closed: Api) -> None:
    admin = await token(closed, "admin")
    ids = {
        queue: (await submitted(closed, admin, task(queue, "k")))["id"] for queue in ("a", "b", "c")
    }

    async def found(query: str) -> tuple[list[str], str | None]:
        page = (await closed.get(f"/api/tasks?key=k{query}", headers=admin)).json()
        return [item["queue"] for item in page["items"]], page["next_cursor"]

    assert await found("") == (["c", "b", "a"], None)
    assert await found("&queue=b") == (["b"], None)
    assert await found("&limit=2") == (["c", "b"], ids["b"])
    assert await found(f"&limit=2&cursor={ids['b']}") == (["a"], None)
    assert await found("&name=other") == ([], None)


@pytest.mark.parametrize(
    "key", ["session:b:t1", "caller-key:session:b:t1", "caller-key:", "\0", "s"]
)
async def test_any_text_is_a_key_and_shown_as_it_was_given(closed: Api, key: str) -> None:
    admin = await token(closed, "admin")

    first = await submitted(closed, admin, task("b", key))
    again = await submitted(closed, admin, task("b", key), status=200)
    page = await closed.get("/api/tasks", params={"key": key}, headers=admin)

    assert first["key"] == again["key"] == key
    assert again["id"] == first["id"]
    assert [item["id"] for item in page.json()["items"]] == [first["id"]]


async def test_a_key_that_is_too_large_for_its_queue_is_refused_by_name(closed: Api) -> None:
    admin = await token(closed, "admin")
    rocket = "\N{ROCKET}"

    answer = await submitted(closed, admin, task(rocket * 200, rocket * 500), status=400)

    assert (answer["code"], answer["field"]) == ("invalid", "key")


# --- lanes --------------------------------------------------------------------------------------


def kinds(queue: str, count: int, *, begin: int = 0) -> list[Json]:
    return [task(queue, name=f"n{number}") for number in range(begin, begin + count)]


async def test_a_queue_that_has_used_up_its_lanes_shuts_no_other_out(
    closed: Api, a: Headers, b: Headers
) -> None:
    most = limits.MAX_LANES_PER_QUEUE
    await submitted(closed, a, kinds("a", most))

    refused = await submitted(closed, a, task("a", name="one more"), status=429)
    await submitted(closed, a, task("a", name="n0"))
    await submitted(closed, b, kinds("b", 10))

    assert (refused["code"], refused["limit"]) == ("too_many", "max_lanes_per_queue")
    assert "use names and capabilities again" in refused["detail"]


@pytest.mark.parametrize("queues", [1, 10, limits.MAX_TASKS_PER_SUBMISSION])
async def test_no_single_request_takes_all_lanes(closed: Api, b: Headers, queues: int) -> None:
    anyone = await token(closed, "submit")
    count = limits.MAX_TASKS_PER_SUBMISSION
    tasks = [task(f"q{number % queues}", name=f"n{number}") for number in range(count)]

    refused = await submitted(closed, anyone, tasks, status=429)
    await submitted(closed, b, task("b", name="new"))

    assert refused["limit"] == "max_new_lanes_per_submission"


async def test_lanes_whose_tasks_are_gone_make_room_for_new_ones(
    closed: Api, a: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 5)
    await submitted(closed, a, kinds("a", 5))
    await submitted(closed, a, task("a", name="new"), status=429)
    cancelled = await closed.post("/api/tasks/cancel", {"queue": "a"}, headers=a)
    assert cancelled.json()["count"] == 5

    await closed.turn(closed.node.settings.history_keep_ms + limits.LANE_SWEEP_INTERVAL_MS)
    await closed.turn(10_000)

    await submitted(closed, a, kinds("a", 4, begin=100))
