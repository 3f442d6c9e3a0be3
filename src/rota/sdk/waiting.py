"""How long does a submitter wait? As long as it said, and through a coordinator's restart."""

import time

from rota.core import limits
from rota.errors import RotaError

WAIT_MS = 30_000  # one question's patience; a longer wait is several questions
CUT_OFF_LIMIT_S = 60.0  # how long a wait without its own limit outlasts a missing coordinator
ASK_AGAIN_AFTER_S = 0.5


class Wait:
    """The patience of one wait: how long to ask, and how long to bear having no answer."""

    def __init__(self, what: str, timeout_s: float | None) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._cut_off_since: float | None = None

    def question_ms(self) -> int:
        """How long the coordinator may take to answer the next question."""
        wait_ms = WAIT_MS
        if self._deadline is not None:
            left_s = max(0.0, self._deadline - time.monotonic())
            wait_ms = min(wait_ms, int(left_s * 1000))
        return min(wait_ms, limits.MAX_WAIT_MS)

    def go_on(self, state: str) -> None:
        """It has not ended, this was its state: ask again, unless the time is over."""
        self._cut_off_since = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(f"{self._what} is still {state} after {self._timeout_s:g} s")

    def pause_s(self, error: RotaError) -> float:
        """How long to wait before asking again; gives up by raising the error."""
        now = time.monotonic()
        self._cut_off_since = self._cut_off_since or now
        limit = self._deadline
        if limit is None:
            limit = self._cut_off_since + CUT_OFF_LIMIT_S
        if now + ASK_AGAIN_AFTER_S > limit:
            raise error
        return ASK_AGAIN_AFTER_S
