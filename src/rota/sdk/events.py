"""How does a program follow what happens? Event by event, in order, with none missing.

An `Events` is iterated over, with `for` or with `async for`. It asks for what comes after the last
event it has got, and waits for some at the coordinator; so it goes on where it was when the
coordinator has been away, and a program that keeps the `seq` of the last event it has dealt with
can go on there another day.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import Unavailable
from rota.messages import EventPage, EventView
from rota.sdk.requests import Call, get
from rota.sdk.transport import ANSWER_TIMEOUT_S
from rota.sdk.waiting import Wait

if TYPE_CHECKING:
    from rota.sdk.client import Client

PAGE = 1_000  # events asked for at once


def list_events(
    *,
    after: int | None = None,
    last: int | None = None,
    types: Sequence[str] = (),
    subject: str | None = None,
    prefix: str | None = None,
    limit: int | None = None,
    wait_ms: int = 0,
) -> Call[EventPage]:
    """What happened after an event, or last; with `wait_ms` as soon as there is something."""
    query: list[tuple[str, Any]] = [("after", after), ("last", last), ("limit", limit)]
    query += [("type", one) for one in types]
    query += [("subject", subject), ("prefix", prefix), ("wait_ms", wait_ms or None)]
    call = get("/api/events", EventPage, query)
    return msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000)


class Events:
    """The events after a number, those to come included; without one, from the first look on."""

    def __init__(
        self,
        client: "Client",
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        subject: str | None = None,
        prefix: str | None = None,
    ) -> None:
        self.after = after  # whoever begins with this anew misses nothing
        self._client = client
        self._wanted: dict[str, Any] = {"types": types, "subject": subject, "prefix": prefix}

    def __iter__(self) -> Iterator[EventView]:
        wait = self._wait()
        while True:
            try:
                page = self._client.run(self._call(wait))
            except Unavailable as error:
                time.sleep(wait.pause_s(error))
                continue
            wait.go_on("quiet")
            yield from self._taken(page)

    async def __aiter__(self) -> AsyncIterator[EventView]:
        wait = self._wait()
        while True:
            try:
                page = await self._client.arun(self._call(wait))
            except Unavailable as error:
                await asyncio.sleep(wait.pause_s(error))
                continue
            wait.go_on("quiet")
            for event in self._taken(page):
                yield event

    def _wait(self) -> Wait:
        return Wait("the log", None)

    def _call(self, wait: Wait) -> Call[EventPage]:
        if self.after is None:
            # Where it ends now. What it ends with is of no interest.
            return list_events(last=1)
        wait_ms = wait.question_ms()
        return list_events(after=self.after, limit=PAGE, wait_ms=wait_ms, **self._wanted)

    def _taken(self, page: EventPage) -> Iterator[EventView]:
        if self.after is not None:
            for event in page.items:
                self.after = event.seq
                yield event
        self.after = page.next_after
