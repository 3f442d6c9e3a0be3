"""Does the caller ask again at once? Then it is waited for awake.

Who submits one task after the other has its next request here a tenth of a millisecond after an
answer. To fall asleep for so short a time takes longer, most of all on a virtual machine: both
sides pay for it, the one that wakes the other up as well. So after an answer to such a caller the
loop goes round without sleeping, for no longer than such a request takes; a caller that takes its
time costs one such wait, and none after that until it hurries again.
"""

import asyncio
import os
from time import perf_counter

LINGER_S = 0.00025  # a caller that asks again within this is in a hurry
IS_WORTH_IT = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else False


class Lingering:
    """For one connection. Belongs to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answered_at_s = 0.0
        self._is_hurried = False
        self._is_looking = False  # whether the loop is kept awake

    def came(self) -> None:
        """A request is here."""
        self._is_hurried = perf_counter() - self._answered_at_s < LINGER_S

    def answered(self) -> None:
        """Its answer has left."""
        self._answered_at_s = perf_counter()
        if self._is_hurried and IS_WORTH_IT and not self._is_looking:
            self._look()

    def _look(self) -> None:
        self._is_looking = perf_counter() - self._answered_at_s < LINGER_S
        if self._is_looking:
            self._loop.call_soon(self._look)
