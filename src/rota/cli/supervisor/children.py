"""Worker processes that a parent starts and stops, alone or all together.

Each child is this command with other flags, in its own process group: Ctrl-C on a terminal reaches
only the parent, which passes it on once. Each child reads a pipe that only the parent holds open,
and drains when the parent has ended, by whatever cause.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import structlog

from rota.cli.process import STOPPING
from rota.cli.render.output import ExitCode

log = structlog.get_logger("rota.fleet")

PIPE_VARIABLE = "ROTA_FLEET_PIPE"


class ChildProcesses:
    """Worker processes by number; `flags` make a child an ordinary worker."""

    def __init__(self, *flags: str, worker_id: str | None) -> None:
        self._flags = flags
        self._worker_id = worker_id
        self._pids: dict[int, int] = {}
        for_children, self._kept_open = os.pipe()
        os.set_inheritable(for_children, True)  # noqa: FBT003 - the system's own signature
        self._environment = {**os.environ, PIPE_VARIABLE: str(for_children)}

    @property
    def numbers(self) -> list[int]:
        return list(self._pids)

    def start(self, number: int) -> None:
        command = [sys.executable, *sys.orig_argv[1:], *self._flags]
        if self._worker_id is not None:
            command += ["--worker-id", f"{self._worker_id}-{number}"]
        self._pids[number] = os.posix_spawn(
            sys.executable,
            command,
            self._environment,
            setpgroup=0,
            # Blocked until the child can handle them: a stop must not kill a starting process.
            setsigmask=STOPPING,
        )

    def ask_to_stop(self, number: int) -> None:
        os.kill(self._pids[number], signal.SIGTERM)

    def ended(self) -> list[tuple[int, int]]:
        gone = []
        for number, pid in list(self._pids.items()):
            waited, status = os.waitpid(pid, os.WNOHANG)
            if waited:
                del self._pids[number]
                gone.append((number, os.waitstatus_to_exitcode(status)))
        return gone


def run_processes(count: int, *, worker_id: str | None) -> int:
    """Run `count` workers to their end; returns the exit code of the first failed one, or 0.

    A worker that fails ends the others.
    """
    children = ChildProcesses("--processes", "1", worker_id=worker_id)

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        for number in children.numbers:
            children.ask_to_stop(number)

    for one in STOPPING:
        signal.signal(one, pass_on)
    # A stop during the start must reach all children, not only the first ones.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for number in range(1, count + 1):
        children.start(number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    first_failure = 0
    while children.numbers:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until one has ended
        for number, code in children.ended():
            if code and not first_failure:
                hint = "the other processes are stopped"
                log.error("worker_process_failed", hint=hint, number=number, code=code)
                first_failure = code if code > 0 else ExitCode.FAILED  # below 0: by a signal
                pass_on(signal.SIGTERM, None)
    return first_failure


def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` when the parent process has ended, if this process has one of ours."""
    descriptor = os.environ.get(PIPE_VARIABLE)
    if descriptor is not None:
        watch = threading.Thread(target=_watch, args=(int(descriptor), stop), daemon=True)
        watch.start()


def _watch(descriptor: int, stop: Callable[[], None]) -> None:
    os.read(descriptor, 1)  # nothing is ever written: returns when the parent has ended
    stop()
