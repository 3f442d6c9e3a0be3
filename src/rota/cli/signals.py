"""What do Ctrl-C and SIGTERM do? The first asks for a clean stop, the second ends at once.

Ending at once is safe, only less polite: whatever was acknowledged is on disk already.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial

import structlog

from rota.cli.output import ExitCode

log = structlog.get_logger("rota.signals")

STOPPING = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals(ask_to_stop: Callable[[], None]) -> None:
    """Watch for signals on the running event loop; `ask_to_stop` is called once, on it."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, partial(_stop, loop, ask_to_stop))


def _stop(loop: asyncio.AbstractEventLoop, ask_to_stop: Callable[[], None]) -> None:
    for number in STOPPING:
        loop.remove_signal_handler(number)
        # Not on the loop, which may be what does not end; and not the default action, which
        # the first process of a container does not have.
        signal.signal(number, lambda _number, _frame: os._exit(ExitCode.INTERRUPTED))
    log.info("stopping; a second Ctrl-C ends at once")
    ask_to_stop()
