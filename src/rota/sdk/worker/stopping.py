"""How workers stop: the reasons, and the signals of the process."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from enum import StrEnum

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopReason(StrEnum):
    STOPPED = "stopped"  # the program or a signal asked for it
    RECYCLED = "recycled"  # it has run `max_tasks`; start another one
    REPLACED = "replaced"  # another process works under its id


async def run_with_signals(
    run: Callable[[], Awaitable[StopReason]], stop: Callable[[], None]
) -> StopReason:
    """Run a worker; SIGTERM and SIGINT call `stop` if this is the main thread."""
    loop = asyncio.get_running_loop()
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, stop)
    except (ValueError, RuntimeError):
        return await run()  # not the main thread
    try:
        return await run()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
