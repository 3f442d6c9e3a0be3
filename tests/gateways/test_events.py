"""Events over HTTP, as a list and as a stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from rota.core import limits
from rota.core.events import EVERYTHING
from rota.engine.events.stream import EventSubscription
from rota.gateways.http import event_streams
from tests.gateways.serving import Api, Json, served, until

STREAM = {"accept": "text/event-stream"}
TIMEOUT_S = 30


async def events(api: Api, query: str = "", **options: Any) -> Json:
    answer = await api.get(f"/api/events?{query}", **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def seqs(api: Api, query: str = "") -> list[int]:
    return [one["seq"] for one in (await events(api, query))["items"]]


async def submit(api: Api, count: int, queue: str = "default") -> None:
    for _ in range(count):
        await api.submit(queue=queue)


# --- as a list ----------------------------------------------------------------------------------


async def test_events_are_listed_with_what_they_are_about(api: Api) -> None:
    task = await api.submit(queue="mail")

    page = await events(api)

    assert page == {
        "items": [
            {
                "seq": 1,
                "at_ms": api.clock.now_ms(),
                "type": "task-submitted",
                "subject": task["id"],
                "data": {"queue": "mail", "name": "work"},
            }
        ],
        "next_cursor": None,
        "next_after": 1,
        "oldest_seq": 1,
        "last_seq": 1,
    }


async def test_a_list_goes_on_where_the_last_one_ended(api: Api) -> None:
    await submit(api, 5)

    first = await events(api, "limit=2")
    second = await events(api, f"limit=2&after={first['next_after']}")
    third = await events(api, f"limit=2&after={second['next_after']}")

    pages = [[one["seq"] for one in page["items"]] for page in (first, second, third)]
    assert pages == [[1, 2], [3, 4], [5]]
    assert [page["next_cursor"] for page in (first, second, third)] == ["2", "4", None]


async def test_the_newest_are_listed_in_their_order(api: Api) -> None:
    await submit(api, 5)

    assert await seqs(api, "last=2") == [4, 5]


async def test_a_list_is_narrowed_by_type_and_subject(api: Api) -> None:
    await api.register("w1")
    await api.register("x1")
    await submit(api, 2)

    assert await seqs(api, "type=worker-registered") == [1, 2]
    assert await seqs(api, "type=task-*&type=worker-*") == [1, 2, 3, 4]
    assert await seqs(api, "type=task-*,queue-*") == [3, 4]
    assert await seqs(api, "subject=x1") == [2]
    assert await seqs(api, "prefix=w") == [1]
    assert await seqs(api, "last=1&type=worker-*") == [2]


async def test_what_does_not_match_need_not_be_looked_at_again(api: Api) -> None:
    await submit(api, 3)

    page = await events(api, "type=run-*")

    assert (page["items"], page["next_after"], page["next_cursor"]) == ([], 3, None)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("type=task-exploded", "type"),
        ("after=1", "after"),
        ("after=-1", "after"),
        ("after=0&last=3", "last"),
        ("last=0", "last"),
        (f"limit={limits.MAX_PAGE + 1}", "limit"),
        (f"wait_ms={limits.MAX_WAIT_MS + 1}", "wait_ms"),
        ("since=3", "since"),
    ],
)
async def test_what_can_not_be_meant_is_refused_by_name(api: Api, query: str, field: str) -> None:
    for headers in ({}, STREAM):
        answer = await api.get(f"/api/events?{query}", headers=headers)

        assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_long_poll_answers_as_soon_as_something_happens(api: Api) -> None:
    asking = asyncio.create_task(events(api, "wait_ms=60000&type=task-*"))
    await until(api, "rota_event_watchers", 1.0)
    await api.register()
    await api.submit()

    page = await asyncio.wait_for(asking, TIMEOUT_S)

    assert [one["type"] for one in page["items"]] == ["task-submitted"]
    assert page["next_after"] == page["last_seq"] == 2
    await until(api, "rota_event_watchers", 0.0)


async def test_a_long_poll_in_which_nothing_happens_is_answered_empty(api: Api) -> None:
    await submit(api, 2)

    page = await events(api, "after=2&wait_ms=1")

    assert (page["items"], page["next_after"]) == ([], 2)


async def test_a_long_poll_does_not_outlive_its_caller(api: Api) -> None:
    asking = asyncio.create_task(events(api, "wait_ms=60000"))
    await until(api, "rota_event_watchers", 1.0)

    asking.cancel()

    await until(api, "rota_event_watchers", 0.0)


async def test_what_was_forgotten_can_be_seen(tmp_path: Path) -> None:
    async with served(tmp_path, max_events=2) as api:
        await submit(api, 5)
        await api.turn(0)

        page = await events(api, "after=1")

        assert [one["seq"] for one in page["items"]] == [4, 5]
        assert page["oldest_seq"] == 4


# --- as a stream --------------------------------------------------------------------------------


class Block(dict[str, Any]):
    """One block of a stream: its fields, and its comments under an empty name."""


class Stream:
    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self._lines = response.aiter_lines()

    async def block(self) -> Block:
        async with asyncio.timeout(TIMEOUT_S):
            block = Block()
            async for line in self._lines:
                if not line:
                    return block
                name, _, value = line.partition(":")
                block[name] = json.loads(value) if name == "data" else value.strip()
        return block

    async def seqs(self, count: int) -> list[int]:
        return [int((await self.block())["id"]) for _ in range(count)]


@asynccontextmanager
async def streamed(api: Api, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    """A stream, after its opening block."""
    async with opened(api, query, **headers) as (stream, _):
        yield stream


@asynccontextmanager
async def opened(api: Api, query: str = "", **headers: str) -> AsyncIterator[tuple[Stream, Block]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"/api/events?{query}"
    async with api.client.stream("GET", path, headers={**STREAM, **named}) as response:
        assert response.status_code == 200
        stream = Stream(response)
        yield stream, await stream.block()


async def test_a_stream_tells_what_happens(api: Api) -> None:
    await submit(api, 1)
    async with opened(api) as (stream, opening):
        task = await api.submit()
        block = await stream.block()

    assert stream.headers["content-type"] == "text/event-stream"
    assert opening == {"retry": str(event_streams.RETRY_MS), "id": "1"}
    assert (block["id"], block["event"]) == ("2", "task-submitted")
    assert block["data"] == {
        "seq": 2,
        "at_ms": api.clock.now_ms(),
        "type": "task-submitted",
        "subject": task["id"],
        "data": {"queue": "default", "name": "work"},
    }


async def test_a_stream_catches_up_and_goes_on(api: Api) -> None:
    await submit(api, 3)
    async with streamed(api, "after=1") as stream:
        caught_up = await stream.seqs(2)
        await submit(api, 1)

        assert caught_up == [2, 3]
        assert await stream.seqs(1) == [4]


async def test_a_stream_begins_with_the_newest(api: Api) -> None:
    await submit(api, 5)
    async with opened(api, "last=2") as (stream, opening):
        first = await stream.seqs(2)
        await submit(api, 1)

        assert opening["id"] == "3"  # a client that is cut off here has seen none of them
        assert first == [4, 5]
        assert await stream.seqs(1) == [6]


async def test_a_reader_that_comes_back_goes_on_where_it_was(api: Api) -> None:
    await submit(api, 5)
    async with streamed(api, "after=0", last_event_id="3") as stream:
        assert await stream.seqs(2) == [4, 5]


async def test_a_stream_is_narrowed_like_a_list(api: Api) -> None:
    async with streamed(api, "type=task-*&type=queue-*") as stream:
        await api.register()
        await submit(api, 1)
        await api.post("/api/queues/mail/pause")

        assert await stream.seqs(2) == [2, 3]


@pytest.mark.parametrize("given", ["abc", "-1", "1.5", "9" * 20])
async def test_a_last_event_id_that_is_none_of_ours_is_refused(api: Api, given: str) -> None:
    answer = await api.get("/api/events", headers={**STREAM, "last-event-id": given})

    assert (answer.status_code, answer.json()["field"]) == (400, "Last-Event-ID")


async def test_a_reader_that_was_away_for_too_long_is_told_so(tmp_path: Path) -> None:
    async with served(tmp_path, max_events=2) as api:
        await submit(api, 6)
        await api.turn(0)
        async with streamed(api, last_event_id="1") as stream:
            gap = await stream.block()

            assert (gap["event"], gap["data"]) == ("gap", {"after": 1, "oldest_seq": 5})
            assert await stream.seqs(2) == [5, 6]


async def test_a_stop_ends_a_stream_with_its_reason(tmp_path: Path) -> None:
    async with served(tmp_path) as api, streamed(api) as stream:
        api.node.ask_to_stop()
        block = await stream.block()

        assert (block["event"], block["data"]) == ("end", {"reason": "stopping"})
        assert await stream.block() == {}


async def test_a_reader_that_goes_away_is_let_go(api: Api) -> None:
    async with streamed(api):
        await until(api, "rota_event_watchers", 1.0)

    await until(api, "rota_event_watchers", 0.0)


async def test_there_are_only_so_many_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_EVENT_STREAMS", 1)
    async with served(tmp_path) as api, streamed(api):
        await until(api, "rota_event_watchers", 1.0)
        answer = await api.get("/api/events", headers=STREAM)

    assert answer.status_code == 429
    assert answer.headers["retry-after"]


# --- a stream without its socket ----------------------------------------------------------------


ALIVE = b": alive\nid: 0\n\n"


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def follower_of(api: Api, **options: Any) -> EventSubscription:
    coordinator = api.node.coordinator
    hub, log = coordinator._events, coordinator.queries.events
    return EventSubscription(hub, log, EVERYTHING, after=0, **options)


async def test_a_quiet_stream_says_that_it_lives_and_where_it_stands(api: Api) -> None:
    follow = partial(follower_of, api)
    async with aclosing(event_streams.pieces(b"", follow, never, keep_alive_s=0.001)) as stream:
        assert await anext(stream) == b""
        assert await anext(stream) == ALIVE


async def test_a_reader_that_is_too_slow_is_told_so(api: Api) -> None:
    follower = follower_of(api, most_behind=2)
    stream = event_streams.pieces(b"", lambda: follower, never, keep_alive_s=0.001)
    while not follower._is_live:
        assert await anext(stream) in {b"", ALIVE}

    await submit(api, 5)  # while the reader takes nothing
    told = [piece async for piece in stream]

    assert told[-1] == b'event: end\ndata: {"reason":"too_slow"}\n\n'
    assert sum(piece.count(b"event: task-submitted") for piece in told) < 5


# --- access -------------------------------------------------------------------------------------


async def token(api: Api, **asked: Any) -> dict[str, str]:
    answer = await api.post("/api/tokens", {"name": "t", **asked})
    return {"authorization": f"Bearer {answer.json()['token']}"}


async def test_a_token_sees_what_it_is_for(api: Api) -> None:
    reader = await token(api, scopes=["read"])
    bound = await token(api, scopes=["read"], queues=["mail"])
    worker = await token(api, scopes=["worker"])
    await submit(api, 1, "mail")
    await submit(api, 1, "other")

    everything = await events(api)
    of_reader = await events(api, headers=reader)
    of_bound = await events(api, headers=bound)
    refused = await api.get("/api/events", headers=worker)

    assert [one["type"] for one in everything["items"]].count("token-created") == 3
    assert [one["data"]["queue"] for one in of_reader["items"]] == ["mail", "other"]
    assert [one["data"]["queue"] for one in of_bound["items"]] == ["mail"]
    assert refused.status_code == 403


async def test_a_stream_keeps_to_what_its_token_is_for(api: Api) -> None:
    bound = await token(api, scopes=["read"], queues=["mail"])
    async with streamed(api, **bound) as stream:
        await submit(api, 1, "other")
        await submit(api, 1, "mail")

        assert (await stream.block())["data"]["data"]["queue"] == "mail"


async def test_no_token_appears_in_an_event(api: Api) -> None:
    created = (await api.post("/api/tokens", {"name": "t", "scopes": ["read"]})).json()

    text = (await api.get("/api/events")).text

    assert created["id"] in text
    assert created["token"] not in text
