"""How do several worker processes live and end together? Under a parent that only watches.

Each child is this command with `--processes 1`, in a process group of its own: Ctrl-C on a
terminal reaches the parent alone, which passes it on once. A child that fails ends the others,
and a parent that is gone, however it went, ends them all: each child holds one end of a pipe whose
other end only the parent has.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import structlog

from rota.cli.output import ExitCode
from rota.cli.signals import STOPPING

log = structlog.get_logger("rota.fleet")

PIPE_VARIABLE = "ROTA_FLEET_PIPE"


def run_fleet(count: int, *, worker_id: str | None) -> int:
    """Run `count` workers to their end; gives the exit code of the first that failed, or 0."""
    running: set[int] = set()
    for_children, _kept_open = os.pipe()
    os.set_inheritable(for_children, True)  # noqa: FBT003 - the system's own signature
    os.environ[PIPE_VARIABLE] = str(for_children)

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        for process_id in running:
            os.kill(process_id, signal.SIGTERM)

    for number in STOPPING:
        signal.signal(number, pass_on)
    # A stop asked for while they start is not for the few that are there already. The children
    # begin with signals held back too, and let them in once they can heed them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    running.update(_spawn(index, worker_id) for index in range(1, count + 1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    first_failure = 0
    while running:
        process_id, status = os.wait()
        running.discard(process_id)
        code = os.waitstatus_to_exitcode(status)
        if code and not first_failure:
            log.error("a worker process failed; ending the others", pid=process_id, code=code)
            first_failure = code if code > 0 else ExitCode.FAILED  # below 0: by a signal
            pass_on(signal.SIGTERM, None)
    return first_failure


def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` when the parent of the fleet has gone, if this process is in a fleet."""
    descriptor = os.environ.get(PIPE_VARIABLE)
    if descriptor is not None:
        watch = threading.Thread(target=_watch, args=(int(descriptor), stop), daemon=True)
        watch.start()


def _watch(descriptor: int, stop: Callable[[], None]) -> None:
    os.read(descriptor, 1)  # nobody ever writes: this returns at the pipe's end
    stop()


def _spawn(index: int, worker_id: str | None) -> int:
    command = [sys.executable, *sys.orig_argv[1:], "--processes", "1"]
    if worker_id is not None:
        command += ["--worker-id", f"{worker_id}-{index}"]
    return os.posix_spawn(sys.executable, command, os.environ, setpgroup=0)
