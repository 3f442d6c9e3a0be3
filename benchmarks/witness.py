"""Reports of handlers in other processes: that they ran, and when.

There are two ways, the same for Rota and for every peer, so that all are measured alike. A third
is for schedules, which only Rota has:

- A tally: each worker process counts its runs in a small memory-mapped file of its own. One count
  costs about a microsecond, and reading it disturbs no process.
- A call: a handler sends its start time in a datagram to the listener that waits for it.
- A log of firings: each worker process appends the time that a task was scheduled for, and the time
  that its handler started, to a file of its own.

Times are CLOCK_MONOTONIC, which all processes of one machine share; those of firings are the wall
clock's, as schedules are. This module uses only the
standard library, because the peers import it in an environment of their own.
"""

import mmap
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

FOLDER_VARIABLE = "ROTA_BENCHMARK_FOLDER"
_PORT_FILE = "calls.port"
_RECORD = struct.Struct("qqq")  # runs, time of the first, time of the last
_CALL = struct.Struct("qq")  # when it was submitted, when its handler started
_FIRING = struct.Struct("qd")  # what it was scheduled for, and when its handler started, in ms


def folder() -> Path:
    """The scratch folder of this measurement, handed to worker processes in their environment."""
    return Path(os.environ[FOLDER_VARIABLE])


class Tally:
    """Counts the runs of this process; a forked child gets a file of its own."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._process_id = 0
        self._file: mmap.mmap | None = None
        self._runs = 0
        self._first_ns = 0

    def count(self) -> None:
        now_ns = time.monotonic_ns()
        with self._lock:
            if self._file is None or self._process_id != os.getpid():
                self._file = self._open()
                self._first_ns = now_ns
            self._runs += 1
            _RECORD.pack_into(self._file, 0, self._runs, self._first_ns, now_ns)

    def _open(self) -> mmap.mmap:
        self._process_id = os.getpid()
        self._runs = 0
        draft = self._where / f"{self._process_id}.draft"
        draft.write_bytes(bytes(_RECORD.size))
        with draft.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), _RECORD.size)
        draft.rename(draft.with_suffix(".tally"))  # a reader never sees half a file
        return mapped


class Tallied(NamedTuple):
    """The counts of all processes together."""

    runs: int
    first_ns: int
    last_ns: int

    @property
    def seconds(self) -> float:
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def per_s(self) -> float:
        """Runs a second between the first run and the last."""
        elapsed_ns = self.last_ns - self.first_ns
        return (self.runs - 1) / elapsed_ns * 1e9 if elapsed_ns > 0 else 0.0


def tallied(where: Path) -> Tallied:
    records = [_RECORD.unpack(path.read_bytes()) for path in where.glob("*.tally")]
    counted = [record for record in records if record[0] > 0]
    if not counted:
        return Tallied(0, 0, 0)
    runs, firsts, lasts = zip(*counted, strict=True)
    return Tallied(sum(runs), min(firsts), max(lasts))


class Caller:
    """The handler's end of a call, which sends the start time."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._address: tuple[str, int] | None = None

    def call(self, submitted_ns: int, started_ns: int) -> None:
        if self._address is None:
            self._address = ("127.0.0.1", int((self._where / _PORT_FILE).read_text()))
        self._socket.sendto(_CALL.pack(submitted_ns, started_ns), self._address)


class Listener:
    """The benchmark's end of a call, which waits for the start time of the handler."""

    def __init__(self, where: Path) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        (where / _PORT_FILE).write_text(str(self._socket.getsockname()[1]))

    def latency_ms(self, submitted_ns: int, *, limit_s: float) -> float | None:
        """From the start of the submitting call to the start of the handler; None: too late."""
        end_s = time.monotonic() + limit_s
        while (left_s := end_s - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                asked_ns, started_ns = _CALL.unpack(self._socket.recv(_CALL.size))
            except TimeoutError:
                break
            if asked_ns == submitted_ns:
                return float(started_ns - submitted_ns) / 1e6
        return None

    def close(self) -> None:
        self._socket.close()


class FiringLog:
    """The handler's record of the firings that it has run."""

    def __init__(self, where: Path) -> None:
        self._file = (where / f"{os.getpid()}.firings").open("ab", buffering=0)

    def note(self, scheduled_for_ms: int) -> None:
        self._file.write(_FIRING.pack(scheduled_for_ms, time.time_ns() / 1e6))


def firings(where: Path) -> list[tuple[int, float]]:
    """The scheduled times and the start times of the handlers of all worker processes."""
    return [
        firing
        for path in where.glob("*.firings")
        for firing in _FIRING.iter_unpack(path.read_bytes())
    ]
