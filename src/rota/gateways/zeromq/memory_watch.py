"""The resident memory of the process, and whether unfinished messages have made it grow.

Theory of operation. An empty frame takes two bytes on the wire and 64 inside libzmq, so a limit on
bytes alone lets small frames take 32 times as much. The frames of an unfinished message cannot be
seen. The memory of the process can: it is remembered while hardly anything is unfinished, and
compared while much is. What the unfinished bytes themselves take is no part of the growth.

Memory may grow for other reasons at the same time. A peer that then happens to be in the middle of
a large message is dropped as well. That is harmless: it connects again and repeats its heartbeat.
While the unfinished bytes are too few to have taken so much, no peer is dropped at first.

libzmq reads on a thread of its own, also while the event loop is busy. Between two measurements
empty frames can take about a megabyte in each millisecond. A loop that is held up for 100 ms can
therefore find the limit exceeded by 100 MB; the limit bounds the growth only from then on.

libzmq frees the messages of a dropped peer soon, but not at once. Until then the growth stays what
it is, and the next peers with unfinished messages are dropped as well. Then free memory is returned
to the system, as far as its allocator can, and what is still resident is taken for usual. Otherwise
it would be held against the next peers, or each flood would take as much again in the memory of the
last one.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

log = structlog.get_logger("rota.zeromq")

STATM = Path("/proc/self/statm")
STATM_BYTES = 256  # more than its line has
FLOOR_BYTES = 256 * 1024  # unfinished over all peers; with fewer, the memory is remembered
FREEING_S = 0.5  # until libzmq has freed the messages of dropped peers
MOST_FREEING_S = 5.0  # the same while more peers are dropped
MOST_PER_BYTE = 32  # bytes that libzmq takes for each one on the wire, with empty frames


class ResidentMemory:
    """The count of the kernel; a few microseconds for each reading."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        if sys.platform == "linux":
            with suppress(OSError):  # no /proc here
                self._descriptor = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
            self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    @property
    def is_known(self) -> bool:
        return self._descriptor is not None

    def read(self) -> int:
        """Read the resident bytes; 0: they are unknown."""
        if self._descriptor is None:
            return 0
        line = os.pread(self._descriptor, STATM_BYTES, 0)
        return int(line.split(maxsplit=2)[1]) * self._page_bytes

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def return_free_memory() -> None:
    """Return free memory to the system; glibc can, and keeps much of it otherwise."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


class DropTimes(NamedTuple):
    """When peers were dropped, one time after the other."""

    first: float
    last: float


class MemoryWatch:
    """Compares the memory with what it was while hardly anything was unfinished."""

    def __init__(
        self, *, most_growth_bytes: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_growth_bytes = most_growth_bytes
        self._now_s = now_s
        self._resident = ResidentMemory()
        self._usual_bytes = self._resident.read()
        self._dropped_s: DropTimes | None = None  # of peers whose messages are being freed
        self.is_close = False  # to its limit, or over it
        if sys.platform == "linux" and not self._resident.is_known:
            log.warning("memory_growth_unlimited", reason=f"{STATM} cannot be read")

    def has_outgrown(self, unfinished_bytes: int) -> bool:
        """Whether these bytes, over all peers, have taken much more memory than they are.

        If so, the caller drops peers until no more than `FLOOR_BYTES` are left.
        """
        now_s = self._now_s()
        if self._dropped_s is not None:
            self._end_freeing(self._dropped_s, now_s)
        resident_bytes = self._resident.read()
        if unfinished_bytes <= FLOOR_BYTES:
            if self._dropped_s is None:
                self._usual_bytes = resident_bytes
            self.is_close = False
            return False
        growth_bytes = resident_bytes - self._usual_bytes - unfinished_bytes
        if self._dropped_s is None:
            # More than that was taken by others.
            growth_bytes = min(growth_bytes, unfinished_bytes * MOST_PER_BYTE)
        self.is_close = growth_bytes > self._most_growth_bytes // 2
        if growth_bytes <= self._most_growth_bytes:
            return False
        first_s = now_s if self._dropped_s is None else self._dropped_s.first
        self._dropped_s = DropTimes(first_s, now_s)
        return True

    def _end_freeing(self, dropped_s: DropTimes, now_s: float) -> None:
        """Take what is resident for usual once the messages of dropped peers are freed."""
        if now_s >= min(dropped_s.last + FREEING_S, dropped_s.first + MOST_FREEING_S):
            self._dropped_s = None
            return_free_memory()
            self._usual_bytes = self._resident.read()

    def close(self) -> None:
        self._resident.close()
