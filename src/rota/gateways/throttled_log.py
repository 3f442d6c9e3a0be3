"""Logs a repeated misbehaviour of peers once in a while, with a count."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

LOG_EVERY_S = 10.0  # for each code


class ThrottledLog:
    def __init__(self, logger: Any, now_s: Callable[[], float] = time.monotonic) -> None:
        """`logger` is a structlog logger."""
        self._logger = logger
        self._now_s = now_s
        self._quiet_until_s: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def warn(self, event: str, *, code: str, **facts: Any) -> None:
        """Log an event, or count it for the next time; each `code` is throttled alone."""
        now_s = self._now_s()
        if now_s < self._quiet_until_s.get(code, now_s):
            self._suppressed[code] += 1
            return
        self._quiet_until_s[code] = now_s + LOG_EVERY_S
        self._logger.warning(event, code=code, **facts, suppressed=self._suppressed.pop(code, 0))
