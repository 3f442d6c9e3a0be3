"""How is async code run to its end from anywhere, even from within an event loop?

Where no loop runs, one is run on this thread. Where one does, the other is run on a thread of its
own, while this one waits: no loop runs inside another.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh event loop."""
    return call_apart(lambda: asyncio.run(coroutine))


def call_apart(action: Callable[[], T]) -> T:
    """Call something that runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return action()
    context = contextvars.copy_context()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(context.run(action))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
