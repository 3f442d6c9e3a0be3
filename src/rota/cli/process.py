"""The event loop of a process, and the signals that stop it.

The first Ctrl-C or SIGTERM asks for a clean stop, the second ends the process at once. That is
safe: everything that was acknowledged is on disk already.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import structlog

from rota.cli.render.output import ExitCode

log = structlog.get_logger("rota.signals")

STOPPING = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop where it is installed, and on asyncio's own loop elsewhere."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not every platform has it
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def stop_on_signals(ask_to_stop: Callable[[], None]) -> None:
    """Handle signals on the running event loop; `ask_to_stop` is called once, on that loop."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, partial(_stop, loop, ask_to_stop))


def reload_on_hangup(reload: Callable[[], None]) -> None:
    """Call `reload` on the running event loop at every SIGHUP."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


def _stop(loop: asyncio.AbstractEventLoop, ask_to_stop: Callable[[], None]) -> None:
    for number in STOPPING:
        loop.remove_signal_handler(number)
        # Not on the loop: a loop that hangs would never run it. Not the default action either: the
        # first process of a container has none.
        signal.signal(number, lambda _number, _frame: os._exit(ExitCode.INTERRUPTED))
    log.info("stopping", hint="a second Ctrl-C ends at once")
    ask_to_stop()
