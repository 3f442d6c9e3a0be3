"""Programs that follow what happens."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from rota import Rota
from rota.core.tasks.model import NewTask
from rota.errors import Invalid, Unavailable
from rota.messages import EventView
from rota.sdk.client import calls, requests
from rota.sdk.client.calls import list_events
from rota.sdk.client.client import Client, Events
from tests.sdk.serving import PATIENCE_S, Server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.connect(server.url) as one:
        yield one


def submit(client: Client, *names: str) -> None:
    for name in names:
        client.run(calls.submit([NewTask(name=name)]))


def names(events: list[EventView]) -> list[str]:
    return [event.data["name"] for event in events]


def test_what_has_happened_is_listed(client: Client) -> None:
    submit(client, "a", "b", "c")

    after = client.run(list_events(after=1, limit=1))
    last = client.run(list_events(last=2, types=["task-*"]))

    assert names(after.items) == ["b"]
    assert names(last.items) == ["b", "c"]


def test_a_program_follows_from_an_event_that_it_knows(client: Client) -> None:
    submit(client, "a", "b", "c")

    assert names(list(islice(client.events(after=1), 2))) == ["b", "c"]


def test_an_event_that_comes_is_waited_for(server: Server, client: Client) -> None:
    async def follow() -> list[EventView]:
        found: list[EventView] = []
        async for event in client.events(after=0, types=["task-*"]):
            found.append(event)
            if len(found) == 2:
                return found
            await asyncio.to_thread(submit, client, "b")
        raise AssertionError

    submit(client, "a")
    found = asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))

    assert names(found) == ["a", "b"]


def test_without_a_number_it_begins_with_what_happens_next(server: Server, client: Client) -> None:
    async def follow() -> EventView:
        waiting = asyncio.ensure_future(anext(aiter(client.events())))
        await asyncio.to_thread(wait_followed, server)
        await asyncio.to_thread(submit, client, "new")
        return await asyncio.wait_for(waiting, PATIENCE_S)

    submit(client, "old")

    assert asyncio.run(follow()).data["name"] == "new"


def wait_followed(server: Server) -> None:
    """Wait until a caller waits for events at the coordinator."""

    async def followed(node: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while server.node.coordinator.metrics().watchers == 0:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)

    server.ask(followed)


def test_events_are_narrowed_by_their_subject(client: Client) -> None:
    (first,) = client.run(calls.submit([NewTask(name="a")]))
    submit(client, "b")

    of_one = islice(client.events(after=0, subject=first.id), 1)
    by_beginning = islice(client.events(after=0, prefix=first.id[:8]), 2)

    assert names(list(of_one)) == ["a"]
    assert names(list(by_beginning)) == ["a", "b"]


def test_a_restart_of_the_coordinator_loses_nothing(tmp_path: Path) -> None:
    with Server(tmp_path) as server, Client.connect(server.url) as client:
        submit(client, "a")
        events = client.events(after=0)
        following = iter(events)
        first = next(following)
        server.stop()
        server.start()
        submit(client, "b")

        assert names([first, next(following)]) == ["a", "b"]
        assert events.after == 2


def test_a_coordinator_that_stays_away_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "OUTAGE_LIMIT_S", 0.0)
    with Server(tmp_path) as server, Client.connect(server.url) as client:
        server.stop()

        with pytest.raises(Unavailable):
            next(iter(client.events(after=0)))


def test_what_can_not_be_followed_is_refused(client: Client) -> None:
    with pytest.raises(Invalid, match="no events of type"):
        next(iter(client.events(types=["task-exploded"], after=0)))


def test_an_embedded_coordinator_is_followed_too(tmp_path: Path) -> None:
    with Rota(f"sqlite:///{tmp_path}/rota.db", concurrency=0) as app:
        app.enqueue("a")

        assert names(list(islice(app.client.events(after=0), 1))) == ["a"]


def test_whoever_begins_anew_goes_on(client: Client) -> None:
    submit(client, "a", "b")
    events = Events(client, after=0)
    first = next(iter(events))

    assert names([first, next(iter(events))]) == ["a", "b"]
