"""Processes of the benchmark: started, watched and ended, so that none is left behind.

Each process leads a process group of its own. Ending it also ends the processes that it has
started. Ctrl-C in the terminal reaches only the benchmark, which then ends the others in order.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar

ROOT = Path(__file__).resolve().parent.parent
STOP_PATIENCE_S = 15.0


class Failed(Exception):  # noqa: N818 - it says what a measurement did
    """A measurement failed; the message is the reason, for people to read."""


class LeftOut(Failed):
    """A measurement is left out, because this machine lacks something that it needs."""


class Process:
    living: ClassVar[set["Process"]] = set()

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": _python_path(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.name = Path(command[0]).name
        self.id = self._process.pid
        self.living.add(self)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def check(self) -> None:
        """Raise `Failed` if the process has ended before it was stopped."""
        if self.exit_code is not None:
            raise Failed(f"{self.name} ended with {self.exit_code}: {last_line(self._log)}")

    def stop(self) -> None:
        if self.exit_code is None:
            os.killpg(self.id, signal.SIGTERM)
            try:
                self._process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.id, signal.SIGKILL)
                self._process.wait()
        self.living.discard(self)

    def terminate(self) -> None:
        """Ask the process to end, without waiting for it."""
        os.killpg(self.id, signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a crash would, without waiting for it."""
        os.killpg(self.id, signal.SIGKILL)

    def wait(self, limit_s: float) -> None:
        """Wait until a process that was asked to end has ended."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {limit_s:.0f} s") from None
        self.living.discard(self)

    def cpu_s(self) -> float | None:
        """The processor time of the process so far; None on systems without /proc."""
        try:
            fields = Path(f"/proc/{self.id}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> dict[str, float] | None:
        """The resident memory of the process, now and at most; None on systems without /proc."""
        try:
            status = Path(f"/proc/{self.id}/status").read_text()
        except OSError:
            return None
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return {
            "now": int(lines["VmRSS"].split()[0]) / 1024,
            "most": int(lines["VmHWM"].split()[0]) / 1024,
        }


@contextmanager
def running(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    process = Process(command, log=log, environment=environment)
    try:
        yield process
    finally:
        process.stop()


def stop_all() -> None:
    """Stop the processes that an interrupted measurement has left running."""
    for process in list(Process.living):
        process.stop()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the main thread with `Failed` when the block takes longer than this."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Failed(f"not finished within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _python_path() -> str:
    """The checkout, followed by the PYTHONPATH of the caller."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_line(log: Path) -> str:
    """The last line that a process printed; for a traceback, with the place of the error."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    said = [line.strip() for line in lines if line.strip(" ^~")]
    if any(line.startswith("Traceback") for line in said):
        return " / ".join(said[-3:])[-500:]
    return said[-1][-500:] if said else "it said nothing"
