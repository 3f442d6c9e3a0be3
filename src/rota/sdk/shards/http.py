"""How does a worker talk about shards over HTTP? By requests, and one that waits for news.

Each message is a request of its own and is answered at once. Beside them one more request is always
under way, which the coordinator answers when there is something new: it says again what we said
last, so it renews no lease and releases no shard.
"""

import asyncio
import time
from typing import assert_never

from msgspec.structs import replace

from rota.core.shards.events import BeatMember, LeaveMember, MemberEvent, RegisterMember
from rota.errors import RotaError
from rota.messages.shards import AssignmentData
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.shards import calls
from rota.sdk.shards.lines import LAST_WORDS_S, Hearer

SHORTEST_POLL_S = 0.1  # one answered sooner with nothing new is not asked again before
MOST_PAUSE_S = 5.0  # after polls that got no answer; the beats go on as they should


class HttpLine:
    def __init__(self, client: Client, hearer: Hearer) -> None:
        self._client = client.without_repeats()
        self._hearer = hearer
        self._under_way: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[None] | None = None
        self._has_left = False

    def send(self, message: MemberEvent) -> None:
        self._has_left = isinstance(message, LeaveMember)
        task = asyncio.create_task(self._exchange(message, list(self._under_way)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        if self._has_left and self._under_way:
            await asyncio.wait(self._under_way, timeout=LAST_WORDS_S)
        tasks = [*self._under_way, *([] if self._polling is None else [self._polling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _exchange(self, message: MemberEvent, before: list[asyncio.Task[None]]) -> None:
        try:
            match message:
                case RegisterMember():
                    self._hear(await self._client.arun(calls.register(message)))
                case BeatMember():
                    self._hear(await self._client.arun(calls.beat(message)))
                case LeaveMember():
                    await self._leave(message, before)
                case _:
                    assert_never(message)
        except RotaError as error:
            self._hearer.note_trouble(error)

    async def _leave(self, message: LeaveMember, before: list[asyncio.Task[None]]) -> None:
        # On another connection it might overtake the beat that hands our shards over.
        if before:
            await asyncio.wait(before, timeout=LAST_WORDS_S / 2)
        await self._client.arun(calls.leave(message))

    def _hear(self, told: AssignmentData) -> None:
        self._hearer.hear(told)
        if self._polling is None and told.status == "ok":
            self._polling = asyncio.create_task(self._poll(told.heartbeat_interval_ms))

    async def _poll(self, wait_ms: int) -> None:
        backoff = Backoff(most_s=MOST_PAUSE_S)
        while (beat := self._hearer.beat_again()) is not None:
            asked_at = time.monotonic()
            try:
                told = await self._client.arun(calls.beat(beat, wait_ms=wait_ms))
            except RotaError:
                # The beats tell of it, and whether that is the end.
                await asyncio.sleep(backoff.wait_s())
                continue
            backoff.reset()
            wait_ms = told.heartbeat_interval_ms
            # Heard from the first saying of it, the lease would be too long: it answers nothing.
            self._hearer.hear(replace(told, seq=None))
            if told.generation == beat.generation:
                took_s = time.monotonic() - asked_at
                await asyncio.sleep(max(0.0, SHORTEST_POLL_S - took_s))
