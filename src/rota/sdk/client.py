"""How is a call carried out? Sent through a transport, its answer read, its refusal raised.

A request of which the coordinator has seen nothing, and one that may safely arrive twice, is sent
again a few times. Any other whose answer is missing has an unknown outcome: that is raised as
`Unavailable`, and the caller decides. Where there are several coordinators to ask, what is
submitted without a key gets one of ours, so that it may be asked again elsewhere, and happens once.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from rota.errors import Unavailable
from rota.sdk.calls import Call
from rota.sdk.events import Events
from rota.sdk.problems import error_of
from rota.sdk.transport import NotSent, Response, Transport, open_transport

T = TypeVar("T")

REPEAT_AFTER_S = (0.05, 0.2, 0.8)  # each shortened by up to a half, so that callers spread out


class Client:
    """Carries out calls, from any thread (`run`) and any event loop (`arun`)."""

    def __init__(
        self, transport: Transport, *, repeat_after_s: tuple[float, ...] = REPEAT_AFTER_S
    ) -> None:
        self.transport = transport
        self._repeat_after_s = repeat_after_s

    @classmethod
    def connect(cls, url: str | None = None, token: str | None = None) -> Self:
        """A client for `url`, or what `ROTA_URL` names, or an embedded coordinator."""
        return cls(open_transport(url, token))

    def without_repeats(self) -> "Client":
        """A client on the same transport for callers that have their own way of trying again."""
        return Client(self.transport, repeat_after_s=())

    def run(self, call: Call[T]) -> T:
        call = self._repeatable(call)
        for wait_s in self._repeat_after_s:
            try:
                return self._read(call, self.transport.send(call))
            except Unavailable as error:
                if not _may_repeat(call, error):
                    raise
            time.sleep(_jittered(wait_s))
        return self._read(call, self.transport.send(call))

    async def arun(self, call: Call[T]) -> T:
        call = self._repeatable(call)
        for wait_s in self._repeat_after_s:
            try:
                return self._read(call, await self.transport.asend(call))
            except Unavailable as error:
                if not _may_repeat(call, error):
                    raise
            await asyncio.sleep(_jittered(wait_s))
        return self._read(call, await self.transport.asend(call))

    def events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        subject: str | None = None,
        prefix: str | None = None,
    ) -> Events:
        """What happens, event by event, for `for` or `async for`; it does not end by itself.

        After the event with this number, or without one from the first look on. Types may end with
        a star: `task-*`.
        """
        return Events(self, after=after, types=types, subject=subject, prefix=prefix)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _repeatable(self, call: Call[T]) -> Call[T]:
        if call.made_repeatable is None or not getattr(self.transport, "has_several", False):
            return call
        return call.made_repeatable()

    def _read(self, call: Call[T], response: Response) -> T:
        if not 200 <= response.status < 300 and response.status not in call.answers:
            raise error_of(response, self.transport.address)
        try:
            return call.decoder.decode(response.body or call.empty)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"the answer of {self.transport.address} to {call.method} {call.path} "
                f"cannot be read: {error}"
            ) from error


def _may_repeat(call: Call[T], error: Unavailable) -> bool:
    return call.is_repeatable or isinstance(error, NotSent)


def _jittered(wait_s: float) -> float:
    return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
