"""Exchanges of several calls, written once for threads and event loops.

An exchange yields an `ApiCall` and receives its answer, or has its refusal raised at the `yield`.
It yields a number of seconds to pause. `Client.run` and `Client.arun` carry it out.
"""

import time
from collections.abc import Callable, Collection, Generator
from typing import Any, TypeVar

from rota.core import limits
from rota.errors import RotaError, Unavailable
from rota.sdk.client.requests import ApiCall

T = TypeVar("T")

Exchange = Generator[ApiCall[Any] | float, Any, T]

WAIT_MS = 30_000  # how long the coordinator may hold one answer back
OUTAGE_LIMIT_S = 60.0  # how long a wait without a timeout tolerates a missing coordinator
ASK_AGAIN_AFTER_S = 0.5
MOST_RETRY_AFTER_S = 30.0  # however long the coordinator asks a caller to stay away


class Wait:
    """The time limits of one wait: of each call, of the whole, and of an outage."""

    def __init__(self, subject: str, timeout_s: float | None) -> None:
        self._subject = subject
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._outage_since: float | None = None

    def left_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def call_ms(self) -> int:
        """How long the coordinator may hold back the answer to the next call."""
        wait_ms = WAIT_MS
        left_s = self.left_s()
        if left_s is not None:
            wait_ms = min(wait_ms, int(left_s * 1000))
        return min(wait_ms, limits.MAX_WAIT_MS)

    def check(self, state: str) -> None:
        """Raise `TimeoutError` if the time is over; `state` is what the caller has seen last."""
        self._outage_since = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(f"{self._subject} is still {state} after {self._timeout_s:g} s")

    def pause_s(self, error: RotaError) -> float:
        """How long to pause after a failed call; raises its error when the wait is over."""
        now = time.monotonic()
        self._outage_since = self._outage_since or now
        limit = self._deadline
        if limit is None:
            limit = self._outage_since + OUTAGE_LIMIT_S
        if now + ASK_AGAIN_AFTER_S > limit:
            raise error
        return min(max(ASK_AGAIN_AFTER_S, retry_after_s(error)), limit - now)


def retry_after_s(error: RotaError) -> float:
    """How long the coordinator asked the caller to stay away; 0 when it did not."""
    return min(float(error.facts.get("retry_after_s", 0)), MOST_RETRY_AFTER_S)


def wait_for_end(
    subject: str,
    ask: Callable[[int], ApiCall[Any]],
    ended: Collection[str],
    timeout_s: float | None,
) -> Exchange[Any]:
    """Ask for a view until its state is one of `ended`, across a coordinator's restart.

    `ask` makes the call from the time that the coordinator may hold its answer back.
    """
    wait = Wait(subject, timeout_s)
    while True:
        try:
            view = yield ask(wait.call_ms())
        except Unavailable as error:
            yield wait.pause_s(error)
            continue
        if view.state in ended:
            return view
        wait.check(view.state)


def every_item(page: Callable[[str | None], ApiCall[Any]]) -> Exchange[list[Any]]:
    """All items of a list; `page` makes the call for the page at a cursor."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        answer = yield page(cursor)
        found += answer.items
        cursor = answer.next_cursor
        if cursor is None:
            return found
