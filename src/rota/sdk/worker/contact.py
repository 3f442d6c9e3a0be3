"""Whether the coordinator answers this worker.

Calls, heartbeats and the stream fail separately and often while a coordinator is away. Its loss is
logged once, with a reminder each minute, and so is its return; the single failures are logged at
level `debug`.
"""

import threading

from rota.errors import RotaError, Unavailable
from rota.sdk.timing import now_s
from rota.telemetry import library_logger

log = library_logger("rota.worker")

REMINDER_S = 60.0


class CoordinatorContact:
    """Notes failures and answers, from any thread, and logs what changes."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._logged_at = 0.0
        self._returned_at = float("-inf")

    def note_failure(self, event: str, error: RotaError, *, sent_at: float) -> None:
        """Log a failed call: as `event`, or as part of the coordinator's absence."""
        if isinstance(error, Unavailable):
            self.note_lost(error.detail, sent_at=sent_at)
            log.debug(event, reason=error.detail)
        else:
            log.warning(event, reason=error.detail)

    def note_lost(self, reason: str, *, sent_at: float | None = None) -> None:
        """Log that the coordinator is away; `sent_at`: when the call began that failed.

        A call that began during an absence may fail when the coordinator has answered another one.
        It belongs to that absence, and is no second one.
        """
        with self._lock:
            now = now_s()
            if sent_at is not None and sent_at < self._returned_at:
                return
            is_new, self._lost_at = self._lost_at is None, self._lost_at or now
            if not is_new and now - self._logged_at < REMINDER_S:
                return
            self._logged_at = now
            lost_s = round(now - self._lost_at)
        log.warning(
            "coordinator_unreachable",
            url=self._address,
            reason=reason,
            **({"hint": "trying again until it answers"} if is_new else {"for_s": lost_s}),
        )

    def note_answer(self) -> None:
        if self._lost_at is None:
            return
        with self._lock:
            lost_at, self._lost_at = self._lost_at, None
            self._returned_at = now_s()
        if lost_at is not None:
            after_s = round(now_s() - lost_at, 1)
            log.info("coordinator_reached", url=self._address, after_s=after_s)
