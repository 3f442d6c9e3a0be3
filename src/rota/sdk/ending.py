"""What has to happen before the program ends? Embedded workers finish, connections are closed.

It has to happen while threads can still be started and joined. The interpreter's own `atexit` comes
after the shutdown of the standard thread pools, so that of `threading` is used where it exists.
"""

import atexit
import concurrent.futures.thread  # noqa: F401 - whose shutdown is registered first, and so runs last
import contextlib
import threading
import weakref
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_is_registered = False


def close_at_end(one: Closable) -> None:
    """Have it closed when the program ends, unless it is gone by then."""
    global _is_registered  # noqa: PLW0603 - once a process
    _open.add(one)
    if not _is_registered:
        _is_registered = True
        register = getattr(threading, "_register_atexit", atexit.register)
        register(_close_all)


def _close_all() -> None:
    for one in list(_open):
        with contextlib.suppress(Exception):  # the program is ending; the others want their turn
            one.close()
