"""How is it told that somebody does something wrong again and again? Once in a while."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger("rota.zeromq")

COMPLAIN_EVERY_S = 10.0  # about one thing


class Complaints:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._silent_until_s: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()

    def about(self, what: str, *, code: str, **facts: Any) -> None:
        """Say it, or count it for the next time it is said; `code` is what is told apart."""
        now_s = self._now_s()
        if now_s < self._silent_until_s.get(code, now_s):
            self._unsaid[code] += 1
            return
        self._silent_until_s[code] = now_s + COMPLAIN_EVERY_S
        log.warning(what, code=code, **facts, unsaid=self._unsaid.pop(code, 0))
