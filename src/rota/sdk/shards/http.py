"""The member protocol over HTTP: requests, and a long poll for pushed assignments.

The coordinator answers each message at once. In addition one long poll is always under way, which
the coordinator answers when the assignment changes. It repeats the last message, so it renews no
lease and releases no shard.
"""

import asyncio
import time
from typing import assert_never

from msgspec.structs import replace

from rota.core.shards.commands import BeatMember, LeaveMember, MemberCommand, RegisterMember
from rota.errors import RotaError
from rota.messages.shards import AssignmentData
from rota.sdk.client import service_calls
from rota.sdk.client.client import Client
from rota.sdk.shards.transport import LEAVE_TIMEOUT_S, AssignmentListener
from rota.sdk.timing import RetryBackoff

SHORTEST_POLL_S = 0.1  # after a poll that is answered sooner without a change, the next one waits
MOST_PAUSE_S = 5.0  # after polls without an answer


class HttpShardTransport:
    def __init__(self, client: Client, listener: AssignmentListener) -> None:
        self._client = client.without_repeats()
        self._listener = listener
        self._under_way: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[None] | None = None
        self._has_left = False

    def send(self, message: MemberCommand) -> None:
        self._has_left = isinstance(message, LeaveMember)
        task = asyncio.create_task(self._exchange(message, list(self._under_way)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        if self._has_left and self._under_way:
            await asyncio.wait(self._under_way, timeout=LEAVE_TIMEOUT_S)
        tasks = [*self._under_way, *([] if self._polling is None else [self._polling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _exchange(self, message: MemberCommand, before: list[asyncio.Task[None]]) -> None:
        try:
            match message:
                case RegisterMember():
                    self._receive(await self._client.arun(service_calls.register_member(message)))
                case BeatMember():
                    self._receive(await self._client.arun(service_calls.beat_member(message)))
                case LeaveMember():
                    # On another connection it could overtake the beat that releases the shards.
                    if before:
                        await asyncio.wait(before, timeout=LEAVE_TIMEOUT_S / 2)
                    await self._client.arun(service_calls.leave_member(message))
                case _:
                    assert_never(message)
        except RotaError as error:
            self._listener.note_error(error)

    def _receive(self, data: AssignmentData) -> None:
        self._listener.receive(data)
        if self._polling is None and data.status == "ok":
            self._polling = asyncio.create_task(self._poll(data.heartbeat_interval_ms))

    async def _poll(self, wait_ms: int) -> None:
        backoff = RetryBackoff(most_s=MOST_PAUSE_S)
        while (beat := self._listener.repeated_beat()) is not None:
            sent_at = time.monotonic()
            try:
                data = await self._client.arun(service_calls.beat_member(beat, wait_ms=wait_ms))
            except RotaError:
                # The beats report the error, and find out whether the membership is over.
                await asyncio.sleep(backoff.wait_s())
                continue
            backoff.reset()
            wait_ms = data.heartbeat_interval_ms
            # With its number, the lease would count from the first message: too long.
            self._listener.receive(replace(data, seq=None))
            if data.generation == beat.generation:
                took_s = time.monotonic() - sent_at
                await asyncio.sleep(max(0.0, SHORTEST_POLL_S - took_s))
