"""Keeps the event loop awake for a caller that sends its next request at once.

A caller that submits one task after the other sends its next request a tenth of a millisecond after
a response. To put the loop to sleep for so short a time costs both sides more, above all on a
virtual machine. So after a response to such a caller the loop runs without sleeping, for as long as
such a request takes. A caller that slows down costs one such wait.
"""

import asyncio
import os
from time import perf_counter

BUSY_POLL_S = 0.00025  # a caller that asks again within this is in a hurry
IS_WORTH_IT = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else False


class BusyPoll:
    """The busy poll of one connection. Belongs to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answered_at_s = 0.0
        self._is_hurried = False
        self._is_polling = False  # whether the loop is kept awake

    def note_request(self) -> None:
        self._is_hurried = perf_counter() - self._answered_at_s < BUSY_POLL_S

    def note_response(self) -> None:
        self._answered_at_s = perf_counter()
        if self._is_hurried and IS_WORTH_IT and not self._is_polling:
            self._poll()

    def _poll(self) -> None:
        self._is_polling = perf_counter() - self._answered_at_s < BUSY_POLL_S
        if self._is_polling:
            self._loop.call_soon(self._poll)
