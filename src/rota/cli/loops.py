"""On which event loop does a process run? On uvloop where there is one: it is the faster one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not every platform has it
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
